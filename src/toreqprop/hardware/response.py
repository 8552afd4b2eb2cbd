"""How a settled network answers small disturbances: linear, and without a chip's noise."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop.energies import Energy, System
from toreqprop.energies.pairs import Pair
from toreqprop.energies.system import per_sample
from toreqprop.gradients.base import normalise
from toreqprop.hardware.limits import Loss
from toreqprop.models import OnChip
from toreqprop.solution import State

SMALL = 1e-4
"""Of a disturbance by which derivatives are differences; states are of order one."""


@dataclass(frozen=True)
class Response:
    """A physical network at its free equilibrium, in double precision.

    ``direction`` and ``scale`` are of the loss's cotangent, as every estimator divides it.
    """

    model: OnChip
    system: System
    state: State
    direction: State
    scale: Tensor
    x: Tensor
    y: Tensor
    loss: Loss

    @staticmethod
    def of(rest: OnChip, x: Tensor, y: Tensor, loss: Loss) -> Response:
        """That of a network at rest, see `limits.at_rest`."""
        with torch.no_grad():
            system = System.bind(rest.field, rest.field_input(x), rest.system_parameters())
            state = rest.equilibrium(x).state
        direction, scale = normalise(cotangent(rest, state, y, loss))
        return Response(rest, system, state, direction, scale, x, y, loss)

    @torch.no_grad()
    def push(self, move: State) -> State:
        """``J·δ``, the image of a displacement under the map's derivative, by a difference."""
        largest = max(float(m.abs().max()) for m in move)
        if largest == 0:
            return move
        h = SMALL / largest
        up = self.system.map(tuple(s + h * m for s, m in zip(self.state, move, strict=True)))
        down = self.system.map(tuple(s - h * m for s, m in zip(self.state, move, strict=True)))
        return tuple((a - b) / (2 * h) for a, b in zip(up, down, strict=True))

    @torch.no_grad()
    def force(self, pull: State) -> State:
        """``σ'·p``, the displacement of one step by a change of the preactivations."""
        largest = max(float(p.abs().max()) for p in pull)
        if largest == 0:
            return pull
        h = SMALL / largest
        u = self.system.preactivation(self.state)
        up = self.system.activate(tuple(a + h * p for a, p in zip(u, pull, strict=True)))
        down = self.system.activate(tuple(a - h * p for a, p in zip(u, pull, strict=True)))
        return tuple((a - b) / (2 * h) for a, b in zip(up, down, strict=True))

    def settled(self, error: State, steps: int = 200) -> State:
        """``(1 − J)⁻¹·e``: where readings end that are off by ``error`` at every step."""
        found = error
        for _ in range(steps):
            image = self.push(found)
            found, last = tuple(e + m for e, m in zip(error, image, strict=True)), found
            gap = max(float((a - b).abs().max()) for a, b in zip(found, last, strict=True))
            if gap <= 1e-4 * max(float(f.abs().max()) for f in found):
                break
        return found

    def shift(self) -> State:
        """Half the difference of the two phases at ±β, over β, for a weak nudge."""
        pull = self.force(tuple(-g for g in self.direction))
        return self.settled(pull)

    def gradient_of(self, center: State, shift: State) -> Tensor:
        """What the chip takes for the gradient where phases are ``center ± shift``, times β."""
        field, system = self.model.field, self.system
        assert isinstance(field, Energy)
        wants = (False, *(True for _ in system.params))
        phases = tuple(map(Pair, center, shift))
        found = field.energy_gradients(phases, self.scale, system.x, system.params, wants)
        return self._written(found[1:])

    def of_cotangent(self, change: State) -> Tensor:
        """The gradient for another cotangent of the loss at the free equilibrium."""
        pull = tuple(-g / per_sample(self.scale, g) for g in change)
        return self.gradient_of(self.state, self.settled(self.force(pull)))

    def cotangent_change(self, move: State) -> State:
        """How the loss's cotangent changes where the free reading is off by ``move``."""
        at = cotangent(self.model, self.state, self.y, self.loss)
        moved = tuple(s + m for s, m in zip(self.state, move, strict=True))
        there = cotangent(self.model, moved, self.y, self.loss)
        return tuple(b - a for a, b in zip(at, there, strict=True))

    def _written(self, effective: tuple[Tensor | None, ...]) -> Tensor:
        """Gradients of the weights on the chip as those of the weights that are written."""
        names = self.model.estimated_parameters()
        named = {n: p for n, p in self.model.named_parameters() if n in names}
        with torch.enable_grad():
            params = self.model.system_parameters()
            pairs = [(p, g) for p, g in zip(params, effective, strict=True) if g is not None]
            found = torch.autograd.grad(
                [p for p, _ in pairs], list(named.values()), [g for _, g in pairs],
                allow_unused=True, materialize_grads=True,
            )  # fmt: skip
        return torch.cat([g.flatten() for g in found])


def cotangent(model: OnChip, state: State, y: Tensor, loss: Loss) -> State:
    """``∂C/∂s`` of the loss at a state."""
    with torch.enable_grad():
        leaves = tuple(s.detach().requires_grad_() for s in state)
        value = loss(model.readout_from(leaves), y)
        return torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
