"""Peak memory of one training step of the networks of `toreqprop speed`, next to the same others.

Every row is a process of its own, in which all contenders train a few steps, one after the other;
then each has its gradients taken away and trains one more. What counts is how far the resident set
rises in that step: states, gradients and whatever the step needs for a while. Weights and what Adam
keeps of them are there before.
"""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import asdict
from functools import partial
from typing import Any

from toreqprop.bench.memory_probe import fresh_process, peak_of

WARMUP, RATE = 10, 1e-3


Described = tuple[tuple[str, Any], ...]
"""The fields of a `speed_rows.Network`, as the arguments of a job are."""


def wanted() -> list[Described]:
    """The networks of `speed_rows`, looped ones at their default and at one norm."""
    from toreqprop.bench.speed_rows import ROWS

    kept = [n for n in ROWS if n.kind != "looped" or n.norm in (None, 0.95)]
    return [tuple(asdict(network).items()) for network in kept]


def row(network: Described, seed: int) -> dict[str, Any]:
    """One row as plain data: the network, what its memory was bought with, and ``peaks``."""
    return dict(fresh_process(__name__, json.dumps(dict(network)), str(seed)))


def measure(network: dict[str, Any], seed: int) -> dict[str, Any]:
    """Measure in this process, which must be a fresh one."""
    import torch

    from toreqprop.bench import speed
    from toreqprop.bench.speed_rows import Network, build, parameters

    torch.set_num_threads(1)
    asked = Network(**network)
    built = build(asked, seed)
    ours = speed.equilibrium_contender(built, RATE)
    speed.warm_up(ours, built, WARMUP)
    contenders = [ours, *speed.others(asked, built, ours.mean_steps()["free"], RATE)]
    peaks = []
    for contender in contenders:
        for _ in range(2):
            contender.train(*built.draw())
        x, y = built.draw()
        contender.optimizer.zero_grad()
        gc.collect()
        peaks.append(
            {
                "name": contender.name,
                "parameters": parameters(contender.model),
                "peak_mb": peak_of(partial(contender.train, x, y)),
            }
        )
        contender.optimizer.zero_grad()  # the next one's memory is not to be where this one's was
    proofs = [speed.proof(ours, built)]
    return {"network": network, **speed.bought_with(ours, asked, proofs), "peaks": peaks}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]), int(sys.argv[2]))))
