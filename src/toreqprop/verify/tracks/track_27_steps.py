"""Track 27: how many passes a stack takes to settle, as it gets deeper."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.models import HopfieldMLP
from toreqprop.solution import Solution, State
from toreqprop.solvers import FixedPoint
from toreqprop.verify.deep_stacks import deep, in_double
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Figure, Measurements, Series, Table
from toreqprop.verify.networks import load
from toreqprop.verify.probes import mean, order
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most, below

SAMPLES = 16


def run(context: Context) -> Measurements:
    depths = context.level.pick((2, 8, 64), (2, 8, 32, 64), (2, 4, 8, 16, 32, 64))
    passes: dict[tuple[str, int], list[float]] = {}
    residuals, factors, unsettled, rows = [], [], 0, []
    for seed in context.seeds:
        data = in_double(load(context, "digits", seed), SAMPLES)
        for depth in depths:
            context.report(f"{depth} layers, seed {seed}")
            model = deep(data, depth, seed)
            if context.sabotaged("plain iteration"):
                model.solver = FixedPoint(tol=model.tol, max_steps=model.max_steps)
            if context.sabotaged("stopped after ten"):
                model.max_steps = 10
            found: dict[str, Solution] = {}
            model.register_relaxation_hook(found.__setitem__)
            F.cross_entropy(model(data.x), data.y).backward()
            for phase, solution in found.items():
                passes.setdefault((phase, depth), []).append(solution.steps)
                unsettled += not solution.converged
            # What the free phase left undone, by one plain step in NumPy's own words.
            residuals.append(_residual(model, data.x, found["free"].state))
            factors.append(model.lipschitz())
            rows.append(
                (seed, depth, factors[-1], found["free"].steps, found["nudged"].steps,
                 residuals[-1])
            )  # fmt: skip
    means = {key: mean(values) for key, values in passes.items()}
    growth = {
        phase: order(depths, [means[phase, d] for d in depths]) for phase in ("free", "nudged")
    }
    return Measurements(
        {
            "free_exponent": growth["free"],
            "nudged_exponent": growth["nudged"],
            "most_passes": max(means.values()),
            "deepest": max(depths),
            "lipschitz": max(factors),
            "residual": max(residuals),
            "unsettled": unsettled,
        },
        tables=(
            Table(
                "Passes to a relative residual of 1e-6, and the residual of the plain map measured "
                "again at the state that was returned",
                (
                    Column("seed", "d"), Column("layers", "d"), Column("certified L", ".4f"),
                    Column("free passes", "d"), Column("nudged passes", "d"),
                    Column("residual", ".1e"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Passes against depth",
                "layers",
                "passes",
                tuple(
                    Series(f"{phase} phase", depths, tuple(means[phase, d] for d in depths))
                    for phase in ("free", "nudged")
                ),
                log_x=True,
                log_y=True,
            ),
        ),
    )  # fmt: skip


@torch.no_grad()
def _residual(model: HopfieldMLP, x: Tensor, state: State) -> float:
    """The worst layer's ``‖tanh(u) − s‖/‖s‖``, from the weights alone."""
    params, worst = model.system_parameters(), 0.0
    weights, biases = params[0::2], params[1::2]
    for layer, s in enumerate(state):
        u = (x if layer == 0 else state[layer - 1]) @ weights[layer].mT + biases[layer]
        if layer + 1 < len(state):
            u = u + model.feedback * state[layer + 1] @ weights[layer + 1]
        gap = (torch.tanh(u) - s).norm(dim=1) / s.norm(dim=1)
        worst = max(worst, float(gap.max()))
    return worst


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_most("free_exponent", 0.9, "power of depth with which free passes grow"),
        at_most("nudged_exponent", 0.9, "power of depth with which nudged passes grow"),
        at_most("most_passes", 150, "most passes of any depth and phase, mean over seeds"),
        at_most("unsettled", 0, "relaxations that did not settle"),
        at_most("residual", 1e-5, "residual of the plain map, measured again"),
        below("lipschitz", 1.0, "largest certified contraction factor"),
        at_least("deepest", 64, "layers of the deepest stack"),
    )


TRACK = Track(
    number=27,
    title="Settling in Depth",
    claim="The passes a stack takes to settle grow more slowly than its depth, in both phases, up "
    "to sixty-four layers near the edge of stability.",
    experiment="HopfieldMLP.deep relaxed to 1e-6 at growing depth; passes of both phases, and the "
    "residual measured again from the weights.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage(
            "plain iteration", "no sweeps and no acceleration: hundreds of steps at any depth"
        ),
        Sabotage("stopped after ten", "no relaxation takes more than ten passes"),
    ),
    statements=(
        "Passes grew with depth to the power {free_exponent:.2f} (free) and {nudged_exponent:.2f} "
        "(nudged), to {most_passes:.0f} at the most with up to {deepest} layers; certified factors "
        "up to {lipschitz:.4f}; the residual measured again was {residual:.1e} or less.",
    ),
    cost=5,
)
