"""Stacks whose couplings are linear, or become so once winners are known, relaxed by passes.

From an upward pass on, a pass goes down and up again and needs every coupling once in each
direction: what the last way up found is still right on the way down. After a way up the top's own
equation holds, so that what the way down changes is the residual, and a relaxation ends there.
Samples that have settled leave the batch.

Of two nudged phases the shift alone is relaxed, around the free equilibrium, top first. What ends
it is the shift's residual in the network's own nonlinear equations. How far the finite nudge moved
the center, and whether the winners of poolings are the same on both sides, is measured then: where
it is more than the tolerance, the general path takes over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toreqprop.energies.couplings.ways import Trail, Ways
from toreqprop.energies.stack import StackEnergy
from toreqprop.energies.system import System, in_order, per_sample
from toreqprop.kernels.reference import NUDGE_SLACK
from toreqprop.solution import Pushes, Solution, State, Status
from toreqprop.solvers.pass_steps import Steps, steps_of
from toreqprop.solvers.watch import Watch


@dataclass(frozen=True)
class Passes:
    """A stack of at least two layers without skips: the first one's drive, the ways between."""

    drive: Tensor
    ways: tuple[Ways, ...]
    steps: tuple[Steps, ...]

    @staticmethod
    def of(system: System, compiled: bool = True) -> Passes | None:
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
        drive = system.drive[0].detach()
        steps = [
            steps_of(field.layer_activation(layer), field.feedback, drive, compiled)
            for layer in range(len(field.couplings))
        ]
        return Passes(drive, tuple(found), tuple(steps))

    @property
    def top(self) -> int:
        return len(self.ways)

    def relax(self, start: State | None, *, tol: float, max_steps: int) -> Solution:
        """One phase without a nudge; its memory: all preactivations, then all trails."""
        work = _Work(self.top + 1)
        work.rising[0] = self.drive
        for layer in range(self.top + 1):
            if layer > 0:
                self._rise(work, layer)
            self._settle(work, layer)
            if start is not None:
                work.state[layer] = start[layer]
        kept = _Kept(self.drive, tol, max_steps)
        for step in range(max_steps):
            before = work.state[: self.top]
            for layer in reversed(range(self.top)):
                self._fall(work, layer)
                self._settle(work, layer)
            gaps = self._gaps(work, before)
            # At a given start the top's own equation does not hold yet.
            if kept.take(work, gaps, step > 0 or start is None):
                break
            for layer in range(1, self.top + 1):
                self._rise(work, layer)
                self._settle(work, layer)
        found = kept.finish(work)
        count = self.top + 1
        return kept.solution(tuple(found[:count]), memory=tuple(found[count:]))

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
        count = self.top + 1
        total, trails = self._known(free, memory)
        work = _Work(count)
        work.trails = trails
        work.moved = [tuple(torch.zeros_like(t) for t in trail) for trail in trails]
        work.pushes = [None if push is None else push[1] * push[0] for push in pushes]
        if work.pushes[self.top] is None:
            work.pushes[self.top] = torch.zeros_like(free[self.top])
        around = [steps.around(*both) for steps, *both in zip(self.steps, total, free, strict=True)]
        work.around = list(around)
        self._swing(work, self.top)
        kept = _Kept(self.drive, tol, max_steps)
        for _ in range(max_steps):
            before = work.state[: self.top]
            for layer in reversed(range(self.top)):
                self._fall(work, layer)
                self._swing(work, layer)
            gaps = self._gaps(work, before, NUDGE_SLACK)
            work.go_on(before[0], gaps[0])
            if kept.take(work, gaps, True):
                break
            for layer in range(1, count):
                self._lift(work, layer)
                self._swing(work, layer)
        found = kept.finish(work)
        halves, moves = found[:count], found[count : 2 * count]
        if kept.status is not Status.CONVERGED:
            return kept.solution(free, shift=tuple(halves))
        middles, drifts = [], []
        for layer in range(count):
            steps = self.steps[layer]
            middles.append(steps.middle(around[layer], moves[layer], halves[layer]))
            drifts.append(steps.residual(middles[-1], free[layer]))
        if not bool((torch.stack(drifts) <= tol).all()) or not self._mirrored(
            trails, found[2 * count :], tol
        ):
            return None
        known = tuple(t for trail in trails for t in trail)
        return kept.solution(tuple(middles), shift=tuple(halves), memory=known)

    def _known(self, free: State, memory: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Trail]]:
        """The preactivations and trails of the free equilibrium, remembered or found again."""
        count, trails = self.top + 1, [0, *(ways.trails for ways in self.ways)]
        if len(memory) == count + sum(trails):
            rest = iter(memory[count:])
            return list(memory[:count]), [tuple(next(rest) for _ in range(n)) for n in trails]
        work = _Work(count)
        work.state, work.rising[0] = list(free), self.drive
        for layer in range(1, count):
            self._rise(work, layer)
        for layer in range(self.top):
            self._fall(work, layer)
        for layer in range(count):
            work.total[layer], _ = self.steps[layer].settle(work.rising[layer], work.falling[layer])
        return work.total, work.trails

    def _gaps(self, work: _Work, before: list[Any], slack: float | None = None) -> list[Tensor]:
        """The residuals of the layers that a way down has changed."""
        both = zip(self.steps, work.state, before, strict=False)
        return [steps.residual(a, b, slack) for steps, a, b in both if a is not None]

    def _mirrored(self, trails: list[Trail], moved: list[Tensor], tol: float) -> bool:
        """Whether every coupling is the same on both sides."""
        rest = iter(moved)
        both = zip(self.ways, trails[1:], strict=True)
        return all(ways.holds(trail, tuple(next(rest) for _ in trail), tol) for ways, trail in both)

    def _rise(self, work: _Work, layer: int) -> None:
        work.rising[layer], work.trails[layer] = self.ways[layer - 1].rise(work.state[layer - 1])

    def _lift(self, work: _Work, layer: int) -> None:
        move = work.state[layer - 1]
        if move is not None:
            found = self.ways[layer - 1].lift(move, work.trails[layer])
            work.rising[layer], work.moved[layer] = found

    def _fall(self, work: _Work, layer: int) -> None:
        above = work.state[layer + 1]
        if above is not None:
            shape = torch.Size((len(above), *self._shape(work, layer)))
            work.falling[layer] = self.ways[layer].fall(above, shape, work.trails[layer + 1])

    def _shape(self, work: _Work, layer: int) -> torch.Size:
        known = work.state[layer]
        return work.around[layer][0].shape[1:] if known is None else known.shape[1:]

    def _settle(self, work: _Work, layer: int) -> None:
        found = self.steps[layer].settle(work.rising[layer], work.falling[layer])
        work.total[layer], work.state[layer] = found

    def _swing(self, work: _Work, layer: int) -> None:
        """What a nudge moves a layer by."""
        found = self.steps[layer].swing(
            work.around[layer], work.rising[layer], work.falling[layer], work.pushes[layer]
        )
        if found is not None:
            work.total[layer], work.state[layer] = found


