"""A resistive network learns handwritten digits in place, on a circuit that is not as drawn.

    python examples/digits_in_situ.py                       # an ideal circuit, in PyTorch
    python examples/digits_in_situ.py --simulator ngspice   # every voltage from ngspice
    python examples/digits_in_situ.py --mismatch            # a circuit with strong mismatch

With ``--mismatch`` three numbers follow: trained ideal and deployed, trained in place, and in place
with the hidden layer frozen. Conductances spread by 40 %, diodes by 70 %, the current that
amplifiers return by 20 %, and every amplifier has an offset of 50 mV.
"""

from __future__ import annotations

import argparse
import time

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor

from toreqprop.hardware import (
    CircuitSolution,
    Faults,
    Newton,
    Ngspice,
    ResistiveNetwork,
    nudged_gradients,
    solve_circuit,
    updated,
)
from toreqprop.hardware.in_situ import Simulator
from toreqprop.hardware.resistive import Conductances

NETWORK = ResistiveNetwork((64, 32, 10), input_gain=8.0, inverting=True, upper_bias=True)
BETA = 1e-6  # siemens
RATE = 1e-8  # S²/V², falling to zero
MOMENTUM = 0.9
LEVEL = 0.3  # volts between the targets of the right class and of the others
MISMATCH = {"conductance": 0.4, "saturation": 0.7, "down": 0.2, "offset": 0.05}

Data = tuple[Tensor, Tensor, Tensor, Tensor]


def digits(seed: int) -> Data:
    """1,437 images to train on, 360 to test."""
    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x / 16, y, test_size=360, stratify=y, random_state=seed)
    x_train, x_test, y_train, y_test = (torch.as_tensor(part) for part in parts)
    return x_train.double(), y_train, x_test.double(), y_test


def in_pytorch(*arguments: object, **options: object) -> CircuitSolution:
    return solve_circuit(*arguments, **options, method=Newton(tol=1e-9))  # type: ignore[arg-type]


def train(
    data: Data,
    seed: int,
    epochs: int,
    solve: Simulator,
    faults: Faults | None = None,
    frozen: bool = False,
) -> Conductances:
    """Conductances after training with the voltages of this very circuit."""
    x, y = data[:2]
    target = LEVEL * (torch.nn.functional.one_hot(y, 10).double() - 0.1)
    conductances = NETWORK.random_conductances(seed, 1e-7, 2e-5)
    speed = tuple(torch.zeros_like(g) for g in conductances)
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(epochs):
        rate = RATE * (1 - epoch / epochs)
        for rows in torch.randperm(len(x), generator=generator).split(32):
            slopes = nudged_gradients(
                NETWORK, conductances, x[rows], target[rows], BETA, faults, solve
            )
            speed = tuple(MOMENTUM * v + s for v, s in zip(speed, slopes, strict=True))
            new = updated(conductances, speed, rate, low=1e-7, high=1e-3)
            conductances = (conductances[0], new[1]) if frozen else new
    return conductances


def accuracy(
    data: Data, conductances: Conductances, solve: Simulator, faults: Faults | None = None
) -> float:
    output = solve(NETWORK, conductances, data[2], faults=faults).output
    return float((output.argmax(1) == data[3]).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulator", choices=["ngspice", "pytorch"], default="pytorch")
    parser.add_argument("--mismatch", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    solve: Simulator = Ngspice().solve if chosen.simulator == "ngspice" else in_pytorch
    found: dict[str, list[float]] = {}
    for seed in range(chosen.seeds):
        start, data = time.perf_counter(), digits(seed)
        ideal = train(data, seed, chosen.epochs, solve)
        row = {"ideal": accuracy(data, ideal, solve)}
        if chosen.mismatch:
            faults = Faults.draw(NETWORK, seed, **MISMATCH)
            row["deployed"] = accuracy(data, ideal, solve, faults)
            for name, frozen in (("in place", False), ("frozen", True)):
                trained = train(data, seed, chosen.epochs, solve, faults, frozen)
                row[name] = accuracy(data, trained, solve, faults)
        figures = ", ".join(f"{name} {value:.1%}" for name, value in row.items())
        print(f"seed {seed}: {figures} ({time.perf_counter() - start:.1f} s)", flush=True)
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    means = ", ".join(f"{name} {sum(v) / len(v):.1%}" for name, v in found.items())
    print(f"mean of {chosen.seeds}: {means}")


if __name__ == "__main__":
    main()
