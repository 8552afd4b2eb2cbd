"""A coupling with its parameters, both ways, for states and for what a nudge moves.

The way up is linear, or becomes so once it is decided which pixel of every window is the largest.
Passes (`solvers.passes`) need no more of a coupling than this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.kernels import compiled_available
from toreqprop.tracing import is_plain, is_watched

Trail = tuple[Tensor, ...]
"""What was decided on the way up, tensors (batch, ...); empty where F is linear."""


class Ways(ABC):
    """``F(pre)`` and, with what was decided there, its derivative both ways."""

    trails: int = 0
    """How many tensors a trail has."""

    fresh: bool = False
    """Whether what `fall` returns is in memory of its own."""

    @abstractmethod
    def rise(self, pre: Tensor) -> tuple[Tensor, Trail]:
        """``F(pre)`` and its trail."""

    @abstractmethod
    def lift(self, move: Tensor, trail: Trail) -> tuple[Tensor, Trail]:
        """``F'·move``, and what `holds` needs to know of it, one tensor for each of the trail."""

    @abstractmethod
    def fall(self, post: Tensor, shape: torch.Size, trail: Trail) -> Tensor:
        """``F'ᵀ·post``, a lower layer of this shape."""

    def holds(self, trail: Trail, moved: Trail, tol: float) -> bool:
        """Whether ``F'`` is the same, to ``tol``, on both sides of the trail."""
        return True

    def unmoved(self, pre: Tensor, trail: Trail) -> Trail:
        """What `lift` remembers of a move by nothing."""
        return tuple(torch.zeros_like(t) for t in trail)

    def packed(self) -> PackedConvolutionWays | None:
        """The same for a lower map in an order that makes it faster, where there is one."""
        return None


class Shaped(NamedTuple):
    """What stands for a lower layer where only its shape matters."""

    shape: torch.Size


class LinearWays(Ways):
    """Those of a coupling that is linear."""

    def __init__(self, coupling: Any, prepared: tuple[Tensor, ...]) -> None:
        self.coupling, self.prepared = coupling, prepared

    def rise(self, pre: Tensor) -> tuple[Tensor, Trail]:
        return self.coupling.up(pre, self.prepared, None), ()

    def lift(self, move: Tensor, trail: Trail) -> tuple[Tensor, Trail]:
        return self.coupling.lift(move, self.prepared), ()

    def fall(self, post: Tensor, shape: torch.Size, trail: Trail) -> Tensor:
        found: Tensor = self.coupling.down(post, Shaped(shape), self.prepared)
        return found


class PlainConvolutionWays(Ways):
    """A convolution whose transpose is a convolution too: of steps ``stride`` that cover the lower
    map exactly, each phase of which is then a group of channels (`phase_kernel`)."""

    fresh = True

    def __init__(self, kernel: Tensor, bias: Tensor, stride: int, padding: tuple[int, int]) -> None:
        self.kernel, self.bias = kernel, bias
        self.stride, self.padding = stride, padding
        self.back, self.reach = phase_kernel(kernel, stride, padding)

    def rise(self, pre: Tensor) -> tuple[Tensor, Trail]:
        return F.conv2d(pre, self.kernel, self.bias, self.stride, self.padding), ()

    def lift(self, move: Tensor, trail: Trail) -> tuple[Tensor, Trail]:
        return F.conv2d(move, self.kernel, None, self.stride, self.padding), ()

    def fall(self, post: Tensor, shape: torch.Size, trail: Trail) -> Tensor:
        found = F.conv2d(post, self.back, None, 1, self.reach)
        return found if self.stride == 1 else from_phases(found, self.stride)

    def packed(self) -> PackedConvolutionWays | None:
        # Where phases have entries of their own that the kernel has not, they cost more.
        sides = [self.stride * side for side in self.back.shape[2:]]
        if self.stride == 1 or sides != list(self.kernel.shape[2:]):
            return None
        return PackedConvolutionWays(self.back, self.bias, self.stride, self.reach)