class _Work:
    """What a relaxation has in hand, layer by layer; None for what is still zero."""

    def __init__(self, layers: int) -> None:
        self.state: list[Any] = [None] * layers
        self.rising: list[Any] = [None] * layers
        self.falling: list[Any] = [None] * layers
        self.total: list[Any] = [None] * layers
        self.pushes: list[Any] = [None] * layers
        self.trails: list[Trail] = [()] * layers
        self.moved: list[Trail] = [()] * layers
        self.around: list[tuple[Tensor, ...]] = [()] * layers
        self.gap: list[Any] = [None]

    def go_on(self, before: Tensor | None, gap: Tensor) -> None:
        """Move the lowest layer on along its last change, as far as the ratio ρ of the last two
        says: ``ρ + ρ² + … = ρ/(1 − ρ)`` of it, `FURTHEST` at most.

        A nudge reaches that layer last, and falls short of it by what passes to come would add.
        The gap (batch,) was measured before that; what the equations leave then is below it:
        passes of an energy shrink every part of a change by factors m from zero to one, and these
        are now ``(m − ρ)/(1 − ρ)``.
        """
        last, self.gap[0] = self.gap[0], gap
        if last is None or before is None:
            return
        ratio = torch.where(gap < last, gap / last, 0.0)
        share = (ratio / (1 - ratio)).clamp_max(FURTHEST).to(before.dtype)
        self.state[0] = torch.lerp(before, self.state[0], 1 + per_sample(share, before))

    def pick(self, rows: Tensor) -> None:
        """Go on with these samples alone."""
        for name in ("state", "rising", "falling", "total", "pushes", "gap"):
            chosen = [None if t is None else _rows(t, rows) for t in getattr(self, name)]
            setattr(self, name, chosen)
        for name in ("trails", "moved", "around"):
            setattr(self, name, [tuple(_rows(t, rows) for t in ts) for ts in getattr(self, name)])

    def outcome(self) -> list[Tensor]:
        """States, totals, and what the last way up found out."""
        last = self.moved if self.around[0] else self.trails
        return [*self.state, *self.total, *(t for trail in last for t in trail)]


