"""Which part of a nudge makes trainings on mazes collapse: its size, its start, where it stops?

A map is trained as a prototype was that collapsed: a free kernel, drives of ±1.5, plain damped
iteration of at most 60 steps. At a few points on its way every estimator of a grid is held against
the exact gradient there: of the settled map in double precision, by the implicit function theorem.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass, replace
from itertools import product
from statistics import median
from typing import Any

import torch
from torch import Tensor

from toreqprop.bench import mazes as study
from toreqprop.energies import Gradients, LinearNudge, Opposed, Pairs
from toreqprop.energies.pairs import Pair, Phases
from toreqprop.evidence import Measurement
from toreqprop.gradients import CenteredEP, ImplicitGradient
from toreqprop.gradients.base import ContrastiveEstimator, Problem, as_pairs, measured
from toreqprop.models import EquilibriumMap
from toreqprop.solution import State
from toreqprop.solvers import FixedPoint, relax, relax_pair
from toreqprop.tasks.mazes import MARK, WALL

TASK, SEED, UPDATES, RATE, DAMPING = "maze-reach", 200, 300, 0.01, 0.5
POINTS = (105, 150, 225, 299)
"""After how many updates the estimators are compared."""
SAMPLES = 16
STARTS = ("free", "initial", "chained")
STOPS = ((1e-3, 60), (1e-5, 60), (1e-5, 400))
"""Tolerance and most steps of a phase; the first is the prototype's."""
STRENGTHS = (1e-3, 1e-1)


@dataclass(frozen=True)
class Contrast(ContrastiveEstimator):
    """Centred EP with a nudge of one size for every sample, or of ``unit`` times its error.

    ``start``: where the phases begin. Both at the free equilibrium; both at the state a relaxation
    begins with; or chained, the second where the first has ended.
    """

    beta: float
    normalised: bool
    start: str
    unit: float

    @property
    def betas(self) -> tuple[float, float]:
        return self.beta, -self.beta

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        system, solver = problem.system, problem.solver
        if self.normalised:
            direction, weight, _ = measured(cotangent, 1 / self.beta)
        else:
            direction = tuple(self.unit * g for g in cotangent)
            weight = cotangent[0].new_full((len(cotangent[0]),), 1 / (self.beta * self.unit))
        up, down = (LinearNudge(direction, beta) for beta in self.betas)
        if self.start == "chained":
            one, other = (
                replace(
                    system, drive=tuple(d - f for d, f in zip(system.drive, force, strict=True))
                )
                for force in (up.force(free), down.force(free))
            )
            first = relax(one, solver, start=free, kernel=problem.kernel)
            second = relax(other, solver, start=first.state, kernel=problem.kernel)
            both = zip(first.state, second.state, strict=True)
            pairs: Pairs = Phases(Pair(0.5 * (a + b), 0.5 * (a - b)) for a, b in both)
        else:
            begin = free if self.start == "free" else system.initial_state()
            memory = problem.memory if self.start == "free" else ()
            pairs = as_pairs(
                relax_pair(
                    system, Opposed(up, down), solver, begin, memory=memory, kernel=problem.kernel
                )
            )
        field = system.field
        return field.energy_gradients(pairs, weight, system.x, system.params, problem.wants)  # type: ignore[attr-defined]


def prototype(seed: int) -> EquilibriumMap:
    """The map that collapsed: a random readout, and cells that may inhibit each other."""
    torch.manual_seed(seed)
    tol, steps = STOPS[0]
    model = EquilibriumMap(
        2, coupling=0.15, start=study.STARTS[TASK], cooperative=False, gradient=CenteredEP(),
        solver=FixedPoint(tol=tol, max_steps=steps, damping=DAMPING), on_failure="ignore",
    )  # fmt: skip
    with torch.no_grad():
        drive, bias = model.drive.parameters()
        drive.zero_()
        bias.zero_()
        for channel, strength in ((WALL, -study.MARKED), (MARK, study.MARKED)):
            drive[:, channel, 1, 1] = strength
    return model


