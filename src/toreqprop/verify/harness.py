"""Every kernel against the reference: each state of each phase, output, energy, each update.

The result is plain data; a report renders it and a test asserts on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from toreqprop.energies import DenseEnergy, LinearNudge, Opposed, PairSystem, System
from toreqprop.gradients.base import as_pairs, normalise
from toreqprop.kernels import KERNELS, Kernel, get_kernel, reference
from toreqprop.solution import Solution
from toreqprop.solvers import FixedPoint, Trace, solve

BOUNDS = {"float32": 1e-5, "float64": 1e-12}
"""Largest accepted deviation: some 100 roundings of a state of size one."""

SHAPES = ((1, 5, 3, 2), (7, 12, 33, 4), (64, 64, 128, 10), (40, 100, 256, 10))
"""(batch, inputs, hidden, outputs): the smallest, an odd one, and two of practical size."""

SEEDS = (0, 1, 2)

FIXED_STEPS = 30
"""Evaluations in the runs without a tolerance: there every state of every sample is compared. The
recurrence is as strong as its radius, so that no state is at rest by then."""

TOLERANCES = tuple(1e-2 * (1 - 0.03 * k) for k in range(20))
"""For the runs that stop by themselves: the first at which no residual is within rounding of it.
Where one is, two right paths may stop a step apart and differ by a whole step."""


@dataclass(frozen=True)
class Case:
    """One network, one batch, one way to stop: after a number of steps, or at a tolerance."""

    dtype: str
    shape: tuple[int, int, int, int]
    seed: int
    tol: float
    max_steps: int


PHASES = ("free", "center", "shift", "oriented")
"""Those of a training step, and a free one whose weight is not symmetric."""


class GeneralPath(Kernel):
    """The path that serves every system, behind the interface of a kernel."""

    name: ClassVar[str] = "torch"

    def relax(
        self,
        weight: Tensor,
        drive: Tensor,
        start: Tensor | None,
        *,
        tol: float,
        max_steps: int,
        contraction: float | None,
        record: list[tuple[Tensor, ...]] | None = None,
    ) -> Solution:
        system = _bound(weight, drive, contraction)
        begin = system.initial_state() if start is None else (start,)
        trace = Trace(keep_states=True)
        found = solve(system, begin, FixedPoint(tol=tol, max_steps=max_steps), trace=trace)
        if record is not None:
            record.extend(trace.images)
        last = trace.states[-1][0]
        return replace(found, memory=(last, last @ weight))

    def relax_pair(
        self,
        weight: Tensor,
        drive: Tensor,
        push: Tensor,
        memory: tuple[Tensor, Tensor],
        *,
        tol: float,
        max_steps: int,
        contraction: float | None,
        strength: float = 1.0,
        image: Tensor | None = None,
        record: list[tuple[Tensor, ...]] | None = None,
    ) -> Solution:
        system = _bound(weight, drive, contraction)
        nudge = Opposed(LinearNudge((push,), strength), LinearNudge((push,), -strength))
        both = PairSystem(system, nudge)
        trace, solver = Trace(keep_states=True), FixedPoint(tol=tol, max_steps=max_steps)
        found = solve(both, both.start(memory[:1]), solver, trace=trace)
        if record is not None:
            record.extend(trace.images)
        return replace(found, state=found.state[:1], shift=found.state[1:])


def _bound(weight: Tensor, drive: Tensor, contraction: float | None) -> System:
    empty = drive.new_zeros(drive.shape[1], 0)
    params = (empty, drive.new_zeros(drive.shape[1]), weight)
    x = drive.new_zeros(len(drive), 0)
    return System(DenseEnergy(), x, params, (drive,), contraction=contraction)


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
        for tol, steps in ((1e-300, FIXED_STEPS), (TOLERANCES[0], 400))
    ]


def compare_all(
    names: Iterable[str] = KERNELS, chosen: Iterable[Case] | None = None
) -> list[Comparison]:
    """Every kernel in every case; Numba is left out where it is not installed."""
    found = [get_kernel(name) or GeneralPath() for name in names]
    kernels = {kernel.name: kernel for kernel in found}
    todo = [decided(case) for case in (cases() if chosen is None else chosen)]
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


@cache
def decided(case: Case) -> Case:
    """The case with the first of `TOLERANCES` at which rounding decides no sample's last step.

    The reference relaxes with tolerances some roundings above and below: where all its steps are
    the same, no residual lies between.
    """
    if case.tol < min(TOLERANCES):
        return case
    params, x, target = _draw(case)
    slack = 16 * float(np.finfo(case.dtype).eps)  # of a difference of numbers of size one
    weight = reference.spectral_ball(reference.symmetrise(params.weight_raw), _RADIUS).weight
    drive = x @ params.weight_in.T + params.bias

    def ends(tol: float) -> list[np.ndarray]:
        settings = reference.Settings(0.1, tol, case.max_steps, _RADIUS)
        step = reference.training_step(params, x, target, settings)
        turned = reference.relax(
            _oriented(weight), drive, tol=tol, max_steps=case.max_steps, contraction=_RADIUS
        )
        return [step.free.image, step.nudged.shift, step.nudged.center, turned.image]

    for tol in TOLERANCES:
        above, below = ends(tol + slack), ends(tol - slack)
        if all(np.array_equal(a, b) for a, b in zip(above, below, strict=True)):
            return replace(case, tol=tol)
    raise AssertionError("rounding decides at every tolerance: give another seed")


def compare(kernel: Kernel, case: Case) -> Comparison:
    """Run one training step's phases and its updates on either side."""
    params, x, target = _draw(case)
    settings = reference.Settings(beta=0.1, tol=case.tol, max_steps=case.max_steps, radius=_RADIUS)
    limits = {"tol": case.tol, "max_steps": case.max_steps, "contraction": _RADIUS}
    ball = reference.spectral_ball(reference.symmetrise(params.weight_raw), _RADIUS)
    drive = x @ params.weight_in.T + params.bias

    wanted = {name: Path([]) for name in PHASES}
    step = reference.training_step(params, x, target, settings)
    free = reference.free_phase(ball.weight, drive, settings, wanted["free"].states)
    wanted["free"].converged = free.converged
    cotangent = reference.cross_entropy(step.output, target)[1] @ params.weight_out
    direction, _ = reference.normalise(cotangent)
    pairs: list[tuple[Any, ...]] = []
    nudged = reference.nudged_phases(ball.weight, drive, free, direction, settings, pairs)  # type: ignore[arg-type]
    _split(pairs, nudged.converged, wanted)
    oriented = reference.relax(
        _oriented(ball.weight),
        drive,
        record=wanted["oriented"].states,
        **limits,  # type: ignore[arg-type]
    )
    wanted["oriented"].converged = oriented.converged

    found = {name: Path([]) for name in PHASES}
    weight, given, inputs = (torch.from_numpy(a) for a in (ball.weight, drive, x))
    images: list[tuple[Tensor, ...]] = []
    settled = kernel.relax(weight, given, None, record=images, **limits)  # type: ignore[arg-type]
    found["free"] = Path([i[0] for i in images], settled.converged)
    (teaching,), scale = normalise((torch.from_numpy(cotangent),))
    images = []
    last, product = settled.memory
    pair = kernel.relax_pair(
        weight,
        given,
        settings.beta * teaching,
        (last, product),
        record=images,
        **limits,  # type: ignore[arg-type]
    )
    _split(images, pair.converged, found)
    trained = (torch.from_numpy(params.weight_in), torch.from_numpy(params.bias), weight)
    updates = DenseEnergy().energy_gradients(
        as_pairs(pair), scale / settings.beta, inputs, trained, (True,) * 4
    )
    images = []
    turned = kernel.relax(
        torch.from_numpy(_oriented(ball.weight)),
        given,
        None,
        record=images,
        **limits,  # type: ignore[arg-type]
    )
    found["oriented"] = Path([i[0] for i in images], turned.converged)

    image = settled.state[0].numpy()
    delta = -(scale.numpy() / settings.beta)[:, None] * step.nudged.shift
    quantities = {
        "output": (image @ params.weight_out.T + params.bias_out, step.output),
        "energy": (
            _energy(ball.weight, drive, image),
            _energy(ball.weight, drive, step.free.image),
        ),
        "W_in": (_numpy(updates[1]), step.gradients.weight_in),
        "b": (_numpy(updates[2]), step.gradients.bias),
        "W_rec": (
            reference.ball_gradient(_numpy(updates[3]), ball),
            step.gradients.weight_raw,
        ),
        "x": (_numpy(updates[0]), delta @ params.weight_in),
    }
    errors = {name: _relative(a, b) for name, (a, b) in quantities.items()}
    errors["residual"] = float(np.abs(_numpy(pair.residual) - step.nudged.residual).max())
    return Comparison(kernel.name, case, _state_errors(found, wanted), errors)


