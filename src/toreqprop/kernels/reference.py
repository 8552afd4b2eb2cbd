"""The specification, in NumPy alone: how a looped MLP relaxes, is nudged, and learns.

Every faster path in this package is held against these functions, step by step. The model is

    h = tanh(x W_inᵀ + b + h W),   W = ball(½(A + Aᵀ)),   y = h W_outᵀ + c

with the raw recurrent matrix A, and ``ball`` scaling W into a spectral norm of at most ``radius``.
Its energy is ``E = Σ G(h) − h·drive − ½ h·W h`` with ``G' = atanh``.

It is one file on purpose: it can be read from top to bottom, and it trains on its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Array = np.ndarray

ACTIVITY_FLOOR = 1e-3
"""Residuals are relative to ``‖f(h)‖``, but never to less than this activity per neuron."""

ROUNDING_FLOOR = 4.0
"""No residual below this many units of rounding of ``‖f(h)‖`` is asked for."""


NUDGE_SLACK = 10.0
"""A nudged phase is solved to ``tol`` of its activity, and what the nudge moved to this many
``tol`` of itself: at the default 1e-3, its share of the gradient is right to one per cent."""


DRIFT = 0.9
"""The center of two nudged states moves on when its share of their residual is more than this
part of what is allowed; less than one, so that what is left for their difference is not zero."""


LARGEST_PUSH = 4.0
"""No neuron is pushed by more than this many β, however concentrated the cotangent is."""


class Parameters(NamedTuple):
    """W_in (hidden, inputs), b, A (hidden, hidden), W_out (outputs, hidden), c."""

    weight_in: Array
    bias: Array
    weight_raw: Array
    weight_out: Array
    bias_out: Array


class Settings(NamedTuple):
    """β of the centred contrast, when to stop, and the bound on ``‖W‖₂``."""

    beta: float = 0.05
    tol: float = 1e-3
    max_steps: int = 100
    radius: float = 0.3


class Relaxed(NamedTuple):
    """Where a relaxation ended: ``image = f(state)`` is the result, ``product = state·W``."""

    image: Array
    state: Array
    product: Array
    residual: Array
    steps: int
    converged: bool
    finite: bool


class Pair(NamedTuple):
    """Where two phases under opposite nudges ended: at ``center ± shift``."""

    center: Array
    shift: Array
    residual: Array
    steps: int
    converged: bool
    finite: bool


class Step(NamedTuple):
    """What one training step computed: output, loss, the three equilibria, the gradients."""

    output: Array
    loss: float
    free: Relaxed
    nudged: Pair
    gradients: Parameters


def relax(
    weight: Array,
    drive: Array,
    state: Array | None = None,
    *,
    tol: float,
    max_steps: int,
    contraction: float | None = None,
    record: list[Array] | None = None,
) -> Relaxed:
    """``h ← tanh(drive + h·W)`` until each sample's residual is below ``tol``.

    The image of a sample that has converged is final. Its residual is
    ``‖f(f(h)) − f(h)‖ ≤ L·‖f(h) − h‖`` with the contraction factor L (one where none is known),
    relative to the activity ``‖f(h)‖``.
    """
    state = np.tanh(drive) if state is None else state
    product = state @ weight
    hidden, eps = state.shape[1], np.finfo(state.dtype).eps
    factor = 1.0 if contraction is None else contraction
    done = np.zeros(len(state), bool)
    image, residual = np.zeros_like(state), np.zeros(len(state))
    for steps in range(1, max_steps + 1):
        active = ~done
        new = np.tanh(drive + product)
        image[active] = new[active]
        gap, size = norm(new - state), norm(new)
        relative = factor * gap / np.maximum(size, ACTIVITY_FLOOR * hidden**0.5)
        relative = np.where(gap <= ROUNDING_FLOOR * eps * size, 0.0, relative)
        residual = np.where(active, relative, residual)
        if record is not None:
            record.append(image.copy())
        done |= residual <= tol
        finite = bool(np.isfinite(gap[active]).all())
        if done.all() or not finite or steps == max_steps:
            break
        state = np.where(done[:, None], state, image)
        product = np.where(done[:, None], product, state @ weight)
    return Relaxed(image, state, product, residual, steps, bool(done.all()), finite)


def free_phase(
    weight: Array,
    drive: Array,
    settings: Settings,
    record: list[Array] | None = None,
) -> Relaxed:
    """The free equilibrium, relaxed from ``tanh(drive)``."""
    return relax(
        weight, drive, tol=settings.tol, max_steps=settings.max_steps,
        contraction=settings.radius, record=record,
    )  # fmt: skip


def tanh_pair(center: Array, shift: Array) -> tuple[Array, Array]:
    """Mean and half the difference of ``tanh(center ± shift)``, without cancellation.

    With ``s = tanh c`` and ``t = tanh d``: ``s(1 − t²)/(1 − s²t²)`` and ``t(1 − s²)/(1 − s²t²)``.
    """
    s, t = np.tanh(center), np.tanh(shift)
    edge = 1 - np.finfo(t.dtype).eps  # a saturated shift on a saturated center: not 0/0
    t = np.clip(t, -edge, edge)
    whole = 1 - (s * s) * (t * t)
    return s * (1 - t * t) / whole, t * (1 - s * s) / whole


def relax_pair(
    weight: Array,
    drive: Array,
    push: Array,
    state: Array,
    product: Array,
    *,
    tol: float,
    max_steps: int,
    contraction: float | None = None,
    record: list[tuple[Array, Array]] | None = None,
) -> Pair:
    """Both equilibria of ``h = tanh(drive ∓ push + h·W)``, relaxed together as center ± shift.

    A product is linear, so ``center·W`` and ``shift·W`` give both images, and `tanh_pair` keeps the
    digits of a shift however small. The center hardly moves from the free equilibrium (to first
    order in β it does not move), so a step mostly costs the one product with the shift. A sample
    is done when the center's residual is below ``tol`` of its activity and that of the shift below
    ``NUDGE_SLACK·tol`` of the shift.
    """
    hidden, eps = state.shape[1], np.finfo(state.dtype).eps
    factor = 1.0 if contraction is None else contraction
    center, shift, moved = state, np.zeros_like(state), np.zeros_like(state)
    middle, half = np.zeros_like(state), np.zeros_like(state)
    residual, drifted = np.zeros(len(state)), np.zeros(len(state))
    done = np.zeros(len(state), bool)
    for steps in range(1, max_steps + 1):
        active = ~done
        mean, difference = tanh_pair(drive + product, moved - push)
        middle[active], half[active] = mean[active], difference[active]
        turn, drift, reach, size = (norm(a) for a in (half - shift, middle - center, half, middle))
        exact = ROUNDING_FLOOR * eps
        scale = np.maximum(size, ACTIVITY_FLOOR * hidden**0.5)
        even = np.where(drift <= exact * size, 0.0, factor * drift / scale)
        unit = NUDGE_SLACK * np.where(reach > 0, reach, 1)
        odd = np.where(turn <= exact * reach, 0.0, factor * turn / unit)
        residual = np.where(active, np.maximum(even, odd), residual)
        drifted = np.where(active, even, drifted)
        if record is not None:
            record.append((middle.copy(), half.copy()))
        done |= residual <= tol
        finite = bool(np.isfinite(turn[active] + drift[active]).all())
        if done.all() or not finite or steps == max_steps:
            break
        shift = np.where(done[:, None], shift, half)
        moved = np.where(done[:, None], moved, shift @ weight)
        recentred = ((drifted > DRIFT * tol) & ~done)[:, None]
        center = np.where(recentred, middle, center)
        product = np.where(recentred, center @ weight, product)
    return Pair(middle, half, residual, steps, bool(done.all()), finite)


def nudged_phases(
    weight: Array,
    drive: Array,
    free: Relaxed,
    direction: Array,
    settings: Settings,
    record: list[tuple[Array, Array]] | None = None,
) -> Pair:
    """The equilibria at +β and −β: ``h = tanh(drive ∓ β·direction + h·W)``."""
    return relax_pair(
        weight, drive, settings.beta * direction, free.state, free.product,
        tol=settings.tol, max_steps=settings.max_steps, contraction=settings.radius, record=record,
    )  # fmt: skip


def normalise(cotangent: Array) -> tuple[Array, Array]:
    """Split a cotangent into a direction of RMS one per sample, and its size (batch,).

    Where one neuron would be pushed by more than `LARGEST_PUSH`, the direction is that much
    shorter: a nudge of β is then β times that at most, for any neuron. The largest entry is divided
    out first, so that squares of tiny or huge cotangents do not leave the range of floats.
    """
    peak = np.abs(cotangent).max(1)
    unit = cotangent / np.where(peak > 0, peak, 1)[:, None]
    size = np.maximum(np.sqrt((unit * unit).mean(1)), 1 / LARGEST_PUSH)
    return unit / size[:, None], peak * size


def symmetrise(matrix: Array) -> Array:
    """``½(M + Mᵀ)``."""
    return 0.5 * (matrix + matrix.T)


def energy(weight: Array, drive: Array, state: Array) -> Array:
    """``E(h)`` of each sample, with ``G(h) = ½[(1+h)log(1+h) + (1−h)log(1−h)]``."""
    up, down = np.maximum(1 + state, 1e-300), np.maximum(1 - state, 1e-300)
    potential = 0.5 * (up * np.log(up) + down * np.log(down))
    return (potential - state * drive - 0.5 * state * (state @ weight)).sum(1)


LARGEST_ENTRY = 1e18


class Ball(NamedTuple):
    """``weight = factor·S`` inside the ball, and ``slope = ∂ log ν/∂S`` (None where ν ≤ radius)."""

    weight: Array
    factor: float
    slope: Array | None


def spectral_ball(weight: Array, radius: float) -> Ball:
    """``S·min(1, radius/ν)`` with ``ν = max_i (|S|d)_i/d_i ≥ ‖S‖₂`` for any d > 0, S symmetric.

    d comes from two products with |S| (Perron-Frobenius, Collatz-Wielandt); the slope follows d.
    """
    size = np.abs(weight)
    if size.max() > LARGEST_ENTRY:  # sums of such entries would leave the range of floats
        inner = spectral_ball(weight / size.max(), radius)
        slope = None if inner.slope is None else inner.slope / size.max()
        return Ball(inner.weight, inner.factor / float(size.max()), slope)
    vectors, sums = [np.ones(len(weight), weight.dtype)], []
    for _ in range(2):
        sums.append(size @ vectors[-1])
        largest = max(sums[-1].max(), np.finfo(weight.dtype).tiny)
        vectors.append(sums[-1] / largest + weight.dtype.type(1e-6))
    ratio = (size @ vectors[-1]) / vectors[-1]
    row = int(ratio.argmax())
    bound = ratio[row]
    if not bound > radius:
        return Ball(weight, 1.0, None)
    last = vectors.pop()
    slope = np.zeros_like(weight)
    slope[row] = last / last[row]
    adjoint = size[row] / last[row]
    adjoint[row] -= bound / last[row]
    while sums:
        total, before = sums.pop(), vectors.pop()
        peak = int(total.argmax())
        back = adjoint / total[peak]
        back[peak] -= (adjoint * total).sum() / total[peak] ** 2
        slope += np.outer(back, before)
        adjoint = size @ back
    factor = radius / bound
    return Ball(weight * factor, factor, slope * np.sign(weight) / bound)


def ball_gradient(gradient: Array, ball: Ball) -> Array:
    """The gradient of A from that of ``W = ball(½(A + Aᵀ))``."""
    if ball.slope is not None:
        gradient = ball.factor * gradient - np.vdot(gradient, ball.weight) * ball.slope
    return symmetrise(gradient)


def training_step(params: Parameters, x: Array, target: Array, settings: Settings) -> Step:
    """Free phase, cross-entropy, both nudged phases, gradients; the weights are left alone."""
    ball = spectral_ball(symmetrise(params.weight_raw), settings.radius)
    drive = x @ params.weight_in.T + params.bias
    free = free_phase(ball.weight, drive, settings)
    output = free.image @ params.weight_out.T + params.bias_out
    loss, error = cross_entropy(output, target)
    direction, scale = normalise(error @ params.weight_out)
    nudged = nudged_phases(ball.weight, drive, free, direction, settings)
    delta = -(scale / settings.beta)[:, None] * nudged.shift
    # w(h₊h₊ᵀ − h₋h₋ᵀ)/2 is the symmetric part of 2w·shift·centerᵀ, which `ball_gradient` takes.
    recurrent = ball_gradient(delta.T @ nudged.center, ball)
    gradients = Parameters(delta.T @ x, delta.sum(0), recurrent, error.T @ free.image, error.sum(0))
    return Step(output, loss, free, nudged, gradients)


def cross_entropy(output: Array, target: Array) -> tuple[float, Array]:
    """The batch mean and its gradient with respect to the output."""
    shifted = output - output.max(1, keepdims=True)
    probability = np.exp(shifted)
    probability /= probability.sum(1, keepdims=True)
    rows = np.arange(len(target))
    loss = float(-np.log(np.maximum(probability[rows, target], 1e-30)).mean())
    probability[rows, target] -= 1
    return loss, probability / len(target)


def predict(params: Parameters, x: Array, settings: Settings) -> Array:
    """The class of each sample."""
    ball = spectral_ball(symmetrise(params.weight_raw), settings.radius)
    free = free_phase(ball.weight, x @ params.weight_in.T + params.bias, settings)
    return (free.image @ params.weight_out.T + params.bias_out).argmax(1)


def initial_parameters(
    inputs: int, hidden: int, outputs: int, rng: np.random.Generator
) -> Parameters:
    """The ranges of ``torch.nn.Linear``, and a recurrence that starts weak."""

    def uniform(fan_in: int, *shape: int) -> Array:
        return rng.uniform(-(fan_in**-0.5), fan_in**-0.5, shape).astype(np.float32)

    recurrent = (0.1 / hidden**0.5) * rng.standard_normal((hidden, hidden))
    return Parameters(
        uniform(inputs, hidden, inputs), uniform(inputs, hidden), recurrent.astype(np.float32),
        uniform(hidden, outputs, hidden), uniform(hidden, outputs),
    )  # fmt: skip


@dataclass(frozen=True)
class Schedule:
    """Plain gradient descent: the rate falls to zero along half a cosine; no momentum."""

    epochs: int = 40
    batch: int = 32
    rate: float = 0.3
    seed: int = 42


class Epoch(NamedTuple):
    """One pass over the training data: its number, mean loss, and the parameters after it."""

    number: int
    loss: float
    params: Parameters


def train(
    x: Array,
    target: Array,
    *,
    hidden: int = 128,
    settings: Settings | None = None,
    schedule: Schedule | None = None,
) -> Iterator[Epoch]:
    """Train a classifier by equilibrium propagation with NumPy alone; yields after every epoch.

    Args:
        x: (samples, inputs), converted to float32.
        target: (samples,) integer classes.
    """
    settings = Settings() if settings is None else settings
    schedule = Schedule() if schedule is None else schedule
    x, target = np.ascontiguousarray(x, np.float32), np.asarray(target)
    rng = np.random.default_rng(schedule.seed)
    params = initial_parameters(x.shape[1], hidden, int(target.max()) + 1, rng)
    for number in range(1, schedule.epochs + 1):
        order = rng.permutation(len(x))
        losses = []
        for at in range(0, len(x), schedule.batch):
            progress = (number - 1 + at / len(x)) / schedule.epochs
            rate = np.float32(schedule.rate * 0.5 * (1 + np.cos(np.pi * progress)))
            rows = order[at : at + schedule.batch]
            step = training_step(params, x[rows], target[rows], settings)
            losses.append(step.loss)
            params = Parameters(
                *(p - rate * g for p, g in zip(params, step.gradients, strict=True))
            )
        yield Epoch(number, float(np.mean(losses)), params)


def norm(rows: Array) -> Array:
    """Euclidean norm of each row."""
    return np.sqrt((rows * rows).sum(1))