class _Kept:
    """Each sample as it was when it had settled, and how it all ended."""

    def __init__(self, like: Tensor, tol: float, most: int) -> None:
        self.tol, self.watch = tol, Watch(like, most)
        self.residual = torch.full((len(like),), torch.inf, dtype=torch.float64, device=like.device)
        self.worst, self.relative = self.residual, self.residual.unsqueeze(0)
        self.rows: Tensor | None = None
        self.stored: Tensor | None = None
        self.found: list[Tensor] = []

    @property
    def status(self) -> Status:
        return self.watch.status

    def take(self, work: _Work, gaps: list[Tensor], may_end: bool) -> bool:
        """Set aside what has settled, and say whether that is all; gaps (batch,) by layer."""
        self.relative = torch.stack(gaps)
        self.worst = self.relative.amax(0)
        good = self.worst <= self.tol if may_end else torch.zeros_like(self.worst, dtype=torch.bool)
        done = good if self.stored is None else good | self.stored
        over = self.watch.over(done, self.worst)
        if self.watch.pace > 1:
            self._merge(work)
            self.stored = self.watch.frozen(done)
        elif not over and self.watch.frozen(done) is not None:
            self._store(work, good if self.stored is None else good & ~self.stored)
            self._leave(work, done)
        return over

    def _leave(self, work: _Work, done: Tensor) -> None:
        """Go on without what is done, where that is worth it."""
        self.stored = done
        rows = (~done).nonzero().squeeze(1)
        if len(rows) <= _WORTH_LEAVING * len(done):
            work.pick(rows)
            self.worst, self.stored = self.worst[rows], None
            self.rows = rows if self.rows is None else self.rows[rows]

    def _merge(self, work: _Work) -> None:
        """Keep all samples as they are now, but for those stored: without asking which."""
        now = work.outcome()
        if self.stored is None:
            self.found, self.residual = now, self.worst
            return
        self.found = [
            torch.where(per_sample(self.stored, a), a, b)
            for a, b in zip(self.found, now, strict=True)
        ]
        self.residual = torch.where(self.stored, self.residual, self.worst)

    def finish(self, work: _Work) -> list[Tensor]:
        """Everything, those included that have not settled."""
        if self.watch.pace > 1:
            return self.found
        if not self.found:
            self.residual = self.worst
            return work.outcome()
        everyone = torch.ones_like(self.worst, dtype=torch.bool)
        self._store(work, everyone if self.stored is None else ~self.stored)
        return self.found

    def _store(self, work: _Work, those: Tensor) -> None:
        outcome = work.outcome()
        if not self.found:
            self.found = [torch.empty_like(t) for t in outcome]
        here = those.nonzero().squeeze(1)
        there = here if self.rows is None else self.rows[here]
        self.residual[there] = self.worst[here]
        for kept, values in zip(self.found, outcome, strict=True):
            if kept.dim() == 4 and not kept.is_contiguous():
                kept, values = (maps.permute(0, 2, 3, 1) for maps in (kept, values))
            kept[there] = values[here]

    def solution(self, state: State, *, shift: State = (), memory: Trail = ()) -> Solution:
        layer = None
        if self.status is not Status.CONVERGED:
            layer = int(self.relative.nan_to_num(torch.inf).amax(1).argmax())
        return Solution(state, self.watch.steps, self.residual, self.status, shift, layer, memory)


FURTHEST = 0.5
"""The largest share of its last change that a layer is moved on by: no factor then exceeds one."""

_WORTH_LEAVING = 0.75
"""The share of samples still at work below which the others are taken out of the batch."""


def _rows(values: Tensor, rows: Tensor) -> Tensor:
    """Some samples, in the same order of memory."""
    if values.dim() == 4 and not values.is_contiguous():
        return in_order(values)[rows].permute(0, 3, 1, 2)
    return values[rows]
