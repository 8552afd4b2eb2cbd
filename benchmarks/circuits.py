"""Resistive networks: MNIST, digits in PyTorch and in ngspice, random circuits, mismatch.

    python benchmarks/circuits.py mnist-search   # recipes on held-out training images
    python benchmarks/circuits.py digits-search  # learning rates on held-out training rows
    python benchmarks/circuits.py mnist          # the chosen one on all of MNIST, the test set once
    python benchmarks/circuits.py digits         # ten seeds, in PyTorch and in ngspice
    python benchmarks/circuits.py in-situ        # ten mismatched circuits, in place and deployed
    python benchmarks/circuits.py random         # 200 random circuits, PyTorch against ngspice

Each writes one JSON file into results/circuits with commit, command, machine and times; one thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from toreqprop.bench.circuits import digits, mnist, random_circuits, report
from toreqprop.hardware import Ngspice

SEARCHED = [
    mnist.Recipe(hidden=(256,), epochs=8, moves=moves, learning_rate=rate)
    for moves, rate in ((1, 0.1), (0, 0.1), (1, 0.03), (2, 0.1))
]
SEARCH_IMAGES = 20_000
FIRST_HELD_OUT = 2000
"""Seed of the first of the random circuits. Smaller ones served development: circuit 1185 showed
that phases which a nudge moves far apart cannot share one Jacobian."""

Chosen = argparse.Namespace


def mnist_search(chosen: Chosen) -> dict[str, Any]:
    runs: list[dict[str, Any]] = []

    def keep(run: dict[str, Any]) -> None:
        runs.append(run)
        print(f"{run['recipe']}: held out {run['held_out_accuracy']:.2%}", flush=True)

    mnist.search(mnist.images(), SEARCHED, SEARCH_IMAGES, keep)
    return {"held_out_images": mnist.HELD_OUT, "runs": runs}


def train_mnist(chosen: Chosen) -> dict[str, Any]:
    def tell(row: dict[str, Any]) -> None:
        print(f"epoch {row['epoch']}: loss {row['loss']:.4f}, {row['seconds']:.0f} s", flush=True)

    recipe = mnist.Recipe() if chosen.epochs is None else mnist.Recipe(epochs=chosen.epochs)
    _, figures = mnist.train(mnist.images(), recipe, chosen.seed, tell)
    print(f"test accuracy {figures['test_accuracy']:.2%}, {figures['cpu_seconds']:.0f} CPU seconds")
    return figures


def digits_search(chosen: Chosen) -> dict[str, Any]:
    """Learning rates on a fifth of the training rows of seeds that nothing else uses."""
    runs = []
    for rate in (0.03, 0.1, 0.3):
        for seed in range(1000, 1000 + min(chosen.seeds, 3)):
            recipe = digits.Recipe(learning_rate=rate)
            runs.append({"recipe": vars(recipe), "seed": seed, **digits.held_out(recipe, seed)})
            print(runs[-1], flush=True)
    return {"runs": runs}


def train_digits(chosen: Chosen) -> dict[str, Any]:
    recipe, rows = digits.Recipe(), []
    for seed in range(chosen.seeds):
        rows.append(digits.as_drawn(recipe, seed, Ngspice()))
        print(rows[-1], flush=True)
    return {"recipe": vars(recipe), **summary(rows, ("pytorch", "ngspice")), "runs": rows}


def in_situ(chosen: Chosen) -> dict[str, Any]:
    recipe, rows = digits.Recipe(hidden=32, epochs=8), []
    for spread in (1.0, 2.0, 0.5):
        for seed in range(chosen.seeds if spread == 1 else min(chosen.seeds, 2)):
            rows.append(digits.mismatched(recipe, seed, spread))
            print(rows[-1], flush=True)
    strong = [row for row in rows if row["spread"] == 1]
    return {
        "recipe": vars(recipe),
        "mismatch": vars(digits.MISMATCH),
        **summary(strong, ("ideal", "deployed", "in_place", "frozen")),
        "runs": rows,
    }


def random_against_spice(chosen: Chosen) -> dict[str, Any]:
    rows = []
    for seed in range(FIRST_HELD_OUT, FIRST_HELD_OUT + chosen.circuits):
        circuit = random_circuits.random_circuit(seed)
        apart = random_circuits.difference(
            circuit.voltages(random_circuits.TIGHT), circuit.voltages(Ngspice())
        )
        rows.append({"seed": seed, "sizes": circuit.model.sizes, "volts": apart})
        print(f"{seed}: {apart:.1e} V", flush=True)
    worst = max(row["volts"] for row in rows)
    print(f"{len(rows)} circuits, worst difference {worst:.1e} V")
    return {"circuits": len(rows), "worst_volts": worst, "runs": rows}


def summary(rows: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    """Mean, standard deviation and least of each figure over the runs."""
    found = {}
    for name in names:
        values = [row[name] for row in rows]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        found[name] = {"mean": statistics.mean(values), "std": spread, "least": min(values)}
        print(f"{name}: {found[name]['mean']:.2%} ± {spread:.2%}")
    return {"summary": found}


COMMANDS: dict[str, Callable[[Chosen], dict[str, Any]]] = {
    "mnist-search": mnist_search,
    "mnist": train_mnist,
    "digits-search": digits_search,
    "digits": train_digits,
    "in-situ": in_situ,
    "random": random_against_spice,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measurement", choices=COMMANDS)
    parser.add_argument("--seed", type=int, default=0, help="of the network on MNIST")
    parser.add_argument("--epochs", type=int, help="on MNIST, instead of the recipe's")
    parser.add_argument("--seeds", type=int, default=10, help="of digits and in-situ")
    parser.add_argument("--circuits", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path("results/circuits"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    begun = report.begin()
    figures = COMMANDS[chosen.measurement](chosen)
    path = chosen.output / f"{chosen.measurement.replace('-', '_')}.json"
    report.write(path, json.loads(json.dumps(figures)), begun)


if __name__ == "__main__":
    main()