@dataclass(frozen=True)
class Compared:
    """One estimator at one point of the training.

    ``cosine`` is that of its whole gradient with the exact one, ``size`` the ratio of their norms.
    """

    update: int
    normalised: bool
    start: str
    beta: float
    tol: float
    max_steps: int
    cosine: float
    size: float


def along_training() -> dict[str, Any]:
    """Train the prototype and compare the grid at every point: loss, settled samples, cosines."""
    setup = replace(study.SETUPS[TASK], counts=(1, 1, 1, 1))
    data = study.split(setup, SEED, validation=True)
    x, y = torch.from_numpy(data.train.x[:SAMPLES]), study.targets(data.train)[:SAMPLES]
    model, points = prototype(SEED), []
    for update, loss in enumerate(study.training(setup, model, data.train, SEED, UPDATES, RATE)):
        if update in POINTS:
            points.append({"update": update, "loss": loss, **_point(model, x, y, update)})
    return {"points": points}


def _point(model: EquilibriumMap, x: Tensor, y: Tensor, update: int) -> dict[str, Any]:
    """The grid at one point, on the samples that have an equilibrium."""
    exact = copy.deepcopy(model).double()
    exact.solver = FixedPoint(tol=1e-10, max_steps=2000, damping=DAMPING)
    exact.gradient = ImplicitGradient(FixedPoint(tol=1e-8, max_steps=2000, damping=DAMPING))
    with torch.no_grad():
        settled = exact.equilibrium(x.double()).residual <= 1e-10
    x, y = x[settled], y[settled]
    reference = gradient(exact, x.double(), y)
    unit = float((y != study.IGNORED).sum())
    found = []
    for normalised, start, beta, (tol, steps) in product((True, False), STARTS, STRENGTHS, STOPS):
        other = copy.deepcopy(model)
        other.solver = FixedPoint(tol=tol, max_steps=steps, damping=DAMPING)
        # Errors of a cell are about a tenth of what a normalised nudge gives it at first.
        other.gradient = Contrast(beta if normalised else 10 * beta, normalised, start, unit)
        mine = gradient(other, x, y).double()
        size = float(mine.norm() / reference.norm())
        cosine = float(mine @ reference / (mine.norm() * reference.norm()))
        found.append(Compared(update, normalised, start, beta, tol, steps, cosine, size))
    return {"settled": int(settled.sum()), "compared": [asdict(c) for c in found]}


def gradient(model: EquilibriumMap, x: Tensor, y: Tensor) -> Tensor:
    """All that passes the equilibrium, in one vector."""
    model.zero_grad()
    study.cell_loss(model(x), y).backward()
    parts = (*model.drive.parameters(), *model.recurrent.parameters())
    return torch.cat([p.grad.flatten() for p in parts if p.grad is not None])


def measurements() -> list[Measurement]:
    """The one measurement of the study."""
    return [Measurement("maze-nudges", "along a training", f"{__name__}:along_training")]


def assemble(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What is kept of the one measurement."""
    return found[0]


def render_markdown(found: dict[str, Any]) -> str:
    """The smallest and the median cosine over the points, by nudge and by where phases stop."""
    heads = [f"tolerance {tol:g}, {steps} steps" for tol, steps in STOPS]
    lines = [
        f"| nudge | β | phases start | {' | '.join(heads)} |",
        "|---|---|---|" + "---|" * len(heads),
    ]
    every = [c for point in found["points"] for c in point["compared"]]
    for normalised, beta, start in product((True, False), STRENGTHS, STARTS):
        cells = []
        for tol, steps in STOPS:
            own = sorted(
                c["cosine"]
                for c in every
                if (c["normalised"], c["beta"], c["start"]) == (normalised, beta, start)
                and (c["tol"], c["max_steps"]) == (tol, steps)
            )
            cells.append(f"{median(own):.2f} ({own[0]:.2f})")
        size, shown = ("one size", beta) if normalised else ("of the error's size", 10 * beta)
        lines.append(f"| {size} | {shown:g} | {WORDS[start]} | {' | '.join(cells)} |")
    return "\n".join(lines)


WORDS = {"free": "both at the free state", "initial": "both anew", "chained": "second at the first"}
