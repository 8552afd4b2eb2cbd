"""The exact gradient by the implicit function theorem: the oracle EP is checked against."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies import Gradients, System
from toreqprop.energies.system import layer_norms, one_over
from toreqprop.errors import UnsupportedModelError
from toreqprop.gradients.base import GradientEstimator, Problem, require_finite
from toreqprop.solution import State
from toreqprop.solvers import Anderson, FixedPoint, Solver, solve
from toreqprop.tracing import is_finite


@dataclass(frozen=True)
class ImplicitGradient(GradientEstimator):
    """``wᵀ·∂f/∂θ`` with ``w = (I − Jᵀ)⁻¹ g`` and ``J = ∂f/∂s`` at the equilibrium.

    The linear system is relaxed like any other equilibrium, by ``solver``; None is Anderson's
    method to 1e-6 in float32 and 1e-12 in float64.
    """

    solver: Solver | None = None

    def __post_init__(self) -> None:
        if self.solver is not None:
            checks.instance("solver", self.solver, Solver, "use Anderson(tol=1e-9)")

    paper: ClassVar[str] = "Bai et al. 2019"

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        adjoint, leaves, image = linearise(problem, free, cotangent)
        tol = 1e-12 if cotangent[0].dtype == torch.float64 else 1e-6
        solver = Anderson(10, tol=tol, max_steps=1000) if self.solver is None else self.solver
        solution = solve(adjoint, cotangent, solver)
        problem.report("adjoint", solution)
        return pull_back(problem, leaves, image, solution.state)


@dataclass(frozen=True)
class RecurrentBackprop(GradientEstimator):
    """The same adjoint, relaxed as a second network would: plain iteration, the model's tol.

    Needs a circuit with transposed weights; the form in which implicit gradients were first found.
    """

    bias: ClassVar[str] = "O(tol)"
    paper: ClassVar[str] = "Almeida 1987; Pineda 1987"

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        adjoint, leaves, image = linearise(problem, free, cotangent)
        solver = FixedPoint(tol=problem.solver.tol, max_steps=problem.solver.max_steps)
        solution = solve(adjoint, cotangent, solver)
        problem.report("adjoint", solution)
        return pull_back(problem, leaves, image, solution.state)


@dataclass(frozen=True)
class Adjoint:
    """The linear map ``w ↦ g + Jᵀ w`` whose fixed point is the adjoint state.

    ``cold`` (1, layers) is one over `System.metric`: as J is symmetric in that norm, so is Jᵀ in
    this one.
    """

    image: State
    state: State
    cotangent: State
    cold: Tensor | None = None
    contraction: float | None = None
    free: bool = True

    def layers(self, state: State) -> int:
        return len(state)

    def map(self, state: State) -> State:
        product = torch.autograd.grad(
            self.image,
            self.state,
            state,
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        return tuple(g + p for g, p in zip(self.cotangent, product, strict=True))

    def sizes(self, image: State) -> tuple[Tensor, Tensor]:
        """Every layer of the adjoint is held against itself."""
        size = layer_norms(image)
        return size, size

    def metric(self, image: State) -> Tensor:
        return one_over(layer_norms(image)) if self.cold is None else self.cold

    def energy(self, state: State) -> Tensor:
        raise UnsupportedModelError("An adjoint has no energy: use solver=FixedPoint().")

    def hold(self, before: State, after: State, relative: Tensor, tol: float) -> State:
        return after

    def error_bound(self, state: State) -> Tensor:
        return torch.full((len(state[0]),), torch.inf, dtype=torch.float64)

    preactivation = activate = deactivate = map

    def update(self, layers: Iterable[int], state: State) -> State:
        raise UnsupportedModelError("An adjoint has no layers to sweep: use solver=FixedPoint().")

    def colours(self, state: State) -> tuple[tuple[int, ...], ...]:
        return (tuple(range(len(state))),)


def linearise(
    problem: Problem, free: State, cotangent: State
) -> tuple[Adjoint, tuple[Tensor, ...], State]:
    """One evaluation of ``f`` at the equilibrium with a graph: (adjoint, leaves (x, *θ), f(s))."""
    require_finite(*map(is_finite, cotangent))
    system = problem.system
    with torch.enable_grad():
        leaves = tuple(
            t.detach().requires_grad_(want)
            for t, want in zip((system.x, *system.params), problem.wants, strict=True)
        )
        state = tuple(s.detach().requires_grad_() for s in free)
        image = System.bind(system.field, leaves[0], leaves[1:]).map(state)
    return Adjoint(image, state, cotangent, 1 / system.metric(state)), leaves, image


def pull_back(
    problem: Problem, leaves: tuple[Tensor, ...], image: State, adjoint: State
) -> Gradients:
    """``⟨w, ∂f/∂θ⟩`` for what is asked."""
    asked = [t for t, want in zip(leaves, problem.wants, strict=True) if want]
    grads = torch.autograd.grad(image, asked, adjoint, allow_unused=True, materialize_grads=True)
    found = iter(grads)
    return tuple(next(found) if want else None for want in problem.wants)