class PackedConvolutionWays(Ways):
    """A convolution of steps ``stride`` of a map whose phases are groups of channels (`to_phases`):
    plain convolutions both ways, which are faster than strided ones and move no memory about."""

    fresh = True

    def __init__(self, back: Tensor, bias: Tensor, stride: int, reach: tuple[int, int]) -> None:
        self.back, self.bias, self.stride, self.reach = back, bias, stride, reach
        there = back.transpose(0, 1).flip(2, 3)
        self.there = there.contiguous(memory_format=torch.channels_last)

    def rise(self, pre: Tensor) -> tuple[Tensor, Trail]:
        return F.conv2d(pre, self.there, self.bias, 1, self.reach), ()

    def lift(self, move: Tensor, trail: Trail) -> tuple[Tensor, Trail]:
        return F.conv2d(move, self.there, None, 1, self.reach), ()

    def fall(self, post: Tensor, shape: torch.Size, trail: Trail) -> Tensor:
        return F.conv2d(post, self.back, None, 1, self.reach)

    def pack(self, maps: Tensor) -> Tensor:
        return to_phases(maps, self.stride)

    def unpack(self, *several: Tensor) -> list[Tensor]:
        """Maps that lie one behind the other."""
        batch, channels, high, wide = several[0].shape
        step, own = self.stride, channels // self.stride**2
        found = several[0].new_empty(len(several), batch, high, step, wide, step * own)
        for out, phases in zip(found, several, strict=True):
            rows = phases.permute(0, 2, 3, 1).reshape(batch, high, wide, step, step * own)
            out.copy_(rows.transpose(2, 3))
        maps = found.reshape(len(several), batch, high * step, wide * step, own)
        return list(maps.permute(0, 1, 4, 2, 3))


class MaxWays(Ways):
    """The largest of every window. Its trail: where it is, and the map it was taken from."""

    trails = 2

    def __init__(
        self, size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
    ) -> None:
        self.windows = size, stride, padding

    def rise(self, pre: Tensor) -> tuple[Tensor, Trail]:
        found, winners = F.max_pool2d(pre, *self.windows, return_indices=True)
        return found, (winners, pre)

    def lift(self, move: Tensor, trail: Trail) -> tuple[Tensor, Trail]:
        return picked(move, trail[0]), (trail[0], move)

    def fall(self, post: Tensor, shape: torch.Size, trail: Trail) -> Tensor:
        winners, fine = trail
        return torch.ops.aten.max_pool2d_with_indices_backward(
            post, fine, *self.windows, (1, 1), False, winners
        )

    def holds(self, trail: Trail, moved: Trail, tol: float) -> bool:
        """Whether the pixel that won is still the largest, to ``tol`` of what there is.

        What is decided by less than the free phase is exact to is not known better than that: a
        pixel that is the largest to ``tol`` is as good a winner, in both phases the same.
        """
        winners, fine = trail
        return self._lost(fine, moved[1], winners) <= tol * float(fine.square().mean().sqrt())

    def _lost(self, fine: Tensor, move: Tensor, winners: Tensor) -> float:
        """By how much a winner is below another pixel of its window, in either phase, at most."""
        maps = [t.permute(0, 2, 3, 1) for t in (fine, move, winners)]
        in_order = all(t.is_contiguous() for t in maps)
        if in_order and is_plain(fine) and is_plain(move) and compiled_available():
            from toreqprop.kernels.pass_loops import most_lost

            return float(most_lost(*(t.numpy() for t in maps), *self.windows))
        phases = (fine + move, fine - move)
        lost = [F.max_pool2d(phase, *self.windows) - picked(phase, winners) for phase in phases]
        return max(float(t.max()) for t in lost)


class ChainWays(Ways):
    """Several, one after the other; ``shapes`` are those of what comes to each from below."""

    def __init__(self, parts: Sequence[Ways], shapes: Sequence[tuple[int, ...]]) -> None:
        self.parts, self.shapes = tuple(parts), tuple(shapes)
        self.trails, self.fresh = sum(part.trails for part in parts), self.parts[0].fresh

    def _own(self, trail: Trail) -> list[Trail]:
        found, at = [], 0
        for part in self.parts:
            found.append(trail[at : at + part.trails])
            at += part.trails
        return found

    def rise(self, pre: Tensor) -> tuple[Tensor, Trail]:
        trail: Trail = ()
        for part in self.parts:
            pre, own = part.rise(pre)
            trail += own
        return pre, trail

    def lift(self, move: Tensor, trail: Trail) -> tuple[Tensor, Trail]:
        moved: Trail = ()
        for part, own in zip(self.parts, self._own(trail), strict=True):
            move, known = part.lift(move, own)
            moved += known
        return move, moved

    def fall(self, post: Tensor, shape: torch.Size, trail: Trail) -> Tensor:
        every = list(zip(self.parts, self.shapes, self._own(trail), strict=True))
        for part, below, own in reversed(every):
            post = part.fall(post, torch.Size((len(post), *below)), own)
        return post

    def holds(self, trail: Trail, moved: Trail, tol: float) -> bool:
        both = zip(self.parts, self._own(trail), self._own(moved), strict=True)
        return all(part.holds(own, other, tol) for part, own, other in both)


