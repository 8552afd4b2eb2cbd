"""Track 29: every relaxation runs downhill, by at least what theory says."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from toreqprop.energies import LinearNudge, System
from toreqprop.energies.system import sample_norm
from toreqprop.gradients import CenteredEP
from toreqprop.gradients.base import normalise
from toreqprop.models import LoopedMLP
from toreqprop.solution import State
from toreqprop.solvers import FixedPoint, Solver, Trace, relax
from toreqprop.solvers.base import Dynamics
from toreqprop.training import TrainingConfig, fit
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Figure, Measurements, Series, Table
from toreqprop.verify.networks import Split, load, looped
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

TOL, MAX_STEPS = 1e-10, 400
BETA = CenteredEP().beta
ROUNDING = 1e-11
"""A sum of some hundred energies of size one in float64 is known to about this."""


@dataclass(frozen=True)
class Uphill(Solver):
    """A sabotage: the step is taken backwards."""

    def step(
        self, system: Dynamics, state: State, image: State, memory: None
    ) -> tuple[State, None]:
        return tuple((s - 0.5 * (f - s)).clamp(-0.999, 0.999) for s, f in zip(state, image,
                     strict=True)), None  # fmt: skip


@dataclass(frozen=True)
class Descent:
    """One batch of relaxations: the worst of what their energies did."""

    rise: float
    shortfall: float
    steps: int
    rate: float
    converged: float
    energy: tuple[float, ...]


def run(context: Context) -> Measurements:
    hidden, epochs, samples = context.level.pick((64, 4, 128), (128, 15, 360), (128, 30, 360))
    rows, all_found, curves, relaxations = [], [], [], 0
    for seed in context.seeds:
        context.report(f"seed {seed}")
        data = load(context, "digits", seed)
        for age, spectral_norm in (("inhibitory", True), ("trained", True)):
            if context.sabotaged("spectral norm off"):
                spectral_norm = False
            model = looped(data, hidden, seed, spectral_norm=spectral_norm)
            if age == "trained":
                rate = 0.05 if context.sabotaged("spectral norm off") else 5e-3
                fit(model, data.x, data.y, TrainingConfig(epochs, learning_rate=rate, seed=seed))
            else:  # the hardest case: every neuron inhibits every other, as strongly as allowed
                generator = torch.Generator().manual_seed(seed)
                with torch.no_grad():
                    weight = -torch.rand(hidden, hidden, generator=generator)
                    model.recurrent.weight = weight + weight.mT  # type: ignore[assignment]
            net = model.double()
            factor = net.lipschitz()
            for phase in ("free", "+β", "−β"):
                for damping in (1.0, 0.5):
                    found = _descend(context, net, data, samples, phase, damping)
                    all_found.append(found)
                    relaxations += samples
                    predicted = math.log(TOL) / math.log(min(factor, 0.999999))
                    rows.append(
                        (
                            age, seed, phase, damping, factor, found.rise, found.shortfall,
                            found.rate, found.steps, predicted if damping == 1 else None,
                            100 * found.converged,
                        )
                    )  # fmt: skip
                    if seed == context.seed and damping == 1.0 and phase == "free":
                        curves.append((age, found.energy))
    return Measurements(
        values={
            "relaxations": relaxations,
            "largest_rise": max(f.rise for f in all_found),
            "shortfall": max(f.shortfall for f in all_found),
            "converged": min(f.converged for f in all_found),
            "most_steps": max(f.steps for f in all_found),
            "rate_above_l": max(row[7] - row[4] for row in rows if row[3] == 1.0),
        },
        tables=(
            Table(
                f"{samples} test digits per row, float64, relative residual {TOL:g}; a rise above "
                f"{ROUNDING:g} is uphill, a shortfall is missing descent against "
                "½(1−L)·‖step‖²/damping",
                (
                    Column("Network"),
                    Column("seed", "d"),
                    Column("phase"),
                    Column("damping", "g"),
                    Column("L", ".4f"),
                    Column("largest rise of E", ".1e"),
                    Column("largest shortfall", ".1e"),
                    Column("largest ratio of steps", ".4f"),
                    Column("steps to tolerance", "d"),
                    Column("steps by L alone", ".0f"),
                    Column("converged, %", ".1f"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Mean energy above its final value, free phase",
                "step",
                "E − E(end)",
                tuple(Series(age, tuple(range(len(e))), e) for age, e in curves),
                log_y=True,
            ),
        ),
    )


def _descend(
    context: Context, model: LoopedMLP, data: Split, samples: int, phase: str, damping: float
) -> Descent:
    x, y = data.test_x[:samples].double(), data.test_y[:samples]
    solver: Solver = FixedPoint(damping, tol=TOL, max_steps=MAX_STEPS)
    with torch.no_grad():
        system = System.bind(model.field, x, model.system_parameters())
        start = None
    if phase != "free":
        free = relax(system, FixedPoint(tol=TOL, max_steps=MAX_STEPS))
        hidden = free.state[0].detach().requires_grad_()
        loss = F.cross_entropy(model.readout_from((hidden,)), y)
        direction, _ = normalise(torch.autograd.grad(loss, (hidden,)))
        system = system.nudged(LinearNudge(direction, BETA if phase == "+β" else -BETA))
        start = free.state
    if context.sabotaged("step reversed"):
        solver = Uphill(tol=TOL, max_steps=MAX_STEPS)
    trace = Trace(keep_states=True, keep_energies=True)
    solution = relax(system, solver, start=start, trace=trace)
    energies = torch.stack(trace.energies).detach()
    states = torch.stack([s[0] for s in trace.states])
    falls = energies[:-1] - energies[1:]
    step = torch.stack([sample_norm((d,)) for d in states[1:] - states[:-1]])
    owed = 0.5 * max(0.0, 1 - model.lipschitz()) * step**2 / damping
    return Descent(
        rise=float((-falls).max()),
        shortfall=float((owed - falls).max()),
        steps=solution.steps,
        rate=_rate(step),
        converged=float((solution.residual <= TOL * 1.01).double().mean()),
        energy=tuple(float(e) for e in (energies - energies[-1]).mean(1).clamp_min(1e-16)),
    )


def _rate(steps: torch.Tensor) -> float:
    """The largest ratio of two consecutive steps of a sample, of those above rounding."""
    resolved = steps[:-1] > 1e-8
    return float((steps[1:] / steps[:-1].clamp_min(1e-300))[resolved].max())


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("relaxations", 1000, "relaxations looked at"),
        at_most("largest_rise", ROUNDING, "largest rise of the energy in any step"),
        at_most("shortfall", ROUNDING, "largest shortfall against the certified descent"),
        at_least("converged", 1.0, "share of relaxations that reached the tolerance"),
        at_most("rate_above_l", 1e-6, "largest ratio of two consecutive steps, minus L"),
        at_most("most_steps", MAX_STEPS / 2, "most steps to tolerance", required=False),
    )


TRACK = Track(
    number=29,
    title="Energy Dynamics",
    claim="The energy falls in every step of every relaxation, free or nudged, by at least "
    "½(1−L)·‖step‖², and each step is at most L times the one before.",
    experiment="Record energy and state along relaxations of trained networks and of networks "
    "whose neurons all inhibit each other, in float64, for two dampings and three phases.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("step reversed", "each step goes half as far in the opposite direction"),
        Sabotage("spectral norm off", "no constraint, and a learning rate that needs one"),
    ),
    statements=(
        "In {relaxations} relaxations the largest change of energy upwards in one step was "
        "{largest_rise:.1e}, and {converged:.1%} of them reached the tolerance in at most "
        "{most_steps} steps.",
        "The largest shortfall against the certified descent was {shortfall:.1e}; the "
        "largest ratio of two consecutive undamped steps, minus its L, was {rate_above_l:+.1e}.",
    ),
    cost=15,
)
