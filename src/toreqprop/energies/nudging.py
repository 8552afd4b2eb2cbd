"""Nudges: the force that pulls an equilibrium towards lower cost.

The nudged energy is ``E + β·C``; its equilibria solve ``s = σ(u(s) − β·∂C/∂s)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.base import Pairs
from toreqprop.energies.pairs import Pair
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.solution import State
from toreqprop.tracing import is_transformed


class Nudge(Protocol):
    """A force on the preactivations and the energy it derives from."""

    def force(self, state: State) -> State:
        """``β·∂C/∂s``, in the shapes of the state."""

    def energy(self, state: State) -> Tensor:
        """``β·C(s)`` for each sample, shape (batch,)."""


def check_nudge(name: str, value: Any, *, optional: bool = False) -> None:
    """Refuse what exerts no force; None is fine where it is optional."""
    if not callable(getattr(value, "force", None)) and not (optional and value is None):
        raise InvalidInputError(
            f"{name} must be a nudge, got {checks.shown(value)}: use LinearNudge(direction, beta)."
        )


@dataclass(frozen=True)
class LinearNudge:
    """``C(s) = ⟨direction, s⟩``: the cotangent of any loss, constant during the relaxation."""

    direction: State
    beta: float | complex

    def __post_init__(self) -> None:
        checks.tensors("direction", self.direction)
        if not isinstance(self.beta, complex):
            checks.number("beta", self.beta)

    def force(self, state: State) -> State:
        return tuple(self.beta * g for g in self.direction)

    def energy(self, state: State) -> Tensor:
        parts = [(g * s).flatten(1).sum(1) for g, s in zip(self.direction, state, strict=True)]
        return self.beta * torch.stack(parts).sum(0)


@dataclass(frozen=True)
class CostNudge:
    """``C(s)`` re-evaluated along the relaxation: the classical form, the one hardware runs.

    ``cost`` maps a state to the cost of each sample, shape (batch,).
    """

    cost: Callable[[State], Tensor]
    beta: float

    def __post_init__(self) -> None:
        checks.function("cost", self.cost)
        checks.number("beta", self.beta)

    def force(self, state: State) -> State:
        with torch.enable_grad():
            leaves = tuple(s.detach().requires_grad_() for s in state)
            total = self.cost(leaves).sum()
            found = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
            return tuple(self.beta * g for g in found)

    def energy(self, state: State) -> Tensor:
        with torch.no_grad():
            return self.beta * self.cost(state)


@dataclass(frozen=True)
class ClampNudge:
    """A spring on the output: ``k/2·n·(o(s) + η)²`` with ``o(s) = ⟨direction, s − origin⟩/n``.

    ``o`` is the one output the loss reads to first order: the mean displacement of the n neurons
    along the cotangent. The spring pulls it towards ``−η``; a stiff one clamps it there.
    """

    direction: State
    origin: State
    stiffness: float
    displacement: float

    def __post_init__(self) -> None:
        checks.tensors("direction", self.direction)
        checks.tensors("origin", self.origin, len(self.direction))
        checks.number("stiffness", self.stiffness, 0, above=True)
        checks.number("displacement", self.displacement)

    def _output(self, state: State) -> Tensor:
        parts = [
            (g * (s - o)).flatten(1).sum(1)
            for g, s, o in zip(self.direction, state, self.origin, strict=True)
        ]
        return torch.stack(parts).sum(0) / self._count()

    def _count(self) -> int:
        return sum(g[0].numel() for g in self.direction)

    def force(self, state: State) -> State:
        pull = self.stiffness * (self._output(state) + self.displacement)
        return tuple(pull.reshape(-1, *[1] * (g.dim() - 1)) * g for g in self.direction)

    def energy(self, state: State) -> Tensor:
        stretch = self._output(state) + self.displacement
        return 0.5 * self.stiffness * self._count() * stretch * stretch


@dataclass(frozen=True)
class Opposed:
    """Two phases at once: ``center + shift`` feels one nudge, ``center − shift`` the other, or
    none, and then stays the free equilibrium.

    With ``asymmetry``, ``v ↦ (Uᵀ − U) v`` at the free equilibrium ``origin`` with ``U = ∂u/∂s``,
    both also feel ``−(Uᵀ − U)(s − s*)``: the system then responds as if its Jacobian were
    transposed, which is what the exact gradient of a vector field needs.
    """

    up: Nudge
    down: Nudge | None = None
    asymmetry: Callable[[State], State] | None = None
    origin: State = ()

    def __post_init__(self) -> None:
        check_nudge("up", self.up)
        check_nudge("down", self.down, optional=True)
        checks.function("asymmetry", self.asymmetry, optional=True)
        checks.tensors("origin", self.origin, least=0)

    @property
    def mirrored(self) -> bool:
        """Whether the two forces are constant and opposite: then only nonlinearity moves the
        center."""
        return (
            isinstance(self.up, LinearNudge)
            and isinstance(self.down, LinearNudge)
            and self.up.beta == -self.down.beta
        )

    def on_layers(self, pairs: Pairs) -> Callable[[int], Pair]:
        """The forces on single layers: constant ones are not computed for the others too."""
        constant = self._constant()
        if constant is None or self.asymmetry is not None:
            return self.force(pairs).__getitem__
        direction, mean, half = constant
        return lambda layer: Pair(mean * direction[layer], half * direction[layer])

    def _constant(self) -> tuple[State, float | complex, float | complex] | None:
        """Direction, mean and half difference of two constant forces; None for others."""
        if not isinstance(self.up, LinearNudge):
            return None
        if not (self.down is None or isinstance(self.down, LinearNudge)):
            return None
        other = 0.0 if self.down is None else self.down.beta
        return self.up.direction, 0.5 * (self.up.beta + other), 0.5 * (self.up.beta - other)

    def force(self, pairs: Pairs) -> Pairs:
        """Both forces, as the pairs of their mean and half their difference."""
        constant = self._constant()
        if constant is not None:
            direction, mean, half = constant
            found = [Pair(mean * g, half * g) for g in direction]
        else:
            one = self.up.force(tuple(p.up for p in pairs))
            if self.down is None:
                two = tuple(torch.zeros_like(f) for f in one)
            else:
                two = self.down.force(tuple(p.down for p in pairs))
            found = [Pair(0.5 * (a + b), 0.5 * (a - b)) for a, b in zip(one, two, strict=True)]
        if self.asymmetry is None:
            return tuple(found)
        moved = tuple(p.center - o for p, o in zip(pairs, self.origin, strict=True))
        means, halves = self.asymmetry(moved), self.asymmetry(tuple(p.shift for p in pairs))
        return tuple(f - Pair(a, b) for f, a, b in zip(found, means, halves, strict=True))

    def energy(self, up: State, down: State) -> Tensor:
        """The energies of both forces, together."""
        if self.asymmetry is not None:
            raise UnsupportedModelError(
                "A corrected vector field has no energy to descend: use solver=FixedPoint()."
            )
        energy = self.up.energy(up)
        return energy if self.down is None else energy + self.down.energy(down)


def nothing_like(state: Tensor) -> Tensor:
    """Zeros, of which there is only one in memory: `is_nothing` knows them unread."""
    make = _nothing.__wrapped__ if is_transformed() else _nothing  # a transform's own are not kept
    return make(state.shape, state.dtype, state.device)


@lru_cache(maxsize=64)
def _nothing(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    return _zero(dtype, device).expand(shape)


@cache
def _zero(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.zeros((), dtype=dtype, device=device)


def is_nothing(direction: Tensor) -> bool:
    """Whether these are zeros as `nothing_like` makes them: a layer that the loss does not see."""
    base = direction._base
    return base is not None and base is _zero(direction.dtype, direction.device)
