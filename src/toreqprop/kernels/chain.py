"""Stacks of dense tanh layers, relaxed by passes down and up; products stay with PyTorch.

A pass down and up needs every coupling once in each direction: what the last pass upward computed
is still right on the way down. Samples that have converged are dropped from the products. Of the
two nudged phases the shift alone is relaxed, around a center that is taken to be as settled as the
free phase left it (its residual ended that phase, and is not measured again): what is measured is
the shift's own change and how far the nudge moves the center, which is settled anew where that is
more than the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toreqprop.kernels import chain_loops as loops
from toreqprop.kernels.base import status
from toreqprop.kernels.reference import ACTIVITY_FLOOR, DRIFT, NUDGE_SLACK, ROUNDING_FLOOR
from toreqprop.solution import Solution, State

PACKED = 0.75
"""Samples still relaxing are packed together where they are at most this part of those that are
computed: copying them costs as much as a small product."""

RECENTRED = 2
"""How often the center may be settled anew before the general path takes over."""


@dataclass(frozen=True)
class Chain:
    """``s_l = tanh(W_l s_{l−1} + b_l + γ·W_{l+1}ᵀ s_{l+1})`` with the first layer's drive.

    ``weights`` and ``biases`` are those between layers, one less than there are layers; ``memory``
    is how many past passes are extrapolated from.
    """

    drive: Tensor
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    feedback: float
    memory: int = 0

    def relax(self, start: State | None, *, tol: float, max_steps: int) -> Solution:
        """Passes down and up, each sample until what another would change is below ``tol``."""
        free = _FreePhase(self, start)
        steps, remaining, finite = 0, 1, True
        while remaining and finite and steps < max_steps:
            free.pack(remaining)
            free.sweep()
            steps += 1
            remaining, finite = free.judge(tol, final=steps == max_steps)
        return free.solution(steps, finite)

    def relax_pair(
        self, pushes: list[Tensor | None], free: State, *, tol: float, max_steps: int
    ) -> Solution | None:
        """Both phases under opposite ``pushes`` of preactivations, from the free equilibrium.

        None where the center has to move again and again, at a tolerance below the square of the
        nudge: relaxing both together, as the general path does, is faster then.
        """
        nudged = _NudgedPhases(self, pushes, free)
        halves, remaining, finite, recentred = 0, 1, True, 0
        while remaining and finite and halves < 2 * max_steps:
            nudged.pack(remaining)
            nudged.sweep(downwards=halves % 2 == 0)
            halves += 1
            final = halves == 2 * max_steps
            remaining, finite, drift = nudged.judge(tol, halves % 2 == 1, final)
            if remaining and drift > DRIFT * tol:
                recentred += 1
                if recentred > RECENTRED:
                    return None
                nudged.recentre()
        return nudged.solution((halves + 1) // 2, finite)

    def widths(self) -> list[int]:
        """Neurons of each layer."""
        return [self.drive.shape[1], *(len(w) for w in self.weights)]

    def floors(self) -> tuple[float, float]:
        """What rounding leaves of a residual; the least activity of a neuron it is relative to."""
        return ROUNDING_FLOOR * torch.finfo(self.drive.dtype).eps, ACTIVITY_FLOOR


class _Layout:
    """Samples in rows, their layers side by side."""

    def __init__(self, chain: Chain) -> None:
        self.chain, self.widths = chain, chain.widths()
        self.top, self.batch = len(chain.weights), len(chain.drive)
        self.bounds = np.cumsum([0, *self.widths])
        self.places = [(int(a), int(b)) for a, b in zip(self.bounds, self.bounds[1:], strict=False)]
        self.done = np.zeros(self.batch, bool)

    def empty(self, *before: int) -> Tensor:
        return self.chain.drive.new_empty(*before, self.batch, self.places[-1][1])

    def refresh(self) -> None:
        """After tensors were exchanged: the same memory as arrays, for compiled code."""
        tensors = {name: t for name, t in vars(self).items() if isinstance(t, Tensor)}
        self.arrays = {name: tensor.numpy() for name, tensor in tensors.items()}

    def layers(self, rows: Tensor) -> Sequence[Tensor]:
        """Views of each layer."""
        return rows.split_with_sizes(self.widths, -1)

    def kept(self, remaining: int) -> Tensor | None:
        """Which rows to go on with; None where all of them may stay."""
        if remaining > PACKED * len(self.done):
            return None
        rows = np.flatnonzero(~self.done)
        self.done = self.done[rows]
        return torch.from_numpy(rows)

    def result(self, state: Tensor, steps: int, finite: bool, residuals: np.ndarray) -> Solution:
        """The solution, from the residual and the worst layer of each sample."""
        layer, good = None, finite and bool(self.done.all())
        if not good:
            worst = int(np.nan_to_num(residuals[:, 0], nan=np.inf).argmax())
            layer = int(residuals[worst, 1])
        parts = tuple(part.contiguous() for part in self.layers(state))
        residual = torch.from_numpy(residuals[:, 0].copy())
        return Solution(parts, steps, residual, status(good, finite), layer=layer)


class _FreePhase(_Layout):
    """Passes of one phase, the last few of which are remembered.

    A pass writes its images and products into the slot of its turn. Without memory the next starts
    there; with it, from the shares of the last few whose residuals cancel best (Anderson), and
    products, being linear, are mixed alike. The same mixture is the result.
    """

    def __init__(self, chain: Chain, start: State | None) -> None:
        super().__init__(chain)
        self.slots, self.turn = 1 + chain.memory, 0
        self.images, self.products = self.empty(self.slots), self.empty(self.slots)
        self.gaps = self.empty(self.slots) if chain.memory else self.images
        self.state, self.up, self.down = self.empty(), self.empty(), self.empty()
        self.tables = np.zeros((self.batch if chain.memory else 0, self.slots, self.slots))
        self.ledger = np.zeros((self.batch, 6))
        self.ledger[:, 0] = np.arange(self.batch)
        # From nothing to the first pass upwards everything changes.
        self.ledger[:, 1] = 1.0 if start is None else 0.0
        self.residuals = np.zeros((self.batch, 2))
        self.found = self.empty()
        self.refresh()
        state, up = self.layers(self.state), self.layers(self.up)
        up[0].copy_(chain.drive)
        for layer in range(self.top + 1):
            if layer > 0:
                self._rise(state, up, layer)
            if start is None:
                self._settle(self.arrays["up"], layer, 0.0, self.arrays["state"])
            else:
                state[layer].copy_(start[layer])

    def _rise(self, state: Sequence[Tensor], up: Sequence[Tensor], layer: int) -> None:
        weight, bias = self.chain.weights[layer - 1].mT, self.chain.biases[layer - 1]
        torch.addmm(bias, state[layer - 1], weight, out=up[layer])

    def _settle(self, up: np.ndarray, layer: int, strength: float, out: np.ndarray) -> None:
        loops.settle(up, self.arrays["down"], self.places[layer], strength, out)

    def sweep(self) -> None:
        """Down and up."""
        new, up = self.layers(self.images[self.turn]), self.layers(self.products[self.turn])
        state, down, feedback = self.layers(self.state), self.layers(self.down), self.chain.feedback
        below, fresh, rising = (self.arrays[name] for name in ("up", "images", "products"))
        fresh, rising = fresh[self.turn], rising[self.turn]
        for layer in range(self.top - 1, -1, -1):
            above = new if layer + 1 < self.top else state
            torch.mm(above[layer + 1], self.chain.weights[layer], out=down[layer])
            self._settle(below, layer, feedback, fresh)
        for layer in range(1, self.top + 1):
            self._rise(new, up, layer)
            self._settle(rising, layer, feedback if layer < self.top else 0.0, fresh)
        if self.top == 0:
            self._settle(below, 0, 0.0, fresh)

    def judge(self, tol: float, final: bool) -> tuple[int, bool]:
        """How many samples go on, and whether all is finite."""
        given = self.arrays
        found = loops.advance(
            given["images"], given["products"], given["gaps"], self.turn, given["state"],
            given["up"], self.bounds, (tol, *self.chain.floors()), final, self.tables, self.ledger,
            self.done, given["found"],
        )  # fmt: skip
        self.turn = (self.turn + 1) % self.slots
        self.residuals[self.ledger[:, 0].astype(np.int64)] = self.ledger[:, 3:5]
        return found

    def pack(self, remaining: int) -> None:
        """Go on with the samples that have not converged."""
        rows = self.kept(remaining) if self.done.any() else None
        if rows is None:
            return
        self.images, self.products = (t.index_select(1, rows) for t in (self.images, self.products))
        self.gaps = self.gaps.index_select(1, rows) if self.chain.memory else self.images
        self.state, self.up = self.state.index_select(0, rows), self.up.index_select(0, rows)
        self.down = torch.empty_like(self.state)
        self.refresh()
        self.ledger = self.ledger[rows.numpy()]
        if self.chain.memory:
            self.tables = self.tables[rows.numpy()]

    def solution(self, steps: int, finite: bool) -> Solution:
        return self.result(self.found, steps, finite, self.residuals)


class _NudgedPhases(_Layout):
    """Half passes of the shift, downwards first, as the nudge enters at the top.

    With memory every layer's shift is then scaled so that together they make the energy smallest:
    without, each pass adds only the next term of a geometric series.
    """

    def __init__(self, chain: Chain, pushes: list[Tensor | None], free: State) -> None:
        super().__init__(chain)
        self.center = torch.cat(free, 1) if self.top else free[0].contiguous()
        self.image, self.drive = self.center, chain.drive
        self.push = self.empty()
        self.pushed = np.array([push is not None for push in pushes])
        for part, push in zip(self.layers(self.push), pushes, strict=True):
            if push is not None:
                part.copy_(push)
        self.heat = chain.feedback ** np.arange(-float(self.top), 1.0)
        self.up, self.down = self.empty().zero_(), self.empty()
        if not self.pushed[-1]:
            self.layers(self.down)[-1].zero_()
        self.shift, self.fresh, self.middle = self.empty().zero_(), self.empty(), self.empty()
        self.found = self.empty(2)
        self.ledger = np.zeros((self.batch, 3))
        self.ledger[:, 0] = np.arange(self.batch)
        self.residuals = np.zeros((self.batch, 2))
        # From nothing to the first shift everything changes, where there is more than one layer.
        first = 1 / NUDGE_SLACK if self.top else 0.0
        self.changes = np.full((self.batch, self.top + 1, 2), first)
        self.curves = np.full((self.batch, self.top + 1), -1.0)
        self.refresh()
        self._settle(self.top, "shift")

    def _settle(self, layer: int, out: str) -> None:
        strength, given = self.chain.feedback if layer < self.top else 0.0, self.arrays
        loops.settle_shift(
            given["image"], given["up"], given["down"], given["push"], self.places[layer],
            strength, self.pushed[layer], given["middle"], given[out],
        )  # fmt: skip

    def sweep(self, downwards: bool) -> None:
        """Half a pass."""
        new, old = self.layers(self.fresh), self.layers(self.shift)
        if downwards:
            down = self.layers(self.down)
            for layer in range(self.top - 1, -1, -1):
                above = (new if layer + 1 < self.top else old)[layer + 1]
                torch.mm(above, self.chain.weights[layer], out=down[layer])
                self._settle(layer, "fresh")
            return
        up = self.layers(self.up)
        for layer in range(1, self.top + 1):
            below = (new if layer > 1 else old)[layer - 1]
            torch.mm(below, self.chain.weights[layer - 1].mT, out=up[layer])
            self._settle(layer, "fresh")

    def judge(self, tol: float, downwards: bool, final: bool) -> tuple[int, bool, float]:
        """How many samples go on, whether all is finite, and the largest drift of a center."""
        given = self.arrays
        found = loops.balance(
            downwards, self.chain.memory > 0 and self.top > 0, given["fresh"], given["middle"],
            given["shift"], given["center"], given["up"], given["down"], given["push"],
            self.pushed, self.chain.feedback, self.heat, self.bounds,
            (tol, *self.chain.floors(), NUDGE_SLACK), final, self.ledger, self.changes,
            self.curves, self.done, given["found"],
        )  # fmt: skip
        self.residuals[self.ledger[:, 0].astype(np.int64)] = self.ledger[:, 1:]
        return found

    def pack(self, remaining: int) -> None:
        """Go on with the samples that have not converged."""
        rows = self.kept(remaining) if self.done.any() else None
        if rows is None:
            return
        same = self.image is self.center
        for name in ("center", "push", "up", "down", "shift", "fresh", "middle", "drive"):
            setattr(self, name, getattr(self, name).index_select(0, rows))
        self.image = self.center if same else self.image.index_select(0, rows)
        self.refresh()
        for name in ("ledger", "changes", "curves"):
            setattr(self, name, getattr(self, name)[rows.numpy()])

    def recentre(self) -> None:
        """Around the middle of both phases from now on: its image is evaluated."""
        self.center = self.middle.clone()
        center, image = self.layers(self.center), torch.empty_like(self.center)
        up, down = torch.empty_like(image), torch.empty_like(image)
        rising, falling, chain = self.layers(up), self.layers(down), self.chain
        rising[0].copy_(self.drive)
        for layer in range(self.top + 1):
            if layer > 0:
                weight, bias = chain.weights[layer - 1].mT, chain.biases[layer - 1]
                torch.addmm(bias, center[layer - 1], weight, out=rising[layer])
            if layer < self.top:
                torch.mm(center[layer + 1], chain.weights[layer], out=falling[layer])
            strength = chain.feedback if layer < self.top else 0.0
            loops.settle(up.numpy(), down.numpy(), self.places[layer], strength, image.numpy())
        self.image = image
        self.refresh()

    def solution(self, steps: int, finite: bool) -> Solution:
        found = self.result(self.found[0], steps, finite, self.residuals)
        shift = tuple(part.contiguous() for part in self.layers(self.found[1]))
        return found.but(shift=shift)
