"""What the settings of the CIFAR-10 study were chosen by: accuracy on held-out training images.

    python scripts/cifar10_search.py --method ep --images 10000 --option epochs=3 rate=2e-3

Of the 50,000 training images the last 5,000 are held out; the test images are never used. Every
run is a line of ``results/cifar10_search.jsonl``.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from toreqprop.bench.cifar.recipe import METHODS, Recipe, build, parted
from toreqprop.bench.cifar.training import correct, pixels, train
from toreqprop.certificate import certify
from toreqprop.tasks.cifar10 import Images, fixed_split

CERTIFIED = 16


def run(method: Any, recipe: Recipe, images: int, seed: int, certified: bool) -> dict[str, Any]:
    """One training on the first so many images, scored on those held out."""
    some, held, _ = fixed_split()
    some = Images(some.x[:images], some.y[:images])
    model = build(method, recipe, seed)
    done = train(model, some, recipe, seed, report=lambda news: print(news, flush=True))
    found = {
        "method": method, "images": len(some.y), "seed": seed, "settings": asdict(recipe),
        "held_out": 100 * float(correct(model, held).mean()),
        "epochs": done.epochs, "cpu_seconds": round(done.cpu_seconds, 1),
    }  # fmt: skip
    settling = parted(model)
    if certified and settling:
        front, block = settling
        with torch.no_grad():
            maps = front(pixels(torch.from_numpy(some.x[:CERTIFIED])))
        certificate = certify(block, maps, torch.from_numpy(some.y[:CERTIFIED]))
        found |= {
            "certified": certificate.ok, "cosine": certificate.min_cosine,
            "norm_ratios": {t.name: t.norm_ratio for t in certificate.tensors},
            "contraction": certificate.contraction,
            "backprop_cosine": certificate.backprop_cosine,
            "steps": [p.steps for p in certificate.phases],
            "reasons": [reason.name for reason in certificate.reasons],
        }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--method", choices=METHODS, default="backprop")
    parser.add_argument("--images", type=int, default=45_000)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--certify", action="store_true", help="the gradient after training")
    parser.add_argument("--option", nargs="*", default=[], help="name=value of the recipe")
    parser.add_argument("--output", type=Path, default=Path("results/cifar10_search.jsonl"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    options: dict[str, Any] = {}
    for name, text in (each.split("=", 1) for each in given.option):
        value = text if name == "start" else json.loads(text)
        options[name] = tuple(value) if isinstance(value, list) else value
    recipe = Recipe(**options)
    found = run(given.method, recipe, given.images, given.seed, given.certify)
    line = json.dumps(found)
    print(line, flush=True)
    with given.output.open("a") as file:
        file.write(line + "\n")


if __name__ == "__main__":
    main()