class MaxConvolutionWays(Ways):
    """A convolution in steps of one and the largest of every window: once winners are known, a move
    goes up to them alone, compiled where that is possible.

    Its trail is that of `MaxWays`. What it remembers of a move is the map before its pooling, or
    the lower one where it has not been convolved as a whole.
    """

    trails = 2

    def __init__(
        self, chain: ChainWays, kernel: Tensor, padding: tuple[int, int], size: int
    ) -> None:
        self.chain, self.kernel, self.padding, self.size = chain, kernel, padding, size
        self.fresh = chain.fresh
        self.compiled = compiled_available() and is_plain(kernel) and _in_pixels(kernel)

    def rise(self, pre: Tensor) -> tuple[Tensor, Trail]:
        return self.chain.rise(pre)

    def lift(self, move: Tensor, trail: Trail) -> tuple[Tensor, Trail]:
        if not self._serves(trail):
            return self.chain.lift(move, trail)
        from toreqprop.kernels.winner_loops import lift

        found = torch.empty_like(trail[0], dtype=move.dtype)
        move = move.detach().contiguous(memory_format=torch.channels_last)
        low, winners, kernel, out = map(_pixels, (move, trail[0], self.kernel, found))
        lift(low, winners, self.size, kernel, self.padding, out)
        return found, (trail[0], move)

    def unmoved(self, pre: Tensor, trail: Trail) -> Trail:
        if not self._serves(trail):
            return self.chain.unmoved(pre, trail)
        return trail[0], torch.zeros_like(pre, requires_grad=False)

    def fall(self, post: Tensor, shape: torch.Size, trail: Trail) -> Tensor:
        # All of it: patches that overlap are added up one after the other, and that takes longer.
        return self.chain.fall(post, shape, trail)

    def _serves(self, trail: Trail) -> bool:
        """Whether compiled code does: asked of the trail, so that all moves give one answer."""
        winners, fine = trail
        return self.compiled and is_plain(fine) and _in_pixels(winners)

    def holds(self, trail: Trail, moved: Trail, tol: float) -> bool:
        fine = trail[1]
        if not self._serves(trail):
            return self.chain.holds(trail, moved, tol)
        # No pixel moves by more than the entries of its channel times what moves most below.
        entries = torch.linalg.vector_norm(self.kernel, 1, (1, 2, 3)).amax()
        least, most = moved[1].aminmax()
        largest = float(entries * torch.maximum(most, -least))
        if 2 * largest <= tol * float(torch.linalg.vector_norm(fine)) / fine.numel() ** 0.5:
            return True
        return self.chain.holds(trail, self.chain.lift(moved[1], trail)[1], tol)


def winners_gradient(
    post: tuple[Tensor, ...],
    pre: tuple[Tensor, ...],
    winners: Tensor,
    size: int,
    padding: tuple[int, int],
    kernel: Tensor,
) -> Tensor | None:
    """``Σ post ⊗ pre`` of one pair of maps or two, over samples and winners, in the shape of the
    kernel: compiled, or None where that does not serve."""
    order = torch.channels_last
    maps = [t.detach().contiguous(memory_format=order) for t in (*post, *pre)]
    if not compiled_available() or not all(map(is_plain, maps)) or not _in_pixels(winners):
        return None
    if not all(map(_in_pixels, maps)):
        return None
    from toreqprop.kernels import winner_loops

    found = torch.empty_like(kernel, memory_format=torch.channels_last)
    high, low = (tuple(map(_pixels, part)) for part in (maps[: len(post)], maps[len(post) :]))
    rest = _pixels(winners), size, padding, _pixels(found)
    winner_loops.correlate(high, low, *rest)
    return found


