"""Equilibrium propagation proper: one-sided, centred and random-sign contrasts of equilibria.

``dC/dθ ≈ (1/β)·[∂E/∂θ(s_β) − ∂E/∂θ(s_0)]`` and ``(1/2β)·[∂E/∂θ(s_β) − ∂E/∂θ(s_−β)]``.
β is in units of the normalised cotangent: β = 0.01 moves a preactivation by 0.01 on average, and
no neuron's by more than 0.04. A weak nudge costs no digits: the phases' difference is carried
through the relaxation, never formed by subtraction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.system import sample_norm
from toreqprop.gradients.base import ContrastiveEstimator, check_beta
from toreqprop.private_generator import noise
from toreqprop.solution import Solution, State


@dataclass(frozen=True)
class OneSidedEP(ContrastiveEstimator):
    """Free against one nudged equilibrium: one nudged relaxation, bias O(β).

    ``negative=True`` nudges away from lower cost (−β): the same limit, the opposite bias.
    """

    beta: float = 0.01
    negative: bool = False
    order: ClassVar[int | None] = 1
    bias: ClassVar[str] = "O(β)"
    paper: ClassVar[str] = "Scellier & Bengio 2017"

    def __post_init__(self) -> None:
        check_beta(self.beta)
        checks.flag("negative", self.negative)

    @property
    def betas(self) -> tuple[float, float]:
        return (-self.beta if self.negative else self.beta), 0.0


@dataclass(frozen=True)
class CenteredEP(ContrastiveEstimator):
    """The equilibria at +β and −β: two nudged relaxations, bias O(β²).

    Errors that both phases share, such as a free phase that was not quite finished, cancel.
    ``swap=True`` draws anew at every backward pass which of the two comes first. In exact
    arithmetic that is the same; on a chip on which the second phase differs from the first (an
    offset, a drift), a bias becomes noise that averages out. The draw comes from the generator of
    `fit`, or torch's global one elsewhere.

    ``max_gain`` limits what one sample counts. A sample's gain is how far its equilibrium moves
    over how hard it is pushed, ``‖shift‖/‖β·direction‖``, about one over its distance from a
    bifurcation; next to one, or where a phase has not settled, it has no bound, and one sample
    outweighs the batch. Where it is above ``max_gain`` the sample counts that much less; the
    gradient of the others is untouched. None sets no limit.
    """

    beta: float = 0.01
    swap: bool = False
    max_gain: float | None = None
    order: ClassVar[int | None] = 2
    bias: ClassVar[str] = "O(β²)"
    paper: ClassVar[str] = "Laborieux et al. 2021"

    def __post_init__(self) -> None:
        check_beta(self.beta)
        checks.flag("swap", self.swap)
        if self.max_gain is not None:
            checks.number("max_gain", self.max_gain, 0, above=True, typical="2 to 20")

    def __repr__(self) -> str:
        """What is not as usual, and β."""
        swap = ", swap=True" if self.swap else ""
        limit = "" if self.max_gain is None else f", max_gain={self.max_gain!r}"
        return f"{type(self).__name__}(beta={self.beta!r}{swap}{limit})"

    @property
    def betas(self) -> tuple[float, float]:
        return self.beta, -self.beta

    def drawn(self) -> ContrastiveEstimator:
        if self.swap and bool(torch.rand((), generator=noise()) < 0.5):
            return _Reversed(self.beta)
        return self

    def tempered(self, found: Solution, direction: State, weight: Tensor) -> Tensor:
        if self.max_gain is None:
            return weight
        moved, pushed = sample_norm(found.shift), self.beta * sample_norm(direction)
        # A sample without a loss is not pushed, and counts nothing anyway.
        share = self.max_gain * pushed / moved.clamp_min(torch.finfo(moved.dtype).tiny)
        return weight * share.clamp_max(1.0)


@dataclass(frozen=True)
class _Reversed(ContrastiveEstimator):
    """The phase at −β first, then that at +β."""

    beta: float

    @property
    def betas(self) -> tuple[float, float]:
        return -self.beta, self.beta


@dataclass(frozen=True)
class RandomSignEP(ContrastiveEstimator):
    """`OneSidedEP` with the sign of β drawn anew at every backward pass.

    One nudged relaxation; the O(β) biases of the two signs are opposite, so over many steps they
    average out. The sign comes from the generator of `fit`, or torch's global one elsewhere.
    """

    beta: float = 0.01
    order: ClassVar[int | None] = 1
    bias: ClassVar[str] = "O(β), O(β²) on average"
    paper: ClassVar[str] = "Laborieux et al. 2021"

    def __post_init__(self) -> None:
        check_beta(self.beta)

    @property
    def betas(self) -> tuple[float, float]:
        return self.beta, 0.0

    def drawn(self) -> ContrastiveEstimator:
        sign = torch.rand((), generator=noise())
        return OneSidedEP(self.beta, negative=bool(sign < 0.5))
