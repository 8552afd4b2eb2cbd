"""One gradient of a model by one estimator, with every relaxation behind it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toreqprop.certificate.report import PhaseCertificate
from toreqprop.energies.system import sample_norm
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.gradients import ESTIMATORS, GradientEstimator
from toreqprop.models import EquilibriumModel
from toreqprop.models.base import unchanged_buffers
from toreqprop.solution import Solution, State

Loss = Callable[[Tensor, Tensor], Tensor]

INPUT = "input"


@dataclass
class Estimate:
    """One gradient: by parameter and for the input, how it was found, and where.

    ``given`` is the batch whose equilibrium it is: what `forward` was given, unless a model does
    something to it before it settles.
    """

    gradients: dict[str, Tensor]
    phases: list[PhaseCertificate]
    graph: set[str]
    state: State
    given: Tensor

    @property
    def settled(self) -> bool:
        return all(p.settled for p in self.phases)


def estimate(
    model: EquilibriumModel,
    gradient: GradientEstimator,
    x: Tensor,
    y: Tensor,
    loss: Loss,
    at: Estimate | None = None,
    like: EquilibriumModel | None = None,
) -> Estimate:
    """The gradient of ``loss`` by ``gradient``, from the equilibrium of another estimate if given.

    The loss sees outputs in the precision of the model ``like``: its own tensors, class weights for
    instance, are of that precision too. Effective weights are those of ``like`` as well, and the
    gradient goes back to the raw ones through its constraints.
    """
    like = model if like is None else like
    kept = model.gradient, model.on_failure, model.relaxations, model.failures.copy()
    model.gradient, model.on_failure = gradient, "ignore"  # what fails is in the certificate
    phases: list[PhaseCertificate] = []
    states: list[State] = []

    def record(phase: str, solution: Solution) -> None:
        moved = 0.0
        if phase == "free":
            states.append(tuple(s.detach() for s in solution.state))
        if solution.shift:
            apart, size = sample_norm(solution.shift), sample_norm(solution.state)
            moved = float((2 * apart / size.clamp_min(1e-30)).max())
        phases.append(
            PhaseCertificate(
                phase, solution.steps, solution.worst_residual, solution.converged, moved,
                solution.status.name, solution.layer,
            )
        )  # fmt: skip

    key = model.register_relaxation_hook(record)
    both = (model,) if like is model else (model, like)
    leaves: list[tuple[str, Tensor]] = [
        (n, p) for each in both for n, p in each.named_parameters() if p.requires_grad
    ]
    dtype = next(like.parameters()).dtype
    start = None if at is None else tuple(s.to(_float64(s)) for s in at.state)
    try:
        # A backward pass moves buffers; the next estimate must be of the same network.
        with unchanged_buffers(model), unchanged_buffers(like), torch.enable_grad():
            if x.is_floating_point():
                x = x.detach().clone().requires_grad_()
                leaves.append((INPUT, x))
            with _settling(model, start) as given, weights_of(like, model):
                output = model(x)
            value = loss(output.to(dtype) if output.is_floating_point() else output, y)
            if not bool(torch.isfinite(value)):
                raise InvalidInputError(
                    f"The loss is {value.item()}, so there is no gradient to certify: check "
                    "inputs, targets and weights for NaN and infinite values."
                )
            graph = _graph_nodes(value)
            found = gradients_by_name(value, leaves)
    finally:
        model.remove_relaxation_hook(key)
        model.gradient, model.on_failure, model.relaxations, model.failures = kept
    settled = given[0] if given else x
    if not states:  # an unrolled model has no free phase to report
        with torch.no_grad():
            states.append(model.equilibrium(settled).state)
    return Estimate(found, phases, graph, states[0], settled)


def gradients_by_name(value: Tensor, leaves: list[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """The gradient of every name, that of several tensors of one name together."""
    names, tensors = zip(*leaves, strict=True)
    parts = torch.autograd.grad(value, tensors, allow_unused=True, materialize_grads=True)
    found: dict[str, Tensor] = {}
    for name, part in zip(names, parts, strict=True):
        found[name] = found[name] + part if name in found else part
    return found


@contextmanager
def weights_of(like: EquilibriumModel, model: EquilibriumModel) -> Iterator[None]:
    """Within it ``model``, a copy in double precision, settles with the effective weights of
    ``like``, and their gradients go on through the constraints of ``like`` to its raw weights.

    A spectral norm has a kink where singular values meet, as those of orthogonal weights all do:
    which of its subgradients a ball takes is left to rounding, and would differ in the copy.
    """

    def effective() -> tuple[Tensor, ...]:
        return tuple(p.to(_float64(p)) for p in like.system_parameters())

    with nullcontext() if like is model else _replaced(model, "system_parameters", effective):
        yield


@contextmanager
def _settling(model: EquilibriumModel, start: State | None) -> Iterator[list[Tensor]]:
    """The batches whose equilibria are asked for within it, by whatever `forward` a model has; the
    relaxations begin at ``start``, if given."""
    given: list[Tensor] = []
    settle = model.equilibrium

    def equilibrium(x: Tensor, **options: Any) -> Solution:
        given.append(x.detach())
        return settle(x, **(options if start is None else {**options, "start": start}))

    with _replaced(model, "equilibrium", equilibrium):
        yield given


@contextmanager
def _replaced(model: EquilibriumModel, method: str, by: Callable[..., Any]) -> Iterator[None]:
    """Within it one method of this very model is another."""
    own = vars(model)
    before = own.get(method)
    own[method] = by
    try:
        yield
    finally:
        del own[method]
        if before is not None:
            own[method] = before


def _float64(tensor: Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64


def in_double(model: EquilibriumModel, tol: float, max_steps: int) -> EquilibriumModel:
    """In double precision, silent, with another tolerance."""
    copied = copy.deepcopy(model).double()
    copied.on_failure = "ignore"
    copied._hooks = {}
    copied.solver = copied.solver.limited(tol, max_steps)
    return copied


def double(x: Tensor) -> Tensor:
    """In float64, but for tokens."""
    return x.double() if x.is_floating_point() else x


def _graph_nodes(value: Tensor) -> set[str]:
    names, stack, seen = set(), [value.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        names.add(node.name())
        stack += [parent for parent, _ in node.next_functions]
    return names


def estimator_by_name(name: str) -> type[GradientEstimator]:
    """The estimator registered under ``name``, or an error that lists the names."""
    if name not in ESTIMATORS:
        raise UnsupportedModelError(
            f"There is no estimator {name!r}: choose one of {', '.join(ESTIMATORS)}."
        )
    return ESTIMATORS[name]
