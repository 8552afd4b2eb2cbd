"""Train a resistive network on iris inside ngspice: every voltage comes from the simulated circuit.

Each step is one run of ngspice, a sweep over the samples of a batch and their two nudged phases.
The rule that changes a conductance sees the voltages at its two ends and nothing else.

    python examples/iris_in_spice.py
    python examples/iris_in_spice.py --simulator pytorch --seed 3
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split
from torch import Tensor

from toreqprop.hardware import (
    Ngspice,
    ResistiveNetwork,
    nudged_gradients,
    solve_circuit,
    updated,
)
from toreqprop.hardware.in_situ import Simulator

NETWORK = ResistiveNetwork((4, 8, 3), gain=4.0, input_gain=2.0)
BETA = 1e-6  # siemens, well below the conductance at an output
RATE = 5e-8  # S²/V²
LEVEL = 0.3  # volts: the target of the right class, and minus that for the others
BATCH = 30


def iris(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """120 flowers to train on and 30 to test, standardised by the former."""
    x, y = load_iris(return_X_y=True)
    split = train_test_split(x, y, test_size=30, stratify=y, random_state=seed)
    x_train, x_test = (torch.as_tensor(part, dtype=torch.float64) for part in split[:2])
    mean, spread = x_train.mean(0), x_train.std(0)
    labels = [torch.as_tensor(part) for part in split[2:]]
    return (x_train - mean) / spread, labels[0], (x_test - mean) / spread, labels[1]


def train(solve: Simulator, seed: int = 0, epochs: int = 30, beta: float = BETA) -> float:
    """Test accuracy after training in place."""
    x, y, x_test, y_test = iris(seed)
    target = LEVEL * (2 * torch.nn.functional.one_hot(y, 3).double() - 1)
    conductances = NETWORK.random_conductances(seed)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(BATCH):
            slopes = nudged_gradients(
                NETWORK, conductances, x[rows], target[rows], beta, solve=solve
            )
            conductances = updated(conductances, slopes, RATE)
    output = solve(NETWORK, conductances, x_test).output
    return float((output.argmax(1) == y_test).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulator", choices=["ngspice", "pytorch"], default="ngspice")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    chosen = parser.parse_args()
    solve = Ngspice().solve if chosen.simulator == "ngspice" else solve_circuit
    accuracy = train(solve, chosen.seed, chosen.epochs)
    print(f"iris, {chosen.simulator}, seed {chosen.seed}: test accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
