"""The certificate of a chip: what of its gradient is wrong on average, and what is only noisy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from toreqprop.certificate import CERTIFIERS, Certificate, TensorCertificate
from toreqprop.energies.devices import Device
from toreqprop.hardware.budget import MOST_NOISE
from toreqprop.hardware.limits import (
    Gradient,
    Limit,
    Loss,
    check_chip,
    exact_gradient,
    flat,
    gradient,
)
from toreqprop.models import OnChip
from toreqprop.private_generator import noise_from

DRAWS = 40
"""Gradients that are averaged; the intervals say whether they were enough."""

TRIALS = 8
"""Gradients on a chip without one of its faults."""


@dataclass(frozen=True)
class TensorOnChip(TensorCertificate):
    """One parameter tensor: the expected gradient against the exact one, with 95 % intervals.

    ``snr`` is the size of the exact gradient over that of one measurement's noise.
    """

    cosine_low: float = 1.0
    cosine_high: float = 1.0
    ratio_low: float = 1.0
    ratio_high: float = 1.0
    snr: float = math.inf


@dataclass(frozen=True)
class ChipCertificate(Certificate):
    """What `certify` measured of a chip whose phases are noisy, coarse or differ.

    The exact gradient is that of the physical network: with the chip's weights, gains and offsets,
    without noise, converters and differences between phases. ``bias`` is how far the expected
    gradient is from it and ``noise`` the rms of one measurement about its mean, both relative to
    its size; ``without`` is the larger of the two (noise: the total error) on the same chip without
    one kind of fault, ``limit`` the kind whose absence helps most, None where nothing is wrong.
    """

    bias: float = 0.0
    noise: float = 0.0
    limit: Limit | None = None
    without: tuple[tuple[Limit, float], ...] = ()
    draws: int = DRAWS

    @property
    def error(self) -> float:
        """Relative rms error of one gradient."""
        return math.hypot(self.bias, self.noise)

    @property
    def verdict(self) -> str:
        """One sentence."""
        sizes = f"bias {self.bias:.2g}, noise {self.noise:.2g} of the exact gradient"
        if self.ok:
            return f"PASS: on average {self.estimator} on this chip agrees ({sizes})."
        reason = "more draws are needed" if self.limit is None else self.limit.value
        return f"FAIL: the gradient on this chip is limited by {reason} ({sizes})."

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **super().as_dict(),
            "limit": None if self.limit is None else self.limit.name,
            "without": {limit.name: error for limit, error in self.without},
            "error": self.error,
        }

    __str__ = Certificate.__str__


def certify_chip(
    model: OnChip, x: Tensor, y: Tensor, loss: Loss, min_cosine: float, max_norm_error: float
) -> ChipCertificate | None:
    """The certificate of a chip that has to be measured more than once; None for the others.

    Noise comes from a generator of its own: the same chip, batch and weights give the same
    certificate.
    """
    if model.still:
        return None
    check_chip(model, x, y, loss)
    with noise_from(torch.Generator().manual_seed(0)):
        exact = exact_gradient(model, x, y, loss)
        drawn = _draws(model, x, y, loss, DRAWS)
        tensors = tuple(
            _tensor(name, torch.stack([d[name].flatten() for d in drawn]), exact[name].flatten())
            for name in exact
        )
        tensors = tuple(
            replace(
                t,
                ok=t.cosine_low >= min_cosine
                and t.ratio_low >= 1 - max_norm_error
                and t.ratio_high <= 1 + max_norm_error,
            )
            for t in tensors
        )
        rows, goal = torch.stack([flat(d) for d in drawn]), flat(exact)
        bias, noise = _parts(rows, goal)
        ok = all(t.ok for t in tensors) and noise <= MOST_NOISE
        parts = [] if ok else _ablations(model, x, y, loss)
    # Of a bias, what removes bias; of noise, what leaves the smallest error.
    biased = bias > noise
    size = bias if biased else math.hypot(bias, noise)
    without = tuple((limit, b if biased else math.hypot(b, n)) for limit, b, n in parts)
    best = min(without, key=lambda pair: pair[1], default=None)
    limit = best[0] if best is not None and best[1] < size else None
    return ChipCertificate(
        repr(model.gradient), ok, (), tensors, (), 0.0, 0.0, None,
        bias=bias, noise=noise, limit=limit, without=without,
    )  # fmt: skip


def _draws(model: OnChip, x: Tensor, y: Tensor, loss: Loss, count: int) -> list[Gradient]:
    return [gradient(model, x, y, loss) for _ in range(count)]


def _parts(rows: Tensor, goal: Tensor) -> tuple[float, float]:
    """Relative bias (without what noise adds to the distance of a mean) and noise."""
    size, count = float(goal.norm()), len(rows)
    variance = float(rows.var(0).sum())
    distance = float((rows.mean(0) - goal).square().sum()) - variance / count
    return math.sqrt(max(0.0, distance)) / size, math.sqrt(variance) / size


def _tensor(name: str, rows: Tensor, goal: Tensor) -> TensorOnChip:
    count, size = len(rows), float(goal.norm())
    variance = float(rows.var(0).sum())
    if size == 0:
        return TensorOnChip(name, 1.0, 1.0, True)
    cosine, ratio = _direction(rows.mean(0), goal, variance / count)
    left = (rows.sum(0) - rows) / (count - 1)
    trials = [_direction(row, goal, variance / (count - 1)) for row in left]
    spans = []
    for k in (0, 1):
        values = torch.tensor([t[k] for t in trials], dtype=torch.float64)
        # Jackknife: the spread of means without one draw each, times (n − 1)/√n.
        spans.append(1.96 * float(values.std()) * (count - 1) / math.sqrt(count))
    snr = math.inf if variance == 0 else size / math.sqrt(variance)
    return TensorOnChip(
        name, cosine, ratio, True, cosine - spans[0], min(1.0, cosine + spans[0]),
        ratio - spans[1], ratio + spans[1], snr,
    )  # fmt: skip


def _direction(mean: Tensor, goal: Tensor, added: float) -> tuple[float, float]:
    """Cosine and norm ratio of an expected gradient; ``added`` is what noise adds to its square."""
    along = float(mean @ goal) / float(goal.norm())
    size = math.sqrt(max(float(mean.square().sum()) - added, along * along, 1e-300))
    return along / size, size / float(goal.norm())


def _ablations(model: OnChip, x: Tensor, y: Tensor, loss: Loss) -> list[tuple[Limit, float, float]]:
    """Bias and noise without each kind of fault that the chip has."""
    device, found = model.device, []
    beta = getattr(model.gradient, "beta", None)
    for limit, other in _repaired(device):
        chip = _like(model, other)
        found.append((limit, *_errors(chip, x, y, loss)))
    if beta is not None:
        chip = _like(model, device)
        chip.gradient = chip.gradient.softer(4)
        found.append((Limit.BETA, *_errors(chip, x, y, loss)))
    return found


def _repaired(device: Device) -> list[tuple[Limit, Device]]:
    """The device without each of its faults, its phases as short as they are: where nothing in
    them moved any more they would be run to their end, and two faults be gone."""
    short = device.settle if device.settle_free is None else device.settle_free
    device, found = replace(device, settle_free=short), []
    if device.read_noise or device.thermal_noise:
        found.append((Limit.NOISE, replace(device, read_noise=0.0, thermal_noise=0.0)))
    if device.states is not None:
        found.append((Limit.RESOLUTION, replace(device, states=None)))
    if device.phase_offset or device.drift:
        found.append((Limit.PHASE_OFFSET, replace(device, phase_offset=0.0, drift=0.0)))
    if device.up_down:
        found.append((Limit.ASYMMETRY, replace(device, up_down=0.0)))
    longer = replace(device, settle=4 * device.settle, settle_free=None)
    return [*found, (Limit.SETTLING, longer)]


def _like(model: OnChip, device: Device) -> OnChip:
    chip = OnChip(device, model.network)
    chip.gradient, chip.on_failure = model.gradient, "ignore"
    return chip.train(model.training)


def _errors(chip: OnChip, x: Tensor, y: Tensor, loss: Loss) -> tuple[float, float]:
    rows = torch.stack([flat(d) for d in _draws(chip, x, y, loss, TRIALS)])
    return _parts(rows, flat(exact_gradient(chip, x, y, loss)))


CERTIFIERS[OnChip] = certify_chip
