"""Stacks of dense tanh layers, relaxed by passes down and up; products stay with PyTorch.

Between two products one compiled loop adds what comes from both sides and applies tanh. A pass down
and up needs every coupling once in each direction: what the last pass upward computed is still
right on the way down. Of the two nudged phases the shift alone is relaxed, around a center that is
taken to be as settled as the free phase left it (its residual ended that phase, and is not measured
again): what is measured is the shift's own residual and how far the nudge moves the center, which
is settled anew where that is more than the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toreqprop.kernels import chain_loops as loops
from toreqprop.kernels.base import status
from toreqprop.kernels.reference import ACTIVITY_FLOOR, DRIFT, NUDGE_SLACK, ROUNDING_FLOOR
from toreqprop.solution import Solution, State


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
        """Passes down and up, each sample until every layer's residual is below ``tol``."""
        past = _Past(self, fixed=self.drive)
        state, up, down = past.state, past.up, self._buffers()
        for layer in range(past.top + 1):
            if layer > 0:
                self._up(state, up, layer)
            if start is None:
                self._settle(layer, up, down, 0.0, state)
            else:
                state[layer].copy_(start[layer])
        residual = np.zeros((len(state), len(self.drive)))
        kept = _Kept(len(self.drive), tol, max_steps)
        while not kept.finished:
            state, up, fresh, rising = past.begin()
            for layer in past.downwards():
                self._down((fresh if layer + 1 < past.top else state), down, layer)
                self._settle(layer, up, down, self.feedback, fresh)
            for layer in past.upwards():
                self._up(fresh, rising, layer)
                strength = self.feedback if layer < past.top else 0.0
                self._settle(layer, rising, down, strength, fresh)
            if past.top == 0:
                self._settle(0, up, down, 0.0, fresh)
            for layer, values in enumerate(fresh):
                before, constants = state[layer].numpy(), self._constants(layer)
                scale = past.scales[layer]
                loops.measure(values.numpy(), before, constants, residual[layer], scale)
            kept.take(fresh, residual)
            if not kept.finished:
                past.proceed(residual.max(0))
        return kept.solution()

    def relax_pair(
        self, pushes: list[Tensor | None], free: State, *, tol: float, max_steps: int
    ) -> Solution | None:
        """Both phases under opposite ``pushes`` of preactivations, from the free equilibrium.

        None where the center has to move again and again, at a tolerance below the square of the
        nudge: relaxing both together, as the general path does, is faster then.
        """
        past = _Past(self)
        center, images = list(free), list(free)
        middle, down = self._buffers(), self._zeros()
        still = [True] * len(free)
        residual = np.zeros((2, len(free), len(self.drive)))
        kept = _Kept(len(self.drive), tol, max_steps)
        recentred = 0
        while not kept.finished:
            half, up, fresh, rising = past.begin()
            for layer in past.downwards():
                if not still[layer + 1]:
                    self._down((fresh if layer + 1 < past.top else half), down, layer)
                self._settle_shift(layer, images, up, down, pushes, middle, fresh)
                still[layer] = still[layer] and still[layer + 1] and pushes[layer] is None
            for layer in past.upwards():
                if not still[layer - 1]:
                    self._up(fresh, rising, layer, shift=True)
                self._settle_shift(layer, images, rising, down, pushes, middle, fresh)
                still[layer] = still[layer] and still[layer - 1] and pushes[layer] is None
            if past.top == 0:
                self._settle_shift(0, images, up, down, pushes, middle, fresh)
            for layer, values in enumerate(fresh):
                loops.measure_shift(
                    middle[layer].numpy(), center[layer].numpy(), values.numpy(),
                    half[layer].numpy(), self._constants(layer), residual[1, layer],
                    residual[0, layer], past.scales[layer],
                )  # fmt: skip
            kept.take([*middle, *fresh], residual.max(0))
            if kept.finished:
                break
            past.proceed(residual[1].max(0))
            if float(residual[0].max()) > DRIFT * tol:
                recentred += 1
                if recentred > _RECENTRED:
                    return None
                center = [m.clone() for m in middle]
                images = self._images(center)
                past.forget()
        found = kept.solution()
        count = len(free)
        return found.but(state=found.state[:count], shift=found.state[count:])

    def _images(self, center: list[Tensor]) -> list[Tensor]:
        """``f(center)``, all layers at once."""
        up, down, images = [self.drive, *self._buffers()[1:]], self._buffers(), self._buffers()
        for layer in range(len(center)):
            if layer > 0:
                self._up(center, up, layer)
            if layer + 1 < len(center):
                self._down(center, down, layer)
            last = layer + 1 == len(center)
            self._settle(layer, up, down, 0.0 if last else self.feedback, images)
        return images

    def _up(self, state: list[Tensor], up: list[Tensor], layer: int, shift: bool = False) -> None:
        weight = self.weights[layer - 1].mT
        if shift:
            torch.mm(state[layer - 1], weight, out=up[layer])
        else:
            torch.addmm(self.biases[layer - 1], state[layer - 1], weight, out=up[layer])

    def _down(self, state: list[Tensor], down: list[Tensor], layer: int) -> None:
        torch.mm(state[layer + 1], self.weights[layer], out=down[layer])

    def _settle(
        self, layer: int, up: list[Tensor], down: list[Tensor], strength: float, out: list[Tensor]
    ) -> None:
        below = up[layer].numpy()
        above = down[layer].numpy() if strength else below
        loops.settle(below, above, strength, out[layer].numpy())

    def _settle_shift(
        self,
        layer: int,
        images: list[Tensor],
        up: list[Tensor],
        down: list[Tensor],
        pushes: list[Tensor | None],
        middle: list[Tensor],
        half: list[Tensor],
    ) -> None:
        below, push = up[layer].numpy(), pushes[layer]
        loops.settle_shift(
            images[layer].numpy(), below, down[layer].numpy(),
            below if push is None else push.numpy(),
            self.feedback if layer + 1 < len(images) else 0.0, 0.0 if push is None else 1.0,
            middle[layer].numpy(), half[layer].numpy(),
        )  # fmt: skip

    def _widths(self) -> list[int]:
        return [self.drive.shape[1], *(len(w) for w in self.weights)]

    def _buffers(self) -> list[Tensor]:
        return [self.drive.new_empty(len(self.drive), width) for width in self._widths()]

    def _zeros(self) -> list[Tensor]:
        return [self.drive.new_zeros(len(self.drive), width) for width in self._widths()]

    def _constants(self, layer: int) -> tuple[float, float, float]:
        """Rounding floor, activity floor, slack of a shift."""
        rounding = ROUNDING_FLOOR * torch.finfo(self.drive.dtype).eps
        return rounding, ACTIVITY_FLOOR * self._widths()[layer] ** 0.5, NUDGE_SLACK


