"""Two networks of as many weights, one trained by EP and one by backprop, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from toreqprop.training import TrainingConfig
from toreqprop.verify.measurements import Column, Figure, Paired, Series, Table
from toreqprop.verify.networks import Split, Trained, baseline, looped, train
from toreqprop.verify.probes import mean

EP, BACKPROP = "EP", "backprop"
ARMS = (EP, BACKPROP)

Curves = dict[tuple[str, str, float], list[float]]
"""Test accuracy in percent by (arm, kind of harm, its strength), one entry per seed."""


def twins(
    data: Split,
    hidden: int,
    seed: int,
    epochs: int,
    rate: float = 3e-3,
    *,
    on_step: Callable[[nn.Module], None] | None = None,
    **options: Any,
) -> dict[str, Trained]:
    """Both, trained on the same batches; ``options`` are the looped network's."""
    chosen = {"radius": 0.9, "bound": "tight", **options}
    config = TrainingConfig(epochs=epochs, learning_rate=rate, seed=seed)
    networks: dict[str, nn.Module] = {
        EP: looped(data, hidden, seed, **chosen),
        BACKPROP: baseline(data, hidden, seed),
    }
    return {name: train(net, data, config, on_step=on_step) for name, net in networks.items()}


@torch.no_grad()
def score(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Percent correct."""
    return 100 * float((model(x).argmax(1) == y).double().mean())


def paired(curves: Curves, kind: str, strength: float) -> Paired:
    """EP minus backprop under one harm."""
    one, two = (curves[arm, kind, strength] for arm in ARMS)
    return Paired(tuple(one), tuple(two))


def harm_table(title: str, curves: Curves) -> Table:
    """Means over seeds of both arms under every harm."""
    harms = sorted({(kind, strength) for _, kind, strength in curves})
    rows = []
    for kind, strength in harms:
        means = [mean(curves[arm, kind, strength]) for arm in ARMS]
        rows.append((kind, strength, *means, means[0] - means[1]))
    columns = (
        Column("harm"), Column("strength", "g"), *(Column(f"{arm}, %", ".1f") for arm in ARMS),
        Column("EP minus backprop", "+.1f"),
    )  # fmt: skip
    return Table(title, columns, tuple(rows))


def harm_figures(
    titles: Mapping[str, str], curves: Curves, clean: Mapping[str, Sequence[float]], chance: float
) -> tuple[Figure, ...]:
    """One figure for each kind of harm, from none to the strongest."""
    figures = []
    for kind, title in titles.items():
        strengths = sorted({s for _, k, s in curves if k == kind})
        figures.append(
            Figure(
                title,
                "strength",
                "test accuracy, %",
                tuple(
                    Series(
                        arm,
                        (0.0, *strengths),
                        (mean(clean[arm]), *(mean(curves[arm, kind, s]) for s in strengths)),
                    )
                    for arm in ARMS
                ),
                lines={"chance": chance},
            )
        )
    return tuple(figures)
