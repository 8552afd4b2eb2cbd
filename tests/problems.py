"""Small problems in float64 whose equilibria and gradients are known without the library.

The gradient comes from a dense Jacobian and a direct linear solve (or a formula), never from an
iteration, so that an estimator and its oracle cannot share a mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from toreqprop.energies import (
    DenseEnergy,
    DenseField,
    Energy,
    HardSigmoid,
    LinearCoupling,
    Params,
    StackEnergy,
    System,
    Tanh,
    VectorField,
    spectral_bound,
)
from toreqprop.equilibrium import Settings, equilibrium
from toreqprop.gradients import GradientEstimator
from toreqprop.solution import Solution, State
from toreqprop.solvers import FixedPoint, Solver

TIGHT = FixedPoint(tol=1e-12, max_steps=5000)


@dataclass(frozen=True, eq=False)
class KnownProblem:
    """A system, a loss on its state, and (where known in closed form) its equilibrium."""

    name: str
    field: VectorField
    x: Tensor
    params: Params
    loss: Callable[[State], Tensor]
    solution: State | None = None
    symmetric: tuple[int, ...] = ()
    """Positions in (x, *params) of matrices that are constrained to be symmetric: only the
    symmetric part of their gradient means anything."""

    def _constrain(self, gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(
            0.5 * (g + g.mT) if k in self.symmetric else g for k, g in enumerate(gradients)
        )

    def gradients(
        self,
        estimator: GradientEstimator,
        *,
        scale: float = 1.0,
        solver: Solver = TIGHT,
        report: Callable[[str, Solution], None] = lambda phase, solution: None,
    ) -> tuple[Tensor, ...]:
        """Gradients of ``scale·loss`` for (x, *params) by ``estimator`` through autograd."""
        leaves = [t.clone().requires_grad_() for t in (self.x, *self.params)]
        settings = Settings(self.field, solver, estimator, report)
        state = equilibrium(settings, leaves[0], tuple(leaves[1:])).state
        return self._constrain(torch.autograd.grad(scale * self.loss(state), leaves))

    def equilibrium(self) -> State:
        """The equilibrium by plain iteration to rounding."""
        if self.solution is not None:
            return self.solution
        system = System.bind(self.field, self.x, self.params)
        state = system.initial_state()
        for _ in range(5000):
            before, state = state, system.map(state)
            if all(map(torch.equal, before, state)):
                break
        return tuple(s.detach() for s in state)

    @cache  # noqa: B019  (the few problems live as long as the tests)
    def exact_gradients(self) -> tuple[Tensor, ...]:
        """``g (I − J)⁻¹ ∂f/∂θ`` with dense matrices."""
        state = self.equilibrium()
        shapes = [s.shape for s in state]
        flat = torch.cat([s.flatten() for s in state])

        def split(vector: Tensor) -> State:
            parts = vector.split([s.numel() for s in state])
            return tuple(p.reshape(shape) for p, shape in zip(parts, shapes, strict=True))

        def image(vector: Tensor, x: Tensor, *params: Tensor) -> Tensor:
            out = System.bind(self.field, x, params).map(split(vector))
            return torch.cat([s.flatten() for s in out])

        def jacobian(position: int) -> Tensor:
            arguments = [flat, self.x, *self.params]

            def of(t: Tensor) -> Tensor:
                return image(*[*arguments[:position], t, *arguments[position + 1 :]])

            return torch.autograd.functional.jacobian(of, arguments[position])

        leaves = tuple(s.clone().requires_grad_() for s in state)
        cotangent = torch.cat([g.flatten() for g in torch.autograd.grad(self.loss(leaves), leaves)])
        eye = torch.eye(len(flat), dtype=flat.dtype)
        adjoint = torch.linalg.solve((eye - jacobian(0)).mT, cotangent)
        return self._constrain(
            tuple(
                torch.tensordot(adjoint, jacobian(k + 1), dims=1)
                for k in range(1 + len(self.params))
            )
        )


class Uncoupled(Energy):
    """``Φ = Σ θ·x·s``: neurons that ignore each other, ``s* = tanh(θx)``.

    Written as a user would: no preactivation, the library derives it from the interaction.
    """

    activation = Tanh()

    def initial_state(self, drive: Params, params: Params) -> State:
        return (torch.zeros_like(drive[0]),)

    def interaction(self, state: State, x: Tensor, params: Params) -> Tensor:
        return (params[0] * x * state[0]).sum(1)


class TwoLayers(Energy):
    """``Φ = s₁·x + s₁ A s₂ + b·s₂``: a state of two tensors of different widths."""

    def __init__(self, activation: Tanh | HardSigmoid) -> None:
        self.activation = activation

    def initial_state(self, drive: Params, params: Params) -> State:
        x = drive[0]
        zeros = x.new_zeros(x.shape[0], params[0].shape[1])
        return torch.zeros_like(x), zeros

    def interaction(self, state: State, x: Tensor, params: Params) -> Tensor:
        first, second = state
        coupling, bias = params
        return (first * x).sum(1) + ((first @ coupling) * second).sum(1) + second @ bias


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=_generator(seed))


def _softplus_loss(weight: Tensor) -> Callable[[State], Tensor]:
    """A smooth nonlinear loss that looks at every neuron."""

    def loss(state: State) -> Tensor:
        joined = torch.cat(state, 1)
        return torch.nn.functional.softplus(2 * joined @ weight).mean()

    return loss


def contracting(size: int, seed: int, *, symmetric: bool, norm: float = 0.8) -> Tensor:
    """A recurrent matrix with spectral norm exactly ``norm``, symmetric or mostly antisymmetric."""
    weight = _normal(size, size, seed=seed)
    weight = weight + weight.mT if symmetric else weight - 0.5 * weight.mT
    return weight * norm / torch.linalg.matrix_norm(weight, 2)


@cache  # and with it its exact gradients
def looped(symmetric: bool = True) -> KnownProblem:
    params = (
        _normal(6, 4, seed=1),
        _normal(6, seed=2),
        contracting(6, 3, symmetric=symmetric, norm=0.8 if symmetric else 0.95),
    )
    field = DenseEnergy() if symmetric else DenseField()
    name = "looped" if symmetric else "looped_asymmetric"
    return KnownProblem(
        name,
        field,
        _normal(3, 4, seed=4),
        params,
        _softplus_loss(_normal(6, 2, seed=5)),
        symmetric=(3,) if symmetric else (),
    )


def manufactured() -> KnownProblem:
    """The equilibrium is chosen first, then the input that has it: ``x = atanh(h) − W h``."""
    state = 0.9 * torch.tanh(_normal(3, 5, seed=6))
    weight = contracting(5, 7, symmetric=True, norm=0.5)
    eye, zero = torch.eye(5, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
    return KnownProblem(
        "manufactured",
        DenseEnergy(),
        torch.atanh(state) - state @ weight,
        (eye, zero, weight),
        _softplus_loss(_normal(5, 2, seed=8)),
        solution=(state,),
        symmetric=(3,),
    )


def uncoupled() -> KnownProblem:
    x, theta = _normal(3, 4, seed=9), _normal(4, seed=10)
    return KnownProblem(
        "uncoupled",
        Uncoupled(),
        x,
        (theta,),
        _softplus_loss(_normal(4, 2, seed=11)),
        solution=(torch.tanh(theta * x),),
    )


def two_layers(activation: Tanh | HardSigmoid | None = None) -> KnownProblem:
    activation = activation or Tanh()
    coupling = _normal(4, 3, seed=12)
    coupling = coupling * 0.7 / spectral_bound(coupling)
    x = _normal(3, 4, seed=13)
    if isinstance(activation, HardSigmoid):
        # Keep every neuron strictly inside the box, where the map is differentiable.
        x, coupling = 0.5 + 0.05 * x, 0.3 * coupling
        params = (coupling, 0.5 + 0.05 * _normal(3, seed=14))
    else:
        params = (coupling, _normal(3, seed=14))
    name = f"two_layers_{type(activation).__name__.lower()}"
    return KnownProblem(
        name, TwoLayers(activation), x, params, _softplus_loss(_normal(7, 2, seed=15))
    )


def layered() -> KnownProblem:
    """Three layers of different widths with the closed-form preactivation and Hebbian update."""
    params = (
        _normal(5, 4, seed=16),
        _normal(5, seed=17),
        0.3 * _normal(4, 5, seed=18),
        _normal(4, seed=19),
        0.3 * _normal(3, 4, seed=20),
        _normal(3, seed=21),
    )
    loss = _softplus_loss(_normal(12, 2, seed=22))
    return KnownProblem(
        "layered", StackEnergy((LinearCoupling(),) * 3), _normal(3, 4, seed=23), params, loss
    )


ENERGY_PROBLEMS = [
    looped(),
    manufactured(),
    uncoupled(),
    two_layers(),
    layered(),
    two_layers(HardSigmoid()),
]
PROBLEMS = [*ENERGY_PROBLEMS, looped(symmetric=False)]


def relative_error(found: tuple[Tensor, ...], exact: tuple[Tensor, ...]) -> float:
    """Error of all gradients together, relative to the exact ones."""
    error = torch.cat([(a - b).flatten() for a, b in zip(found, exact, strict=True)])
    return float(error.norm() / torch.cat([b.flatten() for b in exact]).norm())


def cosine(a: Tensor, b: Tensor) -> float:
    """Signed cosine of two tensors."""
    a, b = a.flatten().double(), b.flatten().double()
    return float(a @ b / (a.norm() * b.norm()))
