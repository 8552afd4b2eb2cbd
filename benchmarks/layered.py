"""Layered networks: step times against backpropagation, growth with depth, a 32-layer network.

    python benchmarks/layered.py [--epochs 12] [--output results]

Writes layered.json and layered_depth.svg/.png. One thread; some minutes, most of them training.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from toreqprop.bench import layered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12, help="of the 32-layer network")
    parser.add_argument("--rounds", type=int, default=30, help="measured steps of each network")
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = layered.step_times(options.rounds)
    for row in rows:
        print(
            f"{'-'.join(map(str, row.sizes))}: {row.milliseconds:.1f} ms, {row.ratio:.2f} times "
            f"backpropagation (target {row.target:g}), sweeps {row.steps}, residual {row.residual}"
        )
    points = layered.depth_cost()
    for point in points:
        print(
            f"{point.layers} layers: {point.milliseconds:.0f} ms a step, {point.per_layer:.1f} ms "
            f"a layer, {point.free_steps:.0f} free and {point.nudged_steps:.0f} nudged sweeps"
        )
    print(f"time grows as depth to the power {layered.growth(points):.2f}")
    layered.draw_depth(points, options.output)
    run = layered.train_deepest(
        options.epochs,
        on_epoch=lambda e: print(f"epoch {e.epoch}: loss {e.loss:.3f}, {e.seconds:.0f} s"),
    )
    print(
        f"{run.layers} layers on digits: test accuracy {run.test_accuracy:.2%} (chance "
        f"{run.chance:.2%}), smallest cosine {run.cosine_before:.5f} before and "
        f"{run.cosine_after:.5f} after training, Lipschitz constant {run.lipschitz:.4f}"
    )
    text = json.dumps(layered.as_dict(rows, points, run), indent=2)
    (options.output / "layered.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
