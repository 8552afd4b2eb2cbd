"""What a relaxation returns: the state it reached and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

State = tuple[Tensor, ...]
"""The free layers of a network, one tensor of shape (batch, ...) each."""

Pushes = Sequence[tuple[Tensor, float] | None]
"""What each layer's preactivation is pushed by, and its factor; None where it is not."""


class Status(Enum):
    """How a relaxation ended; the value is the sentence a user reads."""

    CONVERGED = "the relaxation reached its tolerance"
    MEASURED = "a chip was read after the time it was given; nothing says that it had settled"
    MAX_STEPS = (
        "the relaxation stopped at max_steps before reaching its tolerance: raise max_steps, "
        "raise tol, keep spectral_norm=True, or use solver=Anderson()"
    )
    CYCLING = (
        "the relaxation swings between two states (or its swing dies out by less than a hundredth "
        "a step), and more steps change nothing: use solver=FixedPoint(damping=0.5) or "
        "solver=Anderson(), or keep spectral_norm=True with a radius below 1"
    )
    DIVERGED = (
        "the relaxation produced non-finite values: keep spectral_norm=True, lower the learning "
        "rate, or use solver=FixedPoint(damping=0.5)"
    )
    UNRESOLVED = (
        "what the nudge moves is lost in rounding, so the gradient below this layer is noise: use "
        "model.double(), fewer layers, or a larger beta"
    )
    TOO_STRONG = (
        "the nudge is too strong for this network (its two phases are not mirror images, as units "
        "saturate or are clipped in one of them alone), so the gradient is biased: lower beta"
    )


@dataclass(frozen=True)
class Solution:
    """An equilibrium, approximately; or two, ``state ± shift``, under opposite nudges.

    Attributes:
        state: one tensor (batch, ...) per free layer, the image ``f(s)`` of the last iterate.
        shift: half the difference of the two nudged equilibria, in the shapes of ``state``, which
            is then their mean; empty for a single phase.
        steps: evaluations of the fixed-point map ``f``, the largest over the batch.
        residual: (batch,) the largest over the layers of ``‖f(s) − s‖ / scale``, with the layer's
            own activity as scale (for a shift `NUDGE_SLACK` times the shift itself); times the
            contraction factor of one layer where it is known, which bounds the residual of
            ``f(s)``. It is what ``tol`` is compared with, whatever code relaxed it.
        status: how the relaxation ended.
        layer: where it ended so, counted from zero, if not well; None where that has no place.
        memory: what the code that relaxed it knows already, for the phases that follow.
        changes: norms over the batch of (how far the center moved from the free equilibrium, the
            shift) for each layer, where the code that relaxed two phases has them already.
        bound: computes `error_bound`; None where nothing is proven.

    Compiled steps give ``state``, ``shift`` and ``residual`` as a function, ``late``, called when
    one of them is looked at: to make tensors of their memory took longer than a product.
    """

    state: State
    steps: int
    residual: Tensor
    status: Status
    shift: State = field(default_factory=tuple)
    layer: int | None = None
    memory: tuple[Tensor, ...] = ()
    changes: tuple[tuple[float, float], ...] = ()
    bound: Callable[[], Tensor] | None = field(default=None, repr=False, compare=False)

    def __getattr__(self, name: str) -> Any:
        late = self.__dict__.get("late")
        for kind, found in {} if late is None else late().items():
            self.__dict__.setdefault(kind, found)
        self.__dict__.pop("late", None)
        if name not in self.__dict__:
            raise AttributeError(f"a Solution has no {name!r}")
        return self.__dict__[name]

    def but(self, **changes: Any) -> Solution:
        """The same with other values of some attributes; `dataclasses.replace`, only faster."""
        other = object.__new__(Solution)
        other.__dict__.update(self.__dict__)
        other.__dict__.pop("error_bound", None)
        other.__dict__.update(changes)
        return other

    @property
    def converged(self) -> bool:
        """True if every sample reached the tolerance, or was to be read without one, and nothing
        else is wrong."""
        return self.status in (Status.CONVERGED, Status.MEASURED)

    @property
    def worst_residual(self) -> float:
        """The largest relative residual in the batch."""
        return float(self.residual.max())

    @property
    def up(self) -> State:
        """The equilibrium under the first of two nudges (the state, where there is one phase)."""
        if not self.shift:
            return self.state
        return tuple(c + d for c, d in zip(self.state, self.shift, strict=True))

    @property
    def down(self) -> State:
        """The equilibrium under the second of two nudges (the state, where there is one phase)."""
        if not self.shift:
            return self.state
        return tuple(c - d for c, d in zip(self.state, self.shift, strict=True))

    @cached_property
    def error_bound(self) -> Tensor:
        """(batch,) proven bound on ``‖state − s*‖₂``, in float64, computed when asked for.

        ``(‖f(s) − s‖ + rounding)/(1 − L)`` with every rounding of the evaluation bounded; infinite
        where no contraction factor L below one is known. Of two phases it bounds either.
        """
        if self.bound is None:
            return torch.full(self.residual.shape, torch.inf, dtype=torch.float64)
        return self.bound()

    def __getstate__(self) -> dict[str, Any]:
        late = self.__dict__.get("late")
        found = {} if late is None else late()
        own = {**found, **self.__dict__, "bound": None, "error_bound": self.error_bound}
        own.pop("late", None)
        return own
