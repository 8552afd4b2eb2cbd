"""Residual blocks for sequential networks."""

from __future__ import annotations

from torch import Tensor, nn

from toreqprop import checks
from toreqprop.errors import InvalidInputError


class Residual(nn.Module):
    """``y = body(x) + scale·shortcut(x)``; without a shortcut, ``y = body(x) + scale·x``.

    An ordinary module. In a network that `convert` turns into layers of neurons it is a skip
    connection: an activation after it acts on the sum, as in ``nn.Sequential(...,
    Residual(nn.Sequential(conv, act, conv)), act, ...)``; without one the sum is a layer of linear
    neurons.

    Args:
        body: what the input goes through.
        shortcut: affine modules and poolings beside it where the shape changes.
        scale: factor of the shortcut.

    Raises:
        InvalidInputError: in the pass, where the two ways end in different shapes.
    """

    def __init__(
        self, body: nn.Module, shortcut: nn.Module | None = None, scale: float = 1.0
    ) -> None:
        super().__init__()
        checks.module("body", body)
        if shortcut is not None:
            checks.module("shortcut", shortcut)
        self.body, self.shortcut = body, shortcut
        self.scale = checks.number("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        through, past = self.body(x), x if self.shortcut is None else self.shortcut(x)
        if through.shape != past.shape:
            raise InvalidInputError(
                f"A residual block adds shapes that agree, and has {tuple(through.shape[1:])} "
                f"through its body and {tuple(past.shape[1:])} past it: give it a shortcut=."
            )
        return through + (past if self.scale == 1 else self.scale * past)

    def extra_repr(self) -> str:
        return "" if self.scale == 1 else f"scale={self.scale:g}"
