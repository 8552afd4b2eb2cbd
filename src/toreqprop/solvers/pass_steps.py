"""What a pass does to a layer between two products, in torch or compiled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from toreqprop.energies.activations import Activation, Logistic, Sigmoid, Tanh
from toreqprop.energies.system import in_order, row_norms
from toreqprop.kernels import compiled_available
from toreqprop.kernels.reference import ACTIVITY_FLOOR, ROUNDING_FLOOR
from toreqprop.tracing import is_plain


class Steps:
    """Of layers with this activation, and this strength of what comes from above."""

    def __init__(self, activation: Activation, strength: float) -> None:
        self.activation, self.strength = activation, strength

    def settle(self, below: Tensor, above: Tensor | None) -> tuple[Tensor, Tensor]:
        """The preactivation and the state."""
        total = below if above is None else torch.add(below, above, alpha=self.strength)
        return total, self.activation(total)

    def around(self, center: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        """What `swing` and `middle` need to know of the free equilibrium, rows by samples."""
        return self.activation.around(center, state)

    def swing(
        self,
        known: tuple[Tensor, ...],
        below: Tensor | None,
        above: Tensor | None,
        push: Tensor | None,
    ) -> tuple[Tensor, Tensor] | None:
        """What is added to the preactivation in one phase and taken away in the other, and half
        the difference of the states; None where nothing is."""
        total = below
        if above is not None:
            total = self.strength * above if total is None else total + self.strength * above
        if push is not None:
            # A push comes in the order of memory of the loss. Where a sample is done after the
            # first half pass and others are not, both have to lie as the free equilibrium does.
            push = _in_memory_of(known[0], push)
            total = -push if total is None else total - push
        return None if total is None else (total, self.activation.half(known, total))

    def middle(self, known: tuple[Tensor, ...], total: Tensor, half: Tensor) -> Tensor:
        """The mean of both states."""
        return self.activation.middle(known, total, half)

    def residual(self, after: Tensor, before: Tensor | None, slack: float | None = None) -> Tensor:
        """(batch,) the change relative to the layer's activity; with ``slack``, to so many times
        what is there."""
        size = row_norms(after)
        gap = size if before is None else row_norms(after - before)
        floor = ACTIVITY_FLOOR * after[0].numel() ** 0.5
        scale = size.clamp_min(floor) if slack is None else slack * size
        still = (gap <= ROUNDING_FLOOR * torch.finfo(after.dtype).eps * size) & torch.isfinite(gap)
        return torch.where(still, 0.0, gap / scale)


class CompiledSteps(Steps):
    """The same in one way over memory each."""

    def __init__(self, activation: Activation, strength: float) -> None:
        from toreqprop.kernels import pass_loops

        super().__init__(activation, strength)
        self.loops, self.form = pass_loops, FORMS[type(activation)]

    def settle(self, below: Tensor, above: Tensor | None) -> tuple[Tensor, Tensor]:
        if type(self.activation) is not Tanh:
            return super().settle(below, above)
        total = below if above is None else torch.empty_like(below)
        state = torch.empty_like(below)
        rows = _flat(below, below if above is None else above, total, state)
        self.loops.settle(*rows[:2], 0.0 if above is None else self.strength, *rows[2:])
        return total, state

    def around(self, center: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        return (state,)

    def swing(
        self,
        known: tuple[Tensor, ...],
        below: Tensor | None,
        above: Tensor | None,
        push: Tensor | None,
    ) -> tuple[Tensor, Tensor] | None:
        given = [(below, 1.0), (above, self.strength), (push, -1.0)]
        if all(part is None for part, _ in given):
            return None
        state = known[0]
        total, half = torch.empty_like(state), torch.empty_like(state)
        parts = [state if part is None else part for part, _ in given]
        weights = tuple(0.0 if part is None else share for part, share in given)
        rows = _flat(state, *parts, total, half)
        self.loops.swing(rows[0], rows[1:4], weights, self.form, *rows[4:])
        return total, half

    def middle(self, known: tuple[Tensor, ...], total: Tensor, half: Tensor) -> Tensor:
        found = torch.empty_like(known[0])
        state, moved, apart, out = _flat(known[0], total, half, found)
        self.loops.middle(state, moved, apart, self.form, out)
        return found

    def residual(self, after: Tensor, before: Tensor | None, slack: float | None = None) -> Tensor:
        if before is None:
            return super().residual(after, before, slack)
        found = torch.empty(len(after), dtype=torch.float64)
        rounding = ROUNDING_FLOOR * torch.finfo(after.dtype).eps
        floor = ACTIVITY_FLOOR * after[0].numel() ** 0.5 if slack is None else 0.0
        rows = _flat(after, before)
        fine = self.loops.residual(
            rows[0], rows[1], rounding, floor, 1.0 if slack is None else slack, found.numpy()
        )
        return found if fine else super().residual(after, before, slack)


FORMS: dict[type[Activation], tuple[float, float, float]] = {
    Tanh: (1.0, 1.0, 0.0),
    Sigmoid: (2.0, 0.5, 0.5),
    Logistic: (0.5, 0.5, 0.5),
}
"""Gain, scale and base of ``σ(u) = scale·tanh(gain·u + c) + base``, whatever c."""


def steps_of(activation: Activation, strength: float, like: Tensor, compiled: bool) -> Steps:
    """The fastest that serves this activation."""
    if compiled and type(activation) in FORMS and compiled_available() and is_plain(like):
        return CompiledSteps(activation, strength)
    return Steps(activation, strength)


def _flat(first: Tensor, *others: Tensor) -> tuple[Any, ...]:
    """Layers as rows of NumPy, all in the order of memory of the first."""
    found = [_rows(first)]
    for other in others:
        found.append(_rows(_in_memory_of(first, other)))
    return tuple(found)


def _in_memory_of(first: Tensor, other: Tensor) -> Tensor:
    """The second tensor in the order of memory of the first."""
    return other if other.stride() == first.stride() else torch.empty_like(first).copy_(other)


def _rows(layer: Tensor) -> Any:
    if layer.is_contiguous() or layer.is_contiguous(memory_format=torch.channels_last):
        rows, whole = layer.shape[0], layer.stride(0)
        return layer.as_strided((rows, whole), (whole, 1)).numpy()  # in one call
    return in_order(layer).reshape(len(layer), -1).numpy()
