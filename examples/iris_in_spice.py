"""Train a resistive network on iris inside ngspice: every voltage comes from the simulated circuit.

Each step is two runs of ngspice, one for the free phase of a batch and one for its two nudged
phases. The rule that changes a conductance sees the voltages at its two ends and nothing else.

    python examples/iris_in_spice.py
    python examples/iris_in_spice.py --simulator pytorch --seed 3
"""

from __future__ import annotations

import argparse

import toreqprop as teq
from toreqprop.bench.circuits.iris import TEST, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulator", choices=["ngspice", "pytorch"], default="ngspice")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=15)
    chosen = parser.parse_args()
    solver = teq.hardware.Ngspice() if chosen.simulator == "ngspice" else teq.hardware.Newton()
    model, correct = train(solver, chosen.seed, chosen.epochs)
    print(model)
    print(f"iris, {chosen.simulator}, seed {chosen.seed}: {correct} of {TEST} test flowers named")


if __name__ == "__main__":
    main()
