"""Every kernel against the reference: each state of each phase, output, energy, each update.

The result is plain data; a report renders it and a test asserts on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from toreqprop.kernels import KERNELS, get_kernel, phases, reference
from toreqprop.kernels.base import Kernel, Limits
from toreqprop.solution import Solution

BOUNDS = {"float32": 1e-5, "float64": 1e-12}
"""Largest accepted deviation: some 100 roundings of a state of size one."""

SHAPES = ((1, 5, 3, 2), (7, 12, 33, 4), (64, 64, 128, 10), (40, 100, 256, 10))
"""(batch, inputs, hidden, outputs): the smallest, an odd one, and two of practical size."""

SEEDS = (0, 1, 2)

FIXED_STEPS = 12
"""Evaluations in the runs without a tolerance: there every state of every sample is compared, until
it is at rest to rounding."""


@dataclass(frozen=True)
class Case:
    """One network, one batch, one way to stop: after a number of steps, or at a tolerance."""

    dtype: str
    shape: tuple[int, int, int, int]
    seed: int
    tol: float
    max_steps: int


PHASES = ("free", "+β", "−β", "oriented")
"""The three of a training step, and a free one whose weight is not symmetric."""


@dataclass
class Path:
    """The states of one relaxation, and whether it converged."""

    states: list[Any]
    converged: bool = False

    def at(self, step: int) -> Any:
        """The state after an evaluation; the last one stands for those that were not needed."""
        return self.states[min(step, len(self.states) - 1)]


@dataclass(frozen=True)
class StepError:
    """The largest deviation of any neuron after one evaluation."""

    phase: str
    step: int
    error: float


@dataclass(frozen=True)
class Comparison:
    """A kernel's deviations from the reference in one case.

    States are compared absolutely (they live in [-1, 1]), ``quantities`` relative to the largest
    entry of the reference. Where one side needs fewer steps than the other to converge, its last
    state stands for the rest, so that this counts by what the further steps change: rounding, if it
    was at rest and rounding decides when that is seen. To stop earlier without having converged is
    an infinite deviation.
    """

    kernel: str
    case: Case
    steps: tuple[StepError, ...]
    quantities: dict[str, float]

    @property
    def maximum(self) -> float:
        return max([s.error for s in self.steps] + list(self.quantities.values()))

    @property
    def bound(self) -> float:
        return BOUNDS[self.case.dtype]

    @property
    def passed(self) -> bool:
        return self.maximum <= self.bound

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **asdict(self),
            "maximum": self.maximum,
            "bound": self.bound,
            "passed": self.passed,
        }


def cases(
    shapes: Iterable[tuple[int, int, int, int]] = SHAPES, seeds: Iterable[int] = SEEDS
) -> list[Case]:
    """Every shape, seed and dtype, once with a fixed number of steps and once to a tolerance."""
    return [
        Case(dtype, shape, seed, tol, steps)
        for dtype in BOUNDS
        for shape in shapes
        for seed in seeds
        for tol, steps in ((1e-300, FIXED_STEPS), (1e-3, 100))
    ]


def compare_all(
    names: Iterable[str] = KERNELS, chosen: Iterable[Case] | None = None
) -> list[Comparison]:
    """Every kernel in every case; Numba is left out where it is not installed."""
    kernels = {kernel.name: kernel for kernel in map(get_kernel, names)}
    todo = cases() if chosen is None else list(chosen)
    # NumPy's and PyTorch's threads would wait for each other at every small product.
    with threadpool_limits(1):
        return [compare(kernel, case) for kernel in kernels.values() for case in todo]


def per_step_table(results: Iterable[Comparison]) -> dict[tuple[str, str], dict[str, float]]:
    """{(kernel, dtype): {"free 1": largest deviation over all cases, ...}}."""
    table: dict[tuple[str, str], dict[str, float]] = {}
    for result in results:
        rows = table.setdefault((result.kernel, result.case.dtype), {})
        for step in result.steps:
            key = f"{step.phase} {step.step}"
            rows[key] = max(rows.get(key, 0.0), step.error)
    return table


def compare(kernel: Kernel, case: Case) -> Comparison:
    """Run one training step's phases and both updates on either side."""
    params, x, target = _draw(case)
    settings = reference.Settings(beta=0.1, tol=case.tol, max_steps=case.max_steps, radius=_RADIUS)
    limits = Limits(case.tol, case.max_steps, _RADIUS)
    ball = reference.spectral_ball(reference.symmetrise(params.weight_raw), _RADIUS)
    drive = x @ params.weight_in.T + params.bias

    wanted = {name: Path([]) for name in PHASES}
    step = reference.training_step(params, x, target, settings)
    free = reference.free_phase(ball.weight, drive, settings, wanted["free"].states)
    wanted["free"].converged = free.converged
    error = reference.cross_entropy(step.output, target)[1]
    cotangent = error @ params.weight_out
    direction, _ = reference.normalise(cotangent)
    pairs: list[tuple[Any, Any]] = []
    nudged = reference.nudged_phases(ball.weight, drive, free, direction, settings, pairs)
    _split(pairs, (nudged.converged, nudged.converged), wanted)
    oriented = reference.relax(
        _oriented(ball.weight), drive, tol=case.tol, max_steps=case.max_steps,
        contraction=_RADIUS, record=wanted["oriented"].states,
    )  # fmt: skip
    wanted["oriented"].converged = oriented.converged

    found = {name: Path([]) for name in PHASES}
    weight, given, inputs = (torch.from_numpy(a) for a in (ball.weight, drive, x))
    settled = phases.free_phase(kernel, weight, given, limits, record=found["free"].states)
    found["free"].converged = settled.converged
    if settled.state is None or settled.product is None:
        raise AssertionError("keep=True returns the last iterate")
    solutions: list[Solution] = []
    mine: list[tuple[Any, Any]] = []
    contrast = phases.nudged_phases(
        kernel, weight, given, (settled.image, settled.state, settled.product),
        torch.from_numpy(cotangent), (0.1, -0.1), limits,
        lambda _, solution: solutions.append(solution), record=mine,
    )  # fmt: skip
    up, down = solutions
    _split(mine, (up.converged, down.converged), found)
    updates = phases.hebbian_updates(
        kernel, contrast, inputs, torch.from_numpy(params.weight_in), (True,) * 4
    )
    turned = kernel.relax(
        torch.from_numpy(_oriented(ball.weight)), given, None, None, limits,
        record=found["oriented"].states,
    )  # fmt: skip
    found["oriented"].converged = turned.converged

    image = settled.image.numpy()
    quantities = {
        "output": (image @ params.weight_out.T + params.bias_out, step.output),
        "energy": (
            reference.energy(ball.weight, drive, image),
            reference.energy(ball.weight, drive, step.free.image),
        ),
        "W_in": (_numpy(updates.weight_in), step.gradients.weight_in),
        "b": (_numpy(updates.bias), step.gradients.bias),
        "W_rec": (
            reference.ball_gradient(_numpy(updates.weight_rec), ball),
            step.gradients.weight_raw,
        ),
        "x": (
            _numpy(updates.x),
            -(0.5 / settings.beta)
            * (reference.normalise(cotangent)[1][:, None] * (step.nudged.up - step.nudged.down))
            @ params.weight_in,
        ),
    }
    errors = {name: _relative(a, b) for name, (a, b) in quantities.items()}
    for sign, sol in zip("+−", solutions, strict=True):
        error = np.abs(_numpy(sol.residual) - step.nudged.residual)
        errors[f"residual at {sign}β"] = float(error.max())
    return Comparison(kernel.name, case, _state_errors(found, wanted), errors)


