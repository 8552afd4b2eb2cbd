"""What passes through a stack have in hand, and what they keep of samples that have settled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from toreqprop.energies.couplings.ways import Trail
from toreqprop.energies.system import in_order, per_sample
from toreqprop.solution import Solution, State, Status
from toreqprop.solvers.pass_energy import least_energy
from toreqprop.solvers.pass_steps import Moved, Steps
from toreqprop.solvers.watch import Watch


class Work:
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
        self.changed: list[tuple[Tensor, Tensor]] = []

    def layers(self, steps: tuple[Steps, ...]) -> list[Moved]:
        """Every layer as the last pass has left it."""
        above = [
            None if t is None else own.strength * t
            for own, t in zip(steps[1:], self.falling[1:], strict=True)
        ]
        first = self._first_above(steps[0])
        return list(map(Moved, self.state, self.total, [first, *above]))

    def _first_above(self, own: Steps) -> Any:
        """What feeds the lowest layer: all of its preactivation, but for its drive, which does not
        change, and what pushes it."""
        return self.total[0] if self.pushes[0] is None else own.strength * self.falling[0]

    def go_on(self, steps: tuple[Steps, ...], share: Tensor, old: list[Moved]) -> None:
        """Move all layers on by this share of what the last pass has changed."""
        self._mix_falling(steps, old, 1 + share, -share)
        for layer, (own, past) in enumerate(zip(steps, old, strict=True)):
            total = self.total[layer]
            found = own.go_on(total, past.total, share, spent=total is not self.rising[layer])
            self.total[layer], self.state[layer] = found

    def improve(
        self, steps: tuple[Steps, ...], heat: list[float], old: list[Moved], before: list[Tensor]
    ) -> None:
        """Go on to the least energy between this pass and the one before.

        Residuals were measured before that. What is left of them is less in the norm of the
        energy, in which a pass shrinks every part of an error by a factor from zero to one.
        """
        both = least_energy(steps, heat, self.layers(steps), old, before)
        self._mix_falling(steps, old, *both)
        for layer, (own, past) in enumerate(zip(steps, old, strict=True)):
            # Both are of this pass alone.
            self.total[layer] = own.mix(self.total[layer], past.total, *both, spent=True)
            self.state[layer] = own.mix(self.state[layer], past.state, *both, spent=True)

    def _mix_falling(
        self, steps: tuple[Steps, ...], old: list[Moved], one: Tensor, other: Tensor
    ) -> None:
        """What comes down to layers ``one`` times this pass's and ``other`` times that of the one
        before."""
        for layer, (own, past) in enumerate(zip(steps, old, strict=True)):
            if past.above is not None and past.above is not past.total:
                known = past.above / own.strength
                self.falling[layer] = own.mix(self.falling[layer], known, one, other)

    def pick(self, rows: Tensor) -> None:
        """Go on with these samples alone."""
        for name in ("state", "rising", "falling", "total", "pushes"):
            chosen = [None if t is None else _rows(t, rows) for t in getattr(self, name)]
            setattr(self, name, chosen)
        for name in ("trails", "moved", "around", "changed"):
            setattr(self, name, [tuple(_rows(t, rows) for t in ts) for ts in getattr(self, name)])

    def outcome(self) -> list[Tensor]:
        """States, totals, and what the last way up found out."""
        last = self.moved if self.around[0] else self.trails
        return [*self.state, *self.total, *(t for trail in last for t in trail)]


class Kept:
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

    def take(self, work: Work, gaps: list[Tensor], may_end: bool) -> bool:
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

    def _leave(self, work: Work, done: Tensor) -> None:
        """Go on without what is done, where that is worth it."""
        self.stored = done
        rows = (~done).nonzero().squeeze(1)
        if len(rows) <= _WORTH_LEAVING * len(done):
            work.pick(rows)
            self.worst, self.stored = self.worst[rows], None
            self.rows = rows if self.rows is None else self.rows[rows]

    def _merge(self, work: Work) -> None:
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

    def finish(self, work: Work) -> list[Tensor]:
        """Everything, those included that have not settled."""
        if self.watch.pace > 1:
            return self.found
        if not self.found:
            self.residual = self.worst
            return work.outcome()
        everyone = torch.ones_like(self.worst, dtype=torch.bool)
        self._store(work, everyone if self.stored is None else ~self.stored)
        return self.found

    def _store(self, work: Work, those: Tensor) -> None:
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


_WORTH_LEAVING = 0.75
"""The share of samples still at work below which the others are taken out of the batch."""


def _rows(values: Tensor, rows: Tensor) -> Tensor:
    """Some samples, in the same order of memory."""
    if values.dim() == 4 and not values.is_contiguous():
        return in_order(values)[rows].permute(0, 3, 1, 2)
    return values[rows]
