"""What limits a gradient on a chip, and the gradients that are compared to find out."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.certificate import check_problem
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import GradientEstimator, ImplicitGradient
from toreqprop.models import OnChip
from toreqprop.models.base import unchanged_buffers
from toreqprop.private_generator import noise_from
from toreqprop.solvers import Anderson

Loss = Callable[[Tensor, Tensor], Tensor]
Gradient = dict[str, Tensor]
"""By the name of a parameter, in double precision."""


STRONGER = ", or use a stronger nudge"
"""Advice for any nudge but the best one."""


class Limit(Enum):
    """What spoils a chip's gradient most; the value is the sentence a user reads."""

    NOISE = f"noise: average more readings{STRONGER}"
    RESOLUTION = f"the converters' resolution: use more bits{STRONGER}"
    PHASE_OFFSET = f"what changes between the phases: use CenteredEP(swap=True){STRONGER}"
    ASYMMETRY = "weights that differ between the way up and the way down: match them"
    SETTLING = "phases that are read before they have settled: give them more time"
    BETA = "the nudge's own strength: use a weaker one"

    @property
    def at_the_best_nudge(self) -> str:
        """The same where no other nudge is better: what is left to do."""
        cause = self.value.removesuffix(STRONGER)
        return cause.split(":")[0] if self is Limit.BETA else cause


def gradient(model: OnChip, x: Tensor, y: Tensor, loss: Loss) -> Gradient:
    """One gradient as the chip measures it, of the parameters the estimator trains."""
    names = model.estimated_parameters()
    named = {n: p for n, p in model.named_parameters() if n in names}
    with unchanged_buffers(model), torch.enable_grad():
        value = loss(model(x), y)
        found = torch.autograd.grad(value, list(named.values()))
    return {n: g.double() for n, g in zip(named, found, strict=True)}


def exact_gradient(model: OnChip, x: Tensor, y: Tensor, loss: Loss) -> Gradient:
    """The exact gradient of the physical network, in double precision."""
    rest = at_rest(model)
    rest.gradient = ImplicitGradient(Anderson(tol=1e-10, max_steps=2000))
    found = gradient(rest, x.double() if x.is_floating_point() else x, y, loss)
    if not any(bool((g != 0).any()) for g in found.values()):
        raise InvalidInputError("The exact gradient is zero: use samples that are not yet learnt.")
    return found


def at_rest(model: OnChip, estimator: GradientEstimator | None = None) -> OnChip:
    """The physical network in double precision, settled to rounding; it reports no failures."""
    rest = model.at_rest().double()
    rest.solver = rest.solver.limited(1e-11, 10_000)
    rest.on_failure = "ignore"
    if estimator is not None:
        rest.gradient = estimator
    return rest


def flat(found: Gradient) -> Tensor:
    """All tensors in one row."""
    return torch.cat([g.flatten() for g in found.values()])


def check_chip(model: OnChip, x: Tensor, y: Tensor, loss: Loss) -> None:
    """Refuse what is not on a chip, and batches that it cannot take."""
    checks.instance("model", model, OnChip, "put it on one with toreqprop.hardware.on(device, it)")
    with noise_from(torch.Generator().manual_seed(0)):  # what a chip draws here is nobody's
        check_problem(model, x, y, loss)
