"""What a pass does to a layer between two products, in torch or compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from toreqprop.energies.activations import Activation, Logistic, Sigmoid, Tanh
from toreqprop.energies.system import in_order, per_sample, row_norms
from toreqprop.kernels import compiled_available
from toreqprop.kernels.reference import ACTIVITY_FLOOR, ROUNDING_FLOOR
from toreqprop.tracing import is_plain


class Moved(NamedTuple):
    """A layer after a pass: its state, the preactivation it is the image of, and how much of that
    comes from above, None at the top; under a nudge half the differences of each."""

    state: Tensor
    total: Tensor
    above: Tensor | None


class Steps:
    """Of layers with this activation, and this strength of what comes from above."""

    def __init__(self, activation: Activation, strength: float) -> None:
        self.activation, self.strength = activation, strength

    def settle(
        self, below: Tensor, above: Tensor | None, *, spent: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The preactivation and the state; where ``above`` is ``spent``, the first may take its
        memory: what is in no cache yet takes longer to write than to compute."""
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
        *,
        spent: bool = False,
    ) -> tuple[Tensor, Tensor] | None:
        """What is added to the preactivation in one phase and taken away in the other, and half
        the difference of the states; None where nothing is. See `settle`."""
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

    def bend(self, new: Moved, old: Moved, before: Tensor) -> Tensor:
        """(5, batch) what a layer adds to the energy of the shifts along ``new`` and along
        ``new − old``, see `pass_energy`: its curvature along the first, both and the second, then
        how fast it falls along each, as the layer above has seen it as it was ``before``."""
        strain, earlier = self._strain(new), self._strain(old)
        step, change, late = new.state - old.state, strain - earlier, new.state - before
        pairs = [(new.state, 2 * strain), (step, strain), (new.state, change), (step, 2 * change)]
        if new.above is not None and old.above is not None:
            pairs += [(new.above, late), (new.above - old.above, late)]
        dots = [(a.double() * b.double()).flatten(1).sum(1) for a, b in pairs]
        none = torch.zeros_like(dots[0])
        return torch.stack([dots[0], dots[1] + dots[2], dots[3], *(dots[4:] or [none, none])])

    def _strain(self, moved: Moved) -> Tensor:
        """``½·total − above``."""
        return 0.5 * moved.total if moved.above is None else 0.5 * moved.total - moved.above

    def factors(self, bent: Tensor) -> tuple[Tensor, Tensor]:
        """(batch,) factors of the new pass and of the old one at the least energy, given (5, batch)
        what `bend` found of all layers; one and zero where there is none, or far away."""
        first, mixed, second, fall, across = bent
        # In units of the curvatures, so that nothing leaves the range of floats.
        sound = (first > TINY) & (second > TINY)
        unit, beside = (torch.where(sound, t, 1.0).rsqrt() for t in (first, second))
        joint, fall, across = mixed * unit * beside, fall * unit, across * beside
        left = 1 - joint * joint
        along = (across - joint * fall) / left
        share, more = (fall - joint * along) * unit, along * beside
        sound &= (left > PARALLEL) & (share.abs() < FURTHEST[0]) & (more.abs() < FURTHEST[1])
        return torch.where(sound, 1 + share + more, 1.0), torch.where(sound, -more, 0.0)

    def go_on(
        self, new: Tensor, old: Tensor, share: Tensor, *, spent: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The preactivation ``new + share·(new − old)``, with a share for each sample, and the
        state; where ``new`` is ``spent``, the first may take its memory."""
        total = new + per_sample(share.to(new.dtype), new) * (new - old)
        return self.settle(total, None)

    def overlap(self, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        """(batch,) ``⟨a − b, c − d⟩``."""
        return ((a - b).double() * (c - d).double()).flatten(1).sum(1)

    def mix(
        self, new: Tensor, old: Tensor, one: Tensor, other: Tensor, *, spent: bool = False
    ) -> Tensor:
        """``one·new + other·old`` with a factor for each sample; where ``new`` is ``spent``, this
        may take its memory."""
        factors = (per_sample(f.to(new.dtype), new) for f in (one, other))
        return next(factors) * new + next(factors) * old

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

    def settle(
        self, below: Tensor, above: Tensor | None, *, spent: bool = False
    ) -> tuple[Tensor, Tensor]:
        below = _tidy(below)
        if above is None:
            total = below
        else:
            total = above if spent and _alike(above, below) else torch.empty_like(below)
        state = torch.empty_like(below)
        rows = _flat(below, below if above is None else above, total, state)
        strength = 0.0 if above is None else self.strength
        self.loops.settle(*rows[:2], strength, self.form, *rows[2:])
        return total, state

    def around(self, center: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        return (state,)

    def swing(
        self,
        known: tuple[Tensor, ...],
        below: Tensor | None,
        above: Tensor | None,
        push: Tensor | None,
        *,
        spent: bool = False,
    ) -> tuple[Tensor, Tensor] | None:
        given = [(below, 1.0), (above, self.strength), (push, -1.0)]
        if all(part is None for part, _ in given):
            return None
        state = _tidy(known[0])
        half = torch.empty_like(state)
        total = above if above is not None and spent and _alike(above, state) else None
        total = torch.empty_like(state) if total is None else total
        parts = [state if part is None else part for part, _ in given]
        weights = tuple(0.0 if part is None else share for part, share in given)
        rows = _flat(state, *parts, total, half)
        self.loops.swing(rows[0], rows[1:4], weights, self.form, *rows[4:])
        return total, half

    def middle(self, known: tuple[Tensor, ...], total: Tensor, half: Tensor) -> Tensor:
        center = _tidy(known[0])
        found = torch.empty_like(center)
        state, moved, apart, out = _flat(center, total, half, found)
        self.loops.middle(state, moved, apart, self.form, out)
        return found

    def bend(self, new: Moved, old: Moved, before: Tensor) -> Tensor:
        found = torch.empty(5, len(new.state), dtype=torch.float64)
        fed = new.above is not None
        above = [m.state if m.above is None else m.above for m in (new, old)]
        rows = _flat(new.state, old.state, new.total, old.total, *above, before)
        self.loops.bend(rows[:2], rows[2:4], rows[4:6], rows[6], fed, found.numpy())
        return found

    def factors(self, bent: Tensor) -> tuple[Tensor, Tensor]:
        one, other = torch.empty_like(bent[0]), torch.empty_like(bent[0])
        self.loops.factors(bent.numpy(), TINY, PARALLEL, FURTHEST, one.numpy(), other.numpy())
        return one, other

    def go_on(
        self, new: Tensor, old: Tensor, share: Tensor, *, spent: bool = False
    ) -> tuple[Tensor, Tensor]:
        new = _tidy(new)
        total, state = new if spent else torch.empty_like(new), torch.empty_like(new)
        rows = _flat(new, old, total, state)
        self.loops.go_on(*rows[:2], share.numpy(), self.form, *rows[2:])
        return total, state

    def overlap(self, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        found = torch.empty(len(a), dtype=torch.float64)
        self.loops.overlap(*_flat(a, b, c, d), found.numpy())
        return found

    def mix(
        self, new: Tensor, old: Tensor, one: Tensor, other: Tensor, *, spent: bool = False
    ) -> Tensor:
        new = _tidy(new)
        found = new if spent else torch.empty_like(new)
        a, b, out = _flat(new, old, found)
        self.loops.mix(a, b, one.numpy(), other.numpy(), out)
        return found

    def residual(self, after: Tensor, before: Tensor | None, slack: float | None = None) -> Tensor:
        found = torch.empty(len(after), dtype=torch.float64)
        rounding = ROUNDING_FLOOR * torch.finfo(after.dtype).eps
        floor = ACTIVITY_FLOOR * after[0].numel() ** 0.5 if slack is None else 0.0
        room = 1.0 if slack is None else slack
        if before is None:
            fine = self.loops.presence(_rows(after), floor, room, found.numpy())
        else:
            rows = _flat(after, before)
            fine = self.loops.residual(*rows, rounding, floor, room, found.numpy())
        return found if fine else super().residual(after, before, slack)


TINY = 1e-34
"""Below that, squares of single numbers begin to leave the range of float32."""

PARALLEL = 1e-6
"""One minus the squared cosine of two directions that differ by more than rounding."""

FURTHEST = 0.8, 5.0
"""What the factors of two passes may add up to beside one, and the most of the old one."""

FORMS: dict[type[Activation], tuple[float, float, float, float]] = {
    Tanh: (1.0, 1.0, 0.0, 0.0),
    Sigmoid: (2.0, 0.5, 0.5, -1.0),
    Logistic: (0.5, 0.5, 0.5, 0.0),
}
"""Gain, scale, base and offset of ``σ(u) = scale·tanh(gain·u + offset) + base``."""


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


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether one can take the place of the other."""
    return one.dtype == other.dtype and _same_order(one, other)


def _same_order(one: Tensor, other: Tensor) -> bool:
    """Whether numbers follow each other in the same order: what a dimension of one says of it is
    nothing."""
    if one.stride() == other.stride():
        return True
    both = zip(one.stride(), other.stride(), one.shape, strict=True)
    return all(a == b for a, b, count in both if count > 1)


def _in_memory_of(first: Tensor, other: Tensor) -> Tensor:
    """The second tensor in the order of memory of the first."""
    return other if _same_order(first, other) else torch.empty_like(first).copy_(other)


def _tidy(layer: Tensor) -> Tensor:
    """The layer, or a copy of it, in an order that what is written to rows can have too."""
    return layer if _in_rows(layer) else layer.contiguous()


def _in_rows(layer: Tensor) -> bool:
    """Whether samples follow each other in memory without a gap, their numbers in any order."""
    if layer.is_contiguous() or layer.is_contiguous(memory_format=torch.channels_last):
        return True
    count, numbers = len(layer), 1
    own = zip(layer.stride()[1:], layer.shape[1:], strict=True)
    for stride, size in sorted(each for each in own if each[1] > 1):
        if stride != numbers:
            return False
        numbers *= size
    return count == 1 or layer.stride(0) == numbers


def _rows(layer: Tensor) -> Any:
    """As rows of NumPy: the layer's own memory where it is `_in_rows`, and else a copy."""
    if not _in_rows(layer):
        return in_order(layer).reshape(len(layer), -1).numpy()
    count = len(layer)
    whole = layer.numel() // count if count else 0
    return layer.as_strided((count, whole), (whole, 1)).numpy()  # in one call