def _in_pixels(maps: Tensor) -> bool:
    """Whether all channels of a pixel lie together in memory."""
    return maps.permute(0, 2, 3, 1).is_contiguous()


def _pixels(maps: Tensor) -> Any:
    return maps.permute(0, 2, 3, 1).numpy()


def picked(fine: Tensor, winners: Tensor) -> Tensor:
    """A map at these positions, numbered through each channel."""
    if fine.is_contiguous():
        return fine.flatten(2).gather(2, winners.flatten(2)).reshape(winners.shape)
    rows, places = (t.permute(0, 2, 3, 1) for t in (fine, winners))
    found = rows.flatten(1, 2).gather(1, places.flatten(1, 2))
    return found.reshape(places.shape).permute(0, 3, 1, 2)


def phase_kernel(
    kernel: Tensor, stride: int, padding: tuple[int, int]
) -> tuple[Tensor, tuple[int, int]]:
    """A kernel and padding with which ``Kᵀ`` is a plain convolution, followed by `from_phases`.

    Pixel ``y = p·q + r`` of the lower map gets ``Σ_δ K[r + padding − p·δ]·post[q + δ]``: each of
    the ``p²`` phases r is a convolution of the coarse map, with zeros where K has no such entry.
    """
    places, reach = _taps(tuple(kernel.shape[2:]), stride, padding)
    own = F.pad(kernel.permute(2, 3, 1, 0).flatten(0, 1), (0, 0, 0, 0, 0, 1))
    found = own.index_select(0, torch.tensor(places, device=kernel.device))
    phases, taps = stride**2, tuple(2 * far + 1 for far in reach)
    found = found.unflatten(0, (phases, *taps)).movedim(3, 1).flatten(0, 1)  # to, y, x, from
    return found.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last), reach


def from_phases(phases: Tensor, stride: int) -> Tensor:
    """The map whose phases are groups of channels: pixel ``(p·y + r, p·x + s)`` has those of the
    group ``p·r + s`` at (y, x).

    A pixel's channels stay together, so that this is a copy of whole blocks of memory: several
    times faster than a pixel shuffle, whose phases alternate within each channel.
    """
    batch, channels, high, wide = phases.shape
    own = channels // stride**2
    blocks = phases.permute(0, 2, 3, 1).reshape(batch * high, wide, stride, stride * own)
    rows = _exchanged(blocks).reshape(batch, high * stride, wide * stride, own)
    return rows.permute(0, 3, 1, 2)


def to_phases(maps: Tensor, stride: int) -> Tensor:
    """The inverse of `from_phases`."""
    batch, channels, high, wide = maps.shape
    rows = maps.permute(0, 2, 3, 1)
    rows = rows.reshape(batch * high // stride, stride, wide // stride, stride * channels)
    blocks = _exchanged(rows).reshape(batch, high // stride, wide // stride, -1)
    return blocks.permute(0, 3, 1, 2)


def _exchanged(blocks: Tensor) -> Tensor:
    """With the two middle dimensions of four in each other's places."""
    if not compiled_available() or is_watched() or not is_plain(blocks):
        return blocks.transpose(1, 2)
    from toreqprop.kernels.pass_loops import exchange

    found = blocks.new_empty([blocks.shape[k] for k in (0, 2, 1, 3)])
    exchange(blocks.contiguous().numpy(), found.numpy())
    return found


@cache
def _taps(
    sides: tuple[int, ...], stride: int, padding: tuple[int, int]
) -> tuple[list[int], tuple[int, int]]:
    """Which entries of a kernel those of each phase are, counted through its rows, with a zero
    behind the last, and how far they reach to each side."""
    along, reach = [], []
    for side, pad in zip(sides, padding, strict=True):
        far = max((stride - 1 + pad) // stride, (side - 1 - pad) // stride)
        reach.append(far)
        along.append([[r + pad - stride * d for d in range(-far, far + 1)] for r in range(stride)])
    high, wide = sides
    places = [
        y * wide + x if 0 <= y < high and 0 <= x < wide else high * wide
        for rows in along[0]
        for columns in along[1]
        for y in rows
        for x in columns
    ]
    return places, (reach[0], reach[1])
