"""The same network trained by torchdeq's implicit differentiation: a baseline for speed alone."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor, nn

from toreqprop.errors import UnsupportedModelError
from toreqprop.models import LoopedMLP


def deq_available() -> bool:
    """Whether torchdeq is installed."""
    return importlib.util.find_spec("torchdeq") is not None


class DeepEquilibriumMLP(nn.Module):
    """The cell and weights of a `LoopedMLP`, solved forwards and backwards by torchdeq.

    ``solver`` is "fixed_point_iter" or "anderson"; both directions stop at the relative residual
    ``tol``, the start is ``tanh(drive)`` as in `LoopedMLP`.
    """

    def __init__(self, network: LoopedMLP, solver: str, tol: float, max_steps: int = 100) -> None:
        super().__init__()
        if not deq_available():
            raise UnsupportedModelError(
                "torchdeq is not installed: pip install torchdeq, or leave --against out."
            )
        from torchdeq import get_deq

        self.network = network
        self.deq = get_deq(
            ift=True,
            f_solver=solver,
            b_solver=solver,
            f_tol=tol,
            b_tol=tol,
            f_max_iter=max_steps,
            b_max_iter=max_steps,
            f_stop_mode="rel",
            b_stop_mode="rel",
        )
        self.last_info: dict[str, Any] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.network.check_input(x)
        weight_in, bias, weight = self.network.system_parameters()
        drive = torch.nn.functional.linear(x, weight_in, bias)
        states, self.last_info = self.deq(
            lambda h: torch.tanh(torch.addmm(drive, h, weight)), torch.tanh(drive).detach()
        )
        return self.network.readout(states[-1])
