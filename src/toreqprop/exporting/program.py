"""The free phase as a ``torch.export`` program, which runs without this library."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop

from toreqprop import checks
from toreqprop.exporting.free_phase import FreePhase


class _Looped(nn.Module):
    """The loop as an operator of torch, so that the number of steps depends on the input."""

    def __init__(self, phase: FreePhase) -> None:
        super().__init__()
        self.phase = phase

    def forward(self, x: Tensor) -> Tensor:
        phase = self.phase
        drive, state = phase.start(x)

        def unfinished(count: Tensor, residual: Tensor, *state: Tensor) -> Tensor:
            return (count < phase.max_steps) & (residual > phase.tol)

        def step(count: Tensor, residual: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
            image, residual = phase.step(drive, state)
            return (count + 1, residual, *image)

        count = torch.zeros((), dtype=torch.int64)
        first = torch.full((), torch.inf, dtype=state[0].dtype)
        _, _, *settled = while_loop(unfinished, step, (count, first, *state))
        return phase.read(tuple(settled))


@torch.no_grad()
def to_program(phase: FreePhase) -> torch.export.ExportedProgram:
    """A free phase as a program for any batch size; keep it with ``torch.export.save``."""
    checks.instance("phase", phase, FreePhase, "use FreePhase(model, example)")
    batch = ({0: torch.export.Dim("batch")},)
    return torch.export.export(_Looped(phase), (phase.example,), dynamic_shapes=batch, strict=False)
