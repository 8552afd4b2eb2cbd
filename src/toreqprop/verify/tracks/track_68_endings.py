"""Track 68: what a relaxation says at its end is true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from toreqprop.models import EquilibriumModel
from toreqprop.solvers import FixedPoint, Trace
from toreqprop.verify import endings
from toreqprop.verify.independent import Stack
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Measurements, Table
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import load
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

TOLERANCES = (1e-2, 1e-4, 1e-7)
RADII = (0.3, 0.9)
STEPS = (1, 2, 5)
PLAIN_STACK = "layered, plain map"
RESOLVED = 1e-13
"""Distances below this are rounding."""


@dataclass(frozen=True)
class Relaxed:
    """One batch of relaxations, measured again by NumPy; the worst sample of each figure."""

    network: str
    radius: float
    tol: float
    over_tol: float
    over_reported: float
    bound: float
    slack: float
    converged: bool
    over_reach: float

    @property
    def row(self) -> tuple[Any, ...]:
        return (
            self.network, self.radius, self.tol, self.over_tol, self.over_reported, self.bound,
            self.slack,
        )  # fmt: skip


@plantable
def run(context: Context) -> Measurements:
    samples = context.level.pick(100, 200, 400)
    data = load(context, "digits", context.seed)
    x, y = data.x[:samples].double(), data.y[:samples]
    measured: list[Relaxed] = []
    said = [endings.diverging()]
    steps: list[float] = []
    for seed in context.seeds:
        for name in endings.NETWORKS:
            context.report(f"{name}, seed {seed}")
            for radius in RADII:
                model = endings.build(name, data.features, data.classes, seed, radius)
                measured += [_measure(name, radius, model, x, tol) for tol in TOLERANCES]
            said += endings.endings(model, name, x[:20], y[:20])
            if name in ("looped, compiled", "looped, general"):
                steps.append(_fixed_steps(model, x[:20]))
    plain = [m for m in measured if m.network.startswith("looped") and "Anderson" not in m.network]
    return Measurements(
        {
            "endings": len(said),
            "wrong": sum(e.wrong for e in said),
            "relaxations": samples * len(measured),
            "over_tol": max(m.over_tol for m in measured if m.network != PLAIN_STACK),
            "over_tol_stack": max(m.over_reach for m in measured if m.network == PLAIN_STACK),
            "over_reported": max(m.over_reported for m in plain),
            "converged": min(m.converged for m in measured),
            "bound": min(m.bound for m in measured),
            "slack": float(np.median([m.slack for m in measured])),
            "fixed_steps": max(steps),
        },
        tables=(
            Table(
                f"{samples} digits a row, float64: NumPy's residual of the returned state over the "
                "tolerance and over the residual that was reported, the smallest error bound over "
                "the distance to NumPy's equilibrium, and the median of that ratio",
                (
                    Column("network"),
                    Column("radius", "g"),
                    Column("tol", "g"),
                    Column("residual / tol", ".3f"),
                    Column("residual / reported", ".3f"),
                    Column("bound / distance, least", ".3g"),
                    Column("median", ".3g"),
                ),
                tuple(m.row for m in measured),
            ),
            Table(
                "Endings that are known beforehand, first seed",
                (Column("network"), Column("case"), Column("expected"), Column("said")),
                tuple((e.network, e.what, e.expected, e.found) for e in said[: 1 + 10 * 6]),
            ),
        ),
    )


def _measure(
    name: str, radius: float, model: EquilibriumModel, x: torch.Tensor, tol: float
) -> Relaxed:
    model.solver = model.solver.limited(tol, 400)
    with torch.no_grad():
        found = model.equilibrium(x)
        stack, given = Stack.of(model), x.numpy()
        state = [s.numpy() for s in found.state]
        again = endings.residuals(stack, given, state)
        target = stack.relax(given)
    gaps = [np.sum((a - b) ** 2, axis=1) for a, b in zip(state, target, strict=True)]
    distance = np.sqrt(np.sum(gaps, axis=0))
    reported = found.residual.double().numpy()
    resolved = distance > RESOLVED
    ratio = found.error_bound.numpy()[resolved] / distance[resolved]
    real = again > 1e-14
    return Relaxed(
        name,
        radius,
        tol,
        float(again.max() / tol),
        float((again[real] / np.maximum(reported[real], 1e-300)).max()) if real.any() else 0.0,
        float(ratio.min()) if resolved.any() else 1.0,
        float(np.median(ratio)) if resolved.any() else 1.0,
        found.converged,
        float((again / np.maximum(endings.reach(stack, state), 1.0)).max() / tol),
    )


def _fixed_steps(model: EquilibriumModel, x: torch.Tensor) -> float:
    """After k steps the state is the map applied k times to where it began, and no less."""
    stack, worst = Stack.of(model), 0.0
    given = x.numpy()
    state = [np.tanh(given @ stack.weights[0].T + stack.biases[0])]
    path = []
    for _ in range(max(STEPS)):
        state = [np.tanh(u) for u in stack.inputs(given, state)]
        path.append(state[0])
    for count in STEPS:
        model.solver = FixedPoint(tol=1e-300, max_steps=count)
        with torch.no_grad():
            short = model.equilibrium(x).state[0].numpy()
            trace = Trace(keep_states=True)
            general = model.equilibrium(x, trace=trace).state[0].numpy()
        for found in (short, general):
            worst = max(worst, float(np.abs(found - path[count - 1]).max()))
        if len(trace.images) != count:
            worst = float("inf")
    return worst


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_most("wrong", 0, "endings that were called something else than they were"),
        at_least("converged", 1, "whether every relaxation that had time says it converged"),
        at_most("over_tol", 1.0, "NumPy's residual of a returned state over the tolerance"),
        # Of a stack the iterate is within the tolerance. Its image moves by what the other layer
        # was off: by the coupling's norm, which weak feedback lets be above one, times the ratio
        # of the two activities.
        at_most(
            "over_tol_stack", 1.0, "the same for a stack by the plain map, over what it may grow by"
        ),
        # One layer, plain iteration: the reported residual is a bound, to rounding of the norm.
        at_most("over_reported", 1.0 + 1e-6, "the same over what was reported, looped networks"),
        at_least("bound", 1.0, "smallest error bound over the true distance"),
        at_most("slack", 100.0, "median of the error bound over the true distance"),
        at_most("fixed_steps", 1e-13, "deviation from the map applied that many times"),
    )


TRACK = Track(
    number=68,
    title="Honest Endings",
    claim="A relaxation that says it converged has, one that has not says so, and its error bound "
    "holds.",
    experiment="Relaxations with and without time, under weak and strong nudges, on every path; "
    "the residual and the distance to the equilibrium are measured again by NumPy.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("last step skipped", "the general loop returns the iterate, not its image"),
        Sabotage("status always converged", "every relaxation says that it reached its tolerance"),
    ),
    statements=(
        "Of {endings} endings known beforehand {wrong} were called something else.",
        "In {relaxations} relaxations the residual of the returned state, by NumPy, was at most "
        "{over_tol:.3f} of the tolerance, and in looped networks {over_reported:.3f} of what was "
        "reported.",
        "The error bound was at least {bound:.2f} times the distance to the equilibrium, in the "
        "median {slack:.1f} times.",
    ),
    cost=8,
)
