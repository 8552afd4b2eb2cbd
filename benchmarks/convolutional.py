"""EP and backprop with the same convolutional layers; writes results/convolutional.json.

python benchmarks/convolutional.py mnist fashion
python benchmarks/convolutional.py mnist --methods ep --threads 2
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from toreqprop.bench.convolutional import METHODS, SETTINGS, run, step_times, store
from toreqprop.training import Epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", help=f"of {', '.join(sorted(SETTINGS))}")
    parser.add_argument("--speed", action="store_true", help="time one training step of each")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--epochs", type=int, help="instead of the task's own number")
    parser.add_argument("--draw", action="store_true", help="5,000 training images, not 60,000")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", type=Path, default=Path("results/convolutional.json"))
    asked = parser.parse_args()
    if (not asked.tasks and not asked.speed) or not set(asked.tasks) <= set(SETTINGS):
        parser.error(f"name tasks ({', '.join(sorted(SETTINGS))}) or give --speed")
    torch.set_num_threads(asked.threads)
    if asked.speed:
        times = step_times(SETTINGS["mnist"])
        store(asked.output, times)
        print(
            f"processor time of a step: EP {times.milliseconds['ep']:.1f} ms, backprop "
            f"{times.milliseconds['backprop']:.1f} ms, ratio {times.ratio:.2f} "
            f"({times.free_steps:.1f} free and {times.nudged_steps:.1f} nudged sweeps)"
        )
    for task in asked.tasks:
        settings = SETTINGS[task]
        if asked.epochs is not None:
            settings = replace(settings, epochs=asked.epochs)
        for method in asked.methods:
            found = run(task, method, settings, seed=asked.seed, full=not asked.draw, on_epoch=show)
            store(asked.output, found)
            print(
                f"{task}, {method}: test accuracy {100 * found.accuracy:.2f} % "
                f"(chance {100 * found.chance:.1f} %), {found.seconds:.0f} s of training, "
                f"{found.cpu_seconds:.0f} s of processor time",
                flush=True,
            )


def show(epoch: Epoch) -> None:
    print(f"  epoch {epoch.epoch}: loss {epoch.loss:.4f}, {epoch.seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
