"""How long each sample of a batch takes to settle, and what its gradient is worth by then."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.energies import LinearNudge, Opposed, System
from toreqprop.gradients import CenteredEP
from toreqprop.gradients.base import normalise
from toreqprop.models import LoopedMLP
from toreqprop.solvers import FixedPoint, Trace, relax, relax_pair
from toreqprop.training import TrainingConfig
from toreqprop.verify.networks import Split, looped, train
from toreqprop.verify.probes import Gradients, error, gradients, tight

RADIUS = 0.97
NEVER = 1e-300
"""A tolerance that nothing reaches: relaxations take all their steps."""


def near_the_edge(data: Split, hidden: int, epochs: int, seed: int, tol: float) -> LoopedMLP:
    """A trained network that settles slowly, some samples more so than others."""
    model = looped(
        data, hidden, seed, radius=RADIUS, bound="exact", tol=tol, max_steps=2000,
    )  # fmt: skip
    with torch.no_grad():  # its recurrence is at the radius from the start
        model.recurrent.raw.mul_(10)
    train(model, data, TrainingConfig(epochs=epochs, learning_rate=3e-3, seed=seed))
    return model


@dataclass(frozen=True)
class Settled:
    """Evaluations each sample needed in the free and the nudged phases, (batch,)."""

    free: Tensor
    nudged: Tensor

    @property
    def total(self) -> Tensor:
        return self.free + self.nudged


@torch.no_grad()
def settle(model: LoopedMLP, x: Tensor, y: Tensor) -> Settled:
    """Relax both kinds of phase on the general path and look when each sample was done."""
    system = System.bind(model.field, x, model.system_parameters())
    free, nudged = Trace(), Trace()
    found = relax(system, model.solver, trace=free)
    with torch.enable_grad():
        state = found.state[0].detach().requires_grad_()
        loss = F.cross_entropy(model.readout_from((state,)), y)
        cotangent = torch.autograd.grad(loss, (state,))
    direction, _ = normalise(cotangent)
    beta = CenteredEP().beta
    opposed = Opposed(LinearNudge(direction, beta), LinearNudge(direction, -beta))
    relax_pair(system, opposed, model.solver, found.state, memory=found.memory, trace=nudged)
    return Settled(_first(free, model.tol), _first(nudged, model.tol))


def _first(trace: Trace, tol: float) -> Tensor:
    """The evaluation at which each sample's residual came within the tolerance."""
    within = torch.stack(trace.residuals) <= tol
    return within.int().argmax(0) + 1


def error_after(model: LoopedMLP, x: Tensor, y: Tensor, wanted: Gradients, steps: int) -> float:
    """Relative error of the gradient when every phase takes this many steps, no more, no less."""
    kept = model.solver
    try:
        model.solver = FixedPoint(tol=NEVER, max_steps=steps)
        return error(gradients(model, x, y), wanted)
    finally:
        model.solver = kept


def equal_steps(
    model: LoopedMLP, x: Tensor, y: Tensor, wanted: Gradients, target: float, most: int
) -> int:
    """The fewest steps, the same for every sample and phase, whose gradient is as good: what one
    would choose if one knew the exact gradient; ``most`` where none is."""
    for steps in range(1, most):
        if error_after(model, x, y, wanted, steps) <= target:
            return steps
    return most


def error_now(model: LoopedMLP, x: Tensor, y: Tensor, wanted: Gradients) -> float:
    """The same when each sample stops at the model's tolerance."""
    return error(gradients(model, x, y), wanted)


def wanted_gradients(model: LoopedMLP, x: Tensor, y: Tensor) -> Gradients:
    """EP's own at an equilibrium to rounding: what an early stop is to be held against."""
    return gradients(tight(model), x.double(), y)
