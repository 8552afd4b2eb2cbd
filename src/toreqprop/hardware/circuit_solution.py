"""What solving a circuit returns, from PyTorch and from SPICE alike."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torch import Tensor


class CircuitStatus(Enum):
    """How the search for an operating point ended; the value is the sentence a user reads."""

    CONVERGED = "every node's voltage reached its tolerance"
    MAX_STEPS = (
        "the solver stopped at max_steps before every node's voltage reached its tolerance: raise "
        "max_steps, or lower beta well below the conductance at an output"
    )
    DIVERGED = (
        "the solver produced voltages that are not finite: lower beta below the conductance at an "
        "output, as the phase at −beta is a negative conductance"
    )
    INCOMPLETE = (
        "ngspice gave up at a point of the sweep, from which on voltages are NaN: lower beta well "
        "below the conductance at an output, or raise the diode's saturation current"
    )


@dataclass(frozen=True)
class CircuitSolution:
    """Operating points of a batch.

    Attributes:
        nodes: (batch, n) volts per layer of free nodes.
        rails: (batch, rails) volts per crossbar: what feeds it from below.
        steps: iterations, the largest over the batch; 0 where the simulator does not tell.
        error: (batch,) volts, the last step's largest move; NaN where the simulator does not tell.
        status: how it ended.
    """

    nodes: tuple[Tensor, ...]
    rails: tuple[Tensor, ...]
    steps: int
    error: Tensor
    status: CircuitStatus

    @property
    def converged(self) -> bool:
        """True if every sample reached the tolerance."""
        return self.status is CircuitStatus.CONVERGED

    @property
    def output(self) -> Tensor:
        """Voltages of the output nodes, (batch, outputs)."""
        return self.nodes[-1]

    @property
    def phase(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """(rails, nodes): what ``conductance_gradients`` takes."""
        return self.rails, self.nodes

    def part(self, rows: slice) -> CircuitSolution:
        """The same for some of the samples, as when phases were solved in one batch."""
        return CircuitSolution(
            tuple(t[rows] for t in self.nodes),
            tuple(t[rows] for t in self.rails),
            self.steps,
            self.error[rows],
            self.status,
        )
