"""Stacks whose couplings are linear, or become so once winners are known, relaxed by passes.

From an upward pass on, a pass goes down and up again and needs every coupling once in each
direction: what the last way up found is still right on the way down. After a way up the top's own
equation holds, so that what the way down changes is the residual, and a relaxation ends there.
It is the residual of the state that the way down began at: what is returned is half a pass further,
and with a memory its top is brought up once more. Samples that have settled leave the batch.

Of two nudged phases the shift alone is relaxed, around the free equilibrium, top first. What ends
it is the shift's residual in the network's own nonlinear equations. How far the finite nudge moved
the center, and whether the winners of poolings are the same on both sides, is measured then: where
it is more than the tolerance, the general path takes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toreqprop.energies.couplings.ways import PackedConvolutionWays, Trail, Ways
from toreqprop.energies.stack import StackEnergy
from toreqprop.energies.system import System
from toreqprop.kernels.reference import NUDGE_SLACK
from toreqprop.solution import Pushes, Solution, State, Status
from toreqprop.solvers.pass_energy import downhill, geometric
from toreqprop.solvers.pass_steps import Moved, Steps, steps_of
from toreqprop.solvers.pass_work import Kept, Work


@dataclass(frozen=True)
class Passes:
    """A stack of at least two layers without skips: the first one's drive, the ways between.

    ``packing`` is the first of them where its lower map is kept in another order of memory inside;
    ``decided`` is what the way of the input has decided. ``going_on``: whether a
    pass goes on along what it and the one before have changed.
    """

    drive: Tensor
    ways: tuple[Ways, ...]
    steps: tuple[Steps, ...]
    heat: list[float]
    packing: PackedConvolutionWays | None = None
    decided: Trail = ()
    going_on: bool = True

    @staticmethod
    def of(system: System, compiled: bool = True, going_on: bool = True) -> Passes | None:
        """The system as passes take it, where they serve it."""
        field = system.field
        if not isinstance(field, StackEnergy) or field.skips or len(field.couplings) < 2:
            return None
        if not field.one_way or system.drive[0].is_complex():
            return None
        prepared, below = field.prepared(system.drive), system.drive[0][:1]
        found: list[Ways] = []
        for number, coupling in enumerate(field.couplings[1:], start=1):
            ways = coupling.ways(prepared[number], tuple(below.shape[1:]))
            if ways is None:
                return None
            found.append(ways)
            if number + 1 < len(field.couplings):
                below = coupling.up(below, prepared[number], None)
        drive, packing = system.drive[0].detach(), found[0].packed()
        if packing is not None:
            found[0] = packing
        steps = [
            steps_of(field.layer_activation(layer), field.feedback, drive, compiled)
            for layer in range(len(field.couplings))
        ]
        heat = [field.temperature(layer) for layer in range(len(field.couplings))]
        decided = field.first_trail(system.drive)
        return Passes(drive, tuple(found), tuple(steps), heat, packing, decided, going_on)

    @property
    def top(self) -> int:
        return len(self.ways)

    def relax(self, start: State | None, *, tol: float, max_steps: int) -> Solution:
        """One phase without a nudge; its memory: the lowest layer where that is packed, all
        preactivations, then all trails."""
        work = Work(self.top + 1)
        work.rising[0] = self._packed(self.drive)
        for layer in range(self.top + 1):
            if layer > 0:
                self._rise(work, layer)
            self._settle(work, layer)
            if start is not None:
                work.state[layer] = self._inside(start)[layer]
        kept = Kept(self.drive, tol, max_steps)
        last: list[Moved] = []
        for step in range(max_steps):
            before = work.state[: self.top]
            for layer in reversed(range(self.top)):
                self._fall(work, layer)
                self._settle(work, layer)
            gaps = self._gaps(work, before)
            changed = list(zip(work.state, before, strict=False))
            if last:
                work.go_on(self.steps, self._further(work, last, before), last)
            work.changed = changed
            # At a given start the top's own equation does not hold yet.
            if kept.take(work, gaps, step > 0 or start is None):
                break
            if self.going_on and (step > 0 or start is None):
                last = work.layers(self.steps)
            for layer in range(1, self.top + 1):
                self._rise(work, layer)
                self._settle(work, layer)
        found, count = kept.finish(work), self.top + 1
        if self.going_on:
            # Of what the last way down changed, the top is not the image yet: it is what a loss
            # looks at, and one product takes most of its error away.
            rising, trail = self.ways[-1].rise(found[self.top - 1])
            found[count + self.top], found[self.top] = self.steps[-1].settle(rising, None)
            found[len(found) - len(trail) :] = trail
        known = found[count:] if self.packing is None else [found[0], *found[count:]]
        return kept.solution(self._outside(found[:count])[0], memory=tuple(known))

    def relax_pair(
        self,
        pushes: Pushes,
        free: State,
        memory: tuple[Tensor, ...],
        *,
        tol: float,
        max_steps: int,
    ) -> Solution | None:
        """Both phases under opposite ``pushes`` of preactivations, from the free equilibrium, with
        the memory of its relaxation; None where they are no mirror images to the tolerance."""
        count, given = self.top + 1, free
        free, total, trails = self._known(free, memory)
        work = Work(count)
        work.trails = trails
        known = zip(self.ways, free, trails[1:], strict=False)
        work.moved = [(), *(ways.unmoved(pre, trail) for ways, pre, trail in known)]
        forces = [None if push is None else push[1] * push[0] for push in pushes]
        work.pushes = list(self._inside(forces))
        if work.pushes[self.top] is None:
            work.pushes[self.top] = torch.zeros_like(free[self.top])
        around = [steps.around(*both) for steps, *both in zip(self.steps, total, free, strict=True)]
        work.around = list(around)
        self._swing(work, self.top)
        kept = Kept(self.drive, tol, max_steps)
        last: list[Moved] = []
        for _ in range(max_steps):
            before = work.state[: self.top]
            for layer in reversed(range(self.top)):
                self._fall(work, layer)
                self._swing(work, layer)
            gaps = self._gaps(work, before, NUDGE_SLACK)
            if last:
                work.improve(self.steps, self.heat, last, before)
            if kept.take(work, gaps, True):
                break
            if self.going_on:
                last = work.layers(self.steps)
            for layer in range(1, count):
                self._lift(work, layer)
                self._swing(work, layer)
        found = kept.finish(work)
        halves, moves = found[:count], found[count : 2 * count]
        if kept.status is not Status.CONVERGED:
            return kept.solution(given, shift=self._outside(halves)[0])
        middles, drifts = [], []
        for layer in range(count):
            steps = self.steps[layer]
            middles.append(steps.middle(around[layer], moves[layer], halves[layer]))
            drifts.append(steps.residual(middles[-1], free[layer]))
        if not bool((torch.stack(drifts) <= tol).all()) or not self._mirrored(
            trails, found[2 * count :], tol
        ):
            return None
        decided = (*self.decided, *(t for trail in trails for t in trail))
        state, shift = self._outside(middles, halves)
        return kept.solution(state, shift=shift, memory=decided)

    def _inside(self, layers: Sequence[Any]) -> tuple[Any, ...]:
        """Layers as they are kept here."""
        first, *rest = layers
        return (first if first is None else self._packed(first), *rest)

    def _packed(self, first: Tensor) -> Tensor:
        return first if self.packing is None else self.packing.pack(first)

    def _outside(self, *several: Sequence[Tensor]) -> list[State]:
        """Layers as everybody else knows them."""
        first = [layers[0] for layers in several]
        if self.packing is not None:
            first = self.packing.unpack(*first)
        return [(own, *layers[1:]) for own, layers in zip(first, several, strict=True)]

    def _known(
        self, free: State, memory: tuple[Tensor, ...]
    ) -> tuple[tuple[Any, ...], list[Tensor], list[Trail]]:
        """The free equilibrium as it is kept here, its preactivations and trails, remembered or
        found again."""
        count, trails = self.top + 1, [0, *(ways.trails for ways in self.ways)]
        packed = self.packing is not None
        if len(memory) == packed + count + sum(trails):
            rest = iter(memory)
            inside = (next(rest), *free[1:]) if packed else tuple(free)
            total = [next(rest) for _ in range(count)]
            return inside, total, [tuple(next(rest) for _ in range(n)) for n in trails]
        work, inside = Work(count), self._inside(free)
        work.state, work.rising[0] = list(inside), self._packed(self.drive)
        for layer in range(1, count):
            self._rise(work, layer)
        for layer in range(self.top):
            self._fall(work, layer)
        for layer in range(count):
            work.total[layer], _ = self.steps[layer].settle(work.rising[layer], work.falling[layer])
        return inside, work.total, work.trails

    def _further(self, work: Work, last: list[Moved], before: list[Tensor]) -> Tensor:
        """By how much of its last change a free phase is moved on."""
        if any(ways.trails for ways in self.ways):
            return geometric(self.steps, self.heat, work.state, before, work.changed)
        return downhill(self.steps, self.heat, work.layers(self.steps), last, before)

    def _gaps(self, work: Work, before: list[Any], slack: float | None = None) -> list[Tensor]:
        """The residuals of the layers that a way down has changed."""
        both = zip(self.steps, work.state, before, strict=False)
        return [steps.residual(a, b, slack) for steps, a, b in both if a is not None]

    def _mirrored(self, trails: list[Trail], moved: list[Tensor], tol: float) -> bool:
        """Whether every coupling is the same on both sides."""
        rest = iter(moved)
        both = zip(self.ways, trails[1:], strict=True)
        return all(ways.holds(trail, tuple(next(rest) for _ in trail), tol) for ways, trail in both)

    def _rise(self, work: Work, layer: int) -> None:
        work.rising[layer], work.trails[layer] = self.ways[layer - 1].rise(work.state[layer - 1])

    def _lift(self, work: Work, layer: int) -> None:
        move = work.state[layer - 1]
        if move is not None:
            found = self.ways[layer - 1].lift(move, work.trails[layer])
            work.rising[layer], work.moved[layer] = found

    def _fall(self, work: Work, layer: int) -> None:
        above = work.state[layer + 1]
        if above is not None:
            shape = torch.Size((len(above), *self._shape(work, layer)))
            work.falling[layer] = self.ways[layer].fall(above, shape, work.trails[layer + 1])

    def _shape(self, work: Work, layer: int) -> torch.Size:
        known = work.state[layer]
        return work.around[layer][0].shape[1:] if known is None else known.shape[1:]

    def _settle(self, work: Work, layer: int) -> None:
        found = self.steps[layer].settle(
            work.rising[layer], work.falling[layer], spent=self._spent(work, layer)
        )
        work.total[layer], work.state[layer] = found

    def _spent(self, work: Work, layer: int) -> bool:
        """Whether nobody looks again at what has come down to a layer: of the lowest it is all
        that changes in its preactivation."""
        return layer == 0 and work.pushes[0] is None and self.ways[0].fresh

    def _swing(self, work: Work, layer: int) -> None:
        """What a nudge moves a layer by."""
        found = self.steps[layer].swing(
            work.around[layer],
            work.rising[layer],
            work.falling[layer],
            work.pushes[layer],
            spent=self._spent(work, layer),
        )
        if found is not None:
            work.total[layer], work.state[layer] = found