_RECENTRED = 2


class _Past:
    """The passes that are remembered, and the state the next one starts from.

    A pass writes its images and products into the slot of its turn. Without memory the next starts
    there; with it, from the shares of the last few whose residuals cancel best (Anderson), and
    products, being linear, are mixed alike.
    """

    def __init__(self, chain: Chain, fixed: Tensor | None = None) -> None:
        self.memory, self.top = chain.memory, len(chain.weights)
        slots = 1 + max(1, chain.memory)
        batch = len(chain.drive)

        def many() -> list[Tensor]:
            shapes = [(slots, batch, width) for width in chain._widths()]
            return [chain.drive.new_zeros(shape) for shape in shapes]

        self.images, self.products = many(), many()
        self.state, self.up = chain._zeros(), chain._zeros()
        self.fixed = fixed
        if fixed is not None:
            self.up[0] = fixed
        self.scales = np.ones((self.top + 1, batch))
        self.turn, self.slots = 0, slots
        if chain.memory:
            self.gaps = many()
            self.tables = np.zeros((self.top + 1, batch, slots, slots))
            self.known, self.last = np.zeros(batch, np.int64), np.full(batch, np.inf)
            self.weights = np.zeros((batch, slots))

    def downwards(self) -> range:
        return range(self.top - 1, -1, -1)

    def upwards(self) -> range:
        return range(1, self.top + 1)

    def begin(self) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        """Where the pass starts, with its products, and where its images and products go."""
        fresh = [values[self.turn] for values in self.images]
        rising = [values[self.turn] for values in self.products]
        return self.state, self.up, fresh, rising

    def proceed(self, residual: np.ndarray) -> None:
        """After a pass: where the next one starts."""
        turn, self.turn = self.turn, (self.turn + 1) % self.slots
        if not self.memory:
            self.state = [values[turn] for values in self.images]
            self.up = [values[turn] for values in self.products]
            if self.fixed is not None:
                self.up[0] = self.fixed
            return
        for layer, images in enumerate(self.images):
            loops.remember(
                images[turn].numpy(), self.state[layer].numpy(), self.gaps[layer].numpy(),
                turn, self.tables[layer],
            )  # fmt: skip
        loops.shares(self.tables, self.scales, turn, self.known, residual, self.last, self.weights)
        for layer, images in enumerate(self.images):
            loops.mix(images.numpy(), self.weights, self.state[layer].numpy())
            if 0 < layer < self.top:
                loops.mix(self.products[layer].numpy(), self.weights, self.up[layer].numpy())

    def forget(self) -> None:
        """What was remembered belongs to another map."""
        if self.memory:
            self.known[:] = 0


class _Kept:
    """Each sample as it was when it had converged, and when to stop."""

    def __init__(self, batch: int, tol: float, max_steps: int) -> None:
        self.tol, self.max_steps = tol, max_steps
        self.steps, self.finite, self.finished = 0, True, False
        self.done = np.zeros(batch, bool)
        self.residual = np.zeros(batch)
        self.layer: int | None = None
        self.layers: list[Tensor] | None = None

    def take(self, layers: list[Tensor], parts: np.ndarray) -> None:
        """Set aside what has just converged; at the end, all the rest; parts (layers, batch)."""
        self.steps += 1
        residual = parts.max(0)
        finite = self.finite = bool(np.isfinite(residual).all())
        good = residual <= self.tol
        self.finished = bool((good | self.done).all()) or not finite or self.steps == self.max_steps
        new = ~self.done & (good | self.finished)
        if new.all():
            self.layers = layers
        elif new.any():
            if self.layers is None:
                self.layers = [torch.empty_like(layer) for layer in layers]
            rows = new.nonzero()[0]
            for source, target in zip(layers, self.layers, strict=True):
                loops.keep(source.numpy(), rows, target.numpy())
        self.residual[new] = residual[new]
        self.done |= good
        if self.finished and not self.done.all():
            self.layer = int(np.nan_to_num(parts, nan=np.inf).max(1).argmax())

    def solution(self) -> Solution:
        if self.layers is None:
            raise AssertionError("a relaxation takes at least one step")
        return Solution(
            tuple(self.layers), self.steps, torch.from_numpy(self.residual),
            status(bool(self.done.all()), self.finite), layer=self.layer,
        )  # fmt: skip
