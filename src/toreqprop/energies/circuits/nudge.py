"""The nudge of the literature: each output pulled to its target through a conductance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.solution import State


@dataclass(frozen=True)
class ConductanceNudge:
    """``C = ½‖v_L − y‖²``: the current ``β·(y − v)`` into each output.

    β counts in the energy's own scale, so it is ``β·scale`` siemens, and the phase at −β is a
    *negative* conductance: it must stay well below the total conductance at an output.

    Attributes:
        target: (batch, outputs) volts.
        beta: strength, of either sign.
    """

    target: Tensor
    beta: float

    def __post_init__(self) -> None:
        checks.tensor("target", self.target, 2)
        checks.number("beta", self.beta)

    def force(self, state: State) -> State:
        pulls = [torch.zeros_like(v) for v in state[:-1]]
        return (*pulls, self.beta * (state[-1] - self.target))

    def energy(self, state: State) -> Tensor:
        return 0.5 * self.beta * (state[-1] - self.target).square().sum(1)