def _split(
    pairs: list[tuple[Any, Any]], converged: tuple[bool, bool], paths: dict[str, Path]
) -> None:
    """A list of pairs becomes a path for each sign of β."""
    for k, sign in enumerate(("+β", "−β")):
        paths[sign] = Path([pair[k] for pair in pairs], converged[k])


def _state_errors(found: dict[str, Path], wanted: dict[str, Path]) -> tuple[StepError, ...]:
    rows = []
    for phase in PHASES:
        mine, theirs = found[phase], wanted[phase]
        shorter = min(mine, theirs, key=lambda path: len(path.states))
        for step in range(max(len(mine.states), len(theirs.states))):
            difference = np.abs(np.asarray(mine.at(step)) - theirs.at(step)).max()
            missing = step >= len(shorter.states) and not shorter.converged
            rows.append(StepError(phase, step + 1, np.inf if missing else float(difference)))
    return tuple(rows)


def _draw(case: Case) -> tuple[reference.Parameters, np.ndarray, np.ndarray]:
    batch, inputs, hidden, outputs = case.shape
    rng = np.random.default_rng(case.seed)
    params = reference.initial_parameters(inputs, hidden, outputs, rng)
    # A recurrence strong enough for the bound to be active and the relaxation to take its time.
    params = params._replace(weight_raw=20 * params.weight_raw)
    x = rng.standard_normal((batch, inputs))
    target = rng.integers(0, outputs, batch)
    cast = (p.astype(case.dtype) for p in params)
    return reference.Parameters(*cast), x.astype(case.dtype), target


def _oriented(weight: np.ndarray) -> np.ndarray:
    """Not symmetric, so that a product with the transpose would show; norm at most the same."""
    rotation = np.roll(np.eye(len(weight), dtype=weight.dtype), 1, 0)
    return np.ascontiguousarray(weight @ rotation)


def _relative(found: np.ndarray, wanted: np.ndarray) -> float:
    size = float(np.abs(wanted).max())
    return float(np.abs(found - wanted).max()) / (size if size > 0 else 1.0)


def _numpy(tensor: Tensor | None) -> np.ndarray:
    if tensor is None:
        raise AssertionError("asked for")
    return tensor.numpy()


_RADIUS = 0.9
