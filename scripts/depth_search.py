"""What the defaults of looped networks and of stacks were chosen by: accuracy on held-out images.

    python scripts/depth_search.py --task mnist --network 8 --seed 0 --option feedback=0.3
    python scripts/depth_search.py --task mnist --network 8 --seed 0 --twin default

Of the 5,000 training images of a seed that the study does not use, 1,000 are held out; the test
images are never loaded. Every run is a line of ``results/depth_search.jsonl``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from toreqprop.bench.depth import LOOPED, NETWORKS, TASKS, Setup, plain, train
from toreqprop.certificate import certify
from toreqprop.gradients import CenteredEP
from toreqprop.models import HopfieldMLP, LoopedMLP
from toreqprop.models.base import EquilibriumModel
from toreqprop.tasks import get

HELD_OUT = 1000


def value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def build(network: str, inputs: int, classes: int, options: dict[str, Any]) -> EquilibriumModel:
    options = dict(options)
    if "beta" in options:
        options["gradient"] = CenteredEP(options.pop("beta"))
    width = options.pop("width", Setup.width)
    if network == LOOPED:
        return LoopedMLP(inputs, width, classes, **options)
    return HopfieldMLP([inputs, *[width] * int(network), classes], **options)


def run(
    setup: Setup, task: str, network: str, seed: int, twin: str, options: dict[str, Any]
) -> dict[str, Any]:
    """One network or twin, trained on 4,000 images and scored on the other 1,000."""
    data = get(task).load(seed, False)
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    held = x[-HELD_OUT:], y[-HELD_OUT:]
    x, y = x[:-HELD_OUT], y[:-HELD_OUT]
    torch.manual_seed(seed)
    layers = 1 if network == LOOPED else int(network)
    model: nn.Module
    if twin:
        model = plain(x.shape[1], Setup.width, layers, data.classes, twin)
    else:
        model = build(network, x.shape[1], data.classes, options)
        model.on_failure = "ignore"
    train(setup, model, x, y, seed)
    with torch.no_grad():
        output = model(held[0])
    found: dict[str, Any] = {
        "task": task, "network": network, "seed": seed, "twin": twin, "options": options,
        "decay": setup.decay,
        "held_out": 100 * float((output.argmax(1) == held[1]).float().mean()),
        "loss": float(F.cross_entropy(output, held[1])),
    }  # fmt: skip
    if isinstance(model, EquilibriumModel):
        kept = sum(model.failures.values())
        certificate = certify(model, x[:64], y[:64])
        found |= {
            "failures": kept, "cosine": certificate.min_cosine,
            "worst": min(certificate.tensors, key=lambda t: t.cosine).name,
            "lipschitz": certificate.lipschitz, "contraction": certificate.contraction,
            "steps": [p.steps for p in certificate.phases],
        }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", choices=TASKS, action="append")
    parser.add_argument("--network", choices=NETWORKS, action="append")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--twin", default="", help="backpropagation's twin with this start")
    parser.add_argument("--option", action="append", default=[], help="name=value")
    parser.add_argument("--constant-rate", action="store_true", help="without its linear decay")
    parser.add_argument("--output", type=Path, default=Path("results/depth_search.jsonl"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    setup = Setup(decay=not given.constant_rate)
    options = {k: value(v) for k, v in (text.split("=", 1) for text in given.option)}
    for task in given.task or TASKS:
        for network in given.network or NETWORKS:
            for seed in given.seed or [0]:
                started = time.process_time()
                found = run(setup, task, network, seed, given.twin, options)
                found["seconds"] = round(time.process_time() - started, 1)
                line = json.dumps(found)
                print(line, flush=True)
                with given.output.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
