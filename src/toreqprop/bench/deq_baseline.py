"""The same network trained by torchdeq's implicit differentiation: a baseline for speed alone."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor, nn

from toreqprop.energies import System
from toreqprop.errors import UnsupportedModelError
from toreqprop.models import EquilibriumModel

METHODS = ("fixed point", "anderson", "phantom")
"""Both directions by plain iteration, both by Anderson's, or plain iteration forwards and one step
with its graph as the gradient."""


def deq_available() -> bool:
    """Whether torchdeq is installed."""
    return importlib.util.find_spec("torchdeq") is not None


class DeepEquilibrium(nn.Module):
    """The map and weights of an equilibrium network, solved and differentiated by torchdeq.

    Every direction stops at the relative residual ``tol``; the start is the network's own.
    """

    def __init__(
        self, network: EquilibriumModel, method: str, tol: float, max_steps: int = 100
    ) -> None:
        super().__init__()
        if not deq_available():
            raise UnsupportedModelError("torchdeq is not installed: pip install torchdeq.")
        from torchdeq import get_deq

        solver = "anderson" if method == "anderson" else "fixed_point_iter"
        gradient = {"ift": False, "grad": 1} if method == "phantom" else {"ift": True}
        self.network = network
        self.deq = get_deq(
            f_solver=solver,
            b_solver=solver,
            f_tol=tol,
            b_tol=tol,
            f_max_iter=max_steps,
            b_max_iter=max_steps,
            f_stop_mode="rel",
            b_stop_mode="rel",
            **gradient,
        )
        self.last_info: dict[str, Any] = {}

    def forward(self, x: Tensor) -> Tensor:
        network = self.network
        network.check_input(x)
        system = System.bind(network.field, network.field_input(x), network.system_parameters())
        with torch.no_grad():
            start = tuple(s.detach() for s in system.initial_state())

        def image(*state: Tensor) -> Any:
            found = system.map(state)
            return found[0] if len(found) == 1 else found

        states, self.last_info = self.deq(image, start if len(start) > 1 else start[0])
        last = states[-1]
        return network.readout_from((last,) if isinstance(last, Tensor) else tuple(last))