def _split(pairs: list[tuple[Any, ...]], converged: bool, paths: dict[str, Path]) -> None:
    """A list of pairs becomes a path for the center and one for the shift."""
    for k, part in enumerate(("center", "shift")):
        paths[part] = Path([pair[k] for pair in pairs], converged)


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
    # Weights that do not cancel, up to signs of neurons: the bound is then the norm itself, and the
    # relaxation takes its time. A weak drive keeps neurons where they are steep.
    signs = np.where(rng.random(hidden) < 0.5, -1.0, 1.0)
    loop = 20 * np.abs(params.weight_raw) * np.outer(signs, signs)
    params = params._replace(weight_raw=loop, bias=0.1 * params.bias)
    x = 0.1 * rng.standard_normal((batch, inputs))
    target = rng.integers(0, outputs, batch)
    cast = (p.astype(case.dtype) for p in params)
    return reference.Parameters(*cast), x.astype(case.dtype), target


def _oriented(weight: np.ndarray) -> np.ndarray:
    """Not symmetric, so that a product with the transpose would show; as strong as it was."""
    rotation = np.roll(np.eye(len(weight), dtype=weight.dtype), 1, 0)
    signs = np.sign(weight[0])  # weights cancel nowhere but for the signs of neurons: `_draw`
    return np.ascontiguousarray(np.outer(signs, signs) * (np.abs(weight) @ rotation))


def _energy(*given: np.ndarray) -> np.ndarray:
    """In float64: it is small against its terms, and the states are what is compared."""
    return reference.energy(*(a.astype(np.float64) for a in given))


def _relative(found: np.ndarray, wanted: np.ndarray) -> float:
    size = float(np.abs(wanted).max())
    return float(np.abs(found - wanted).max()) / (size if size > 0 else 1.0)


def _numpy(tensor: Tensor | None) -> np.ndarray:
    if tensor is None:
        raise AssertionError("asked for")
    return tensor.numpy()


_RADIUS = 0.9
