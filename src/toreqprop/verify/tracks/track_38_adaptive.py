"""Track 38: samples that take longer are those whose equilibrium is closer to the edge."""

from __future__ import annotations

import torch
from torch import Tensor

from toreqprop.models import LoopedMLP
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Figure, Measurements, Series, Table
from toreqprop.verify.networks import load
from toreqprop.verify.settling import near_the_edge, settle
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

TOL = 1e-5
"""So many steps that the rate at the equilibrium decides, and not the way there."""


def run(context: Context) -> Measurements:
    hidden, epochs, samples = context.level.pick((32, 2, 128), (64, 6, 256), (96, 10, 400))
    found, spreads, shuffled, margins, rows = [], [], [], [], []
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        model = near_the_edge(data, hidden, epochs, seed, TOL).double()
        x, y = data.test_x[:samples].double(), data.test_y[:samples]
        steps = settle(model, x, y).free.double()
        generator = torch.Generator().manual_seed(seed)
        other = steps[torch.randperm(len(steps), generator=generator)]
        if context.sabotaged("steps of other samples"):
            steps = other
        if context.sabotaged("the same steps for all"):
            steps = torch.full_like(steps, float(steps.max()))
        rate, margin = _rates(model, x)
        found.append(rank_correlation(steps, rate))
        shuffled.append(abs(rank_correlation(other, rate)))
        margins.append(rank_correlation(steps, margin))
        spreads.append(float(steps.max() / steps.min()))
        rows.append((seed, float(steps.min()), float(steps.max()), found[-1], margins[-1]))
    chosen = steps.argsort()
    return Measurements(
        {
            "correlation": min(found),
            "spread": min(spreads),
            "shuffled": max(shuffled),
            "margin_correlation": sum(margins) / len(margins),
        },
        tables=(
            Table(
                f"Steps of the free phase to {TOL:g}, their rank correlation with the local "
                "contraction at each sample's equilibrium, and with the margin of the answer",
                (
                    Column("seed", "d"), Column("fewest", "g"), Column("most", "g"),
                    Column("with contraction", "+.3f"), Column("with margin", "+.3f"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Steps against the contraction at the equilibrium, last seed",
                "steps of the free phase",
                "largest eigenvalue of the map's Jacobian",
                (
                    Series(
                        "test samples",
                        tuple(float(s) for s in steps[chosen]),
                        tuple(float(r) for r in rate[chosen]),
                    ),
                ),
            ),
        ),
    )  # fmt: skip


@torch.no_grad()
def _rates(model: LoopedMLP, x: Tensor) -> tuple[Tensor, Tensor]:
    """Of each sample: ``ρ(D·W)`` with ``D = 1 − h²``, and how far the first answer is ahead."""
    (state,) = model.equilibrium(x).state
    half = (1 - state.square()).sqrt()
    weight = model.system_parameters()[2]
    similar = half[:, :, None] * weight * half[:, None, :]  # D^½·W·D^½ has its eigenvalues
    rate = torch.linalg.eigvalsh(similar).abs().amax(1)
    first, second = model.readout_from((state,)).topk(2).values.unbind(1)
    return rate, first - second


def rank_correlation(one: Tensor, two: Tensor) -> float:
    """Spearman's, equal values sharing their mean rank; NaN where all are equal."""
    first, second = (_ranks(t) for t in (one, two))
    return float(torch.corrcoef(torch.stack([first, second]))[0, 1])


def _ranks(values: Tensor) -> Tensor:
    below = (values[:, None] > values).sum(1).double()
    same = (values[:, None] == values).sum(1).double()
    return below + 0.5 * (same - 1)


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("correlation", 0.6, "rank correlation of steps with the local contraction"),
        at_least("spread", 1.5, "steps of the slowest sample over those of the quickest"),
        at_most("shuffled", 0.35, "the same correlation for steps of other samples, absolute"),
    )


TRACK = Track(
    number=38,
    title="Adaptive Computing",
    claim="The steps a sample takes are set by the sample: those whose equilibrium contracts less "
    "take longer, so that stopping by residual spends steps where they are needed.",
    experiment="Steps of every test sample against the spectral radius of the map's Jacobian at "
    "its own equilibrium, on trained networks near the edge of stability.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("steps of other samples", "each sample is given the steps of another"),
        Sabotage("the same steps for all", "as with a fixed number of steps"),
    ),
    statements=(
        "The slowest sample took {spread:.1f} times the steps of the quickest or more; the rank "
        "correlation of steps with the contraction at the equilibrium was {correlation:.2f} at "
        "the least ({shuffled:.2f} or less for shuffled steps), with the margin of the answer "
        "{margin_correlation:+.2f} on average.",
    ),
    cost=3,
)
