"""The classical two-phase algorithm: the cost itself nudges, as hardware does it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.energies import CostNudge, System
from toreqprop.errors import UnsupportedModelError
from toreqprop.gradients import ContrastiveEstimator, Problem
from toreqprop.gradients.base import as_pairs, require_energy
from toreqprop.models.base import EquilibriumModel
from toreqprop.solution import State
from toreqprop.solvers import relax

Cost = Callable[[Tensor, Tensor], Tensor]
"""(output, target) to the cost of each sample, shape (batch,)."""


def cross_entropy_cost(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of each sample, shape (batch,)."""
    return F.cross_entropy(output, target, reduction="none")


def nudged_gradients(
    model: EquilibriumModel,
    x: Tensor,
    y: Tensor,
    *,
    cost: Cost = cross_entropy_cost,
    gradient: ContrastiveEstimator | None = None,
) -> dict[str, Tensor]:
    """Gradient of the batch-mean cost for every parameter, with a cost nudge.

    The nudged phases relax on ``E + β·C`` with the cost re-evaluated at every step; β multiplies
    the cost of a sample as it is. ``gradient`` defaults to the model's own estimator. Returns
    {parameter name: gradient} for the parameters with ``requires_grad``.
    """
    checks.instance("model", model, EquilibriumModel, "only these have phases to nudge")
    checks.function("cost", cost)
    estimator = model.gradient if gradient is None else gradient
    if not isinstance(estimator, ContrastiveEstimator):
        raise UnsupportedModelError(
            f"A cost nudge needs an estimator that contrasts equilibria, and "
            f"{type(estimator).__name__} does not: use gradient=CenteredEP(beta=0.05)."
        )
    model.check_input(x)
    checks.pairs(x, y)
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with torch.enable_grad():
        effective = (model.field_input(x), *model.system_parameters())
    inputs, *rest = (p.detach() for p in effective)
    params = tuple(rest)

    def cost_of(state: State) -> Tensor:
        return cost(model.readout_from(state), y)

    with torch.no_grad():
        system = System.bind(model.field, inputs, params, model.residual_factor())
        field = require_energy(estimator, system)
        wants = tuple(p.requires_grad for p in effective)
        free = relax(system, model.solver, kernel=model.kernel)
        model._report("free", free)
        problem = Problem(system, model.solver, wants, model._report, model.kernel)
        drawn = estimator.drawn()
        found = drawn.contrast(problem, free.state, lambda beta: CostNudge(cost_of, beta))
        coefficient = drawn.coefficient
        mean = inputs.new_full((len(inputs),), coefficient / len(inputs))
        local = field.energy_gradients(as_pairs(found), mean, inputs, params, wants)
    with torch.enable_grad():
        # ∂(E + βC)/∂θ has a second part: the cost's own dependence on the readout.
        phases = zip((1, -1), drawn.betas, (found.up, found.down), strict=True)
        direct = torch.stack(
            [
                0.5 * coefficient * sign * beta * cost_of(state).mean()
                for sign, beta, state in phases
                if beta != 0
            ]
        ).sum()
        outputs = [p for p in effective if p.requires_grad]
        weights = [g for g in local if g is not None]
        if direct.requires_grad:
            outputs, weights = [direct, *outputs], [torch.ones_like(direct), *weights]
        gradients = torch.autograd.grad(
            outputs, list(named.values()), weights, allow_unused=True, materialize_grads=True
        )
    return dict(zip(named, gradients, strict=True))


def nudged_backward(
    model: EquilibriumModel,
    x: Tensor,
    y: Tensor,
    *,
    cost: Cost = cross_entropy_cost,
    gradient: ContrastiveEstimator | None = None,
) -> None:
    """`nudged_gradients`, accumulated into ``p.grad`` as ``loss.backward()`` would."""
    found = nudged_gradients(model, x, y, cost=cost, gradient=gradient)
    parameters = dict(model.named_parameters())
    for name, value in found.items():
        p = parameters[name]
        p.grad = value if p.grad is None else p.grad + value
