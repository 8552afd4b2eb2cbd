"""The data behind pictures of circuits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.energies import LinearNudge, Opposed, System
from toreqprop.gradients.base import normalise
from toreqprop.hardware import Ngspice, netlist, settle
from toreqprop.models import ResistiveMLP
from toreqprop.solvers import Newton, relax, relax_pair

FLOOR = 1e-12
"""Volts below which a distance is rounding."""


def layer_names(model: ResistiveMLP) -> list[str]:
    hidden = [f"hidden {number}" for number in range(1, len(model.sizes) - 1)]
    return [*hidden, "output"]


@torch.no_grad()
def settling_data(
    model: ResistiveMLP, x: Tensor, span: float = 20.0, simulator: Ngspice | None = None
) -> dict[str, Any]:
    """Each layer's largest distance from its operating point over time, for one input (1, n)."""
    names = layer_names(model)
    rest = model.equilibrium(x).state
    mine = settle(model, x, span, step=0.02)
    kept = slice(0, None, 5)
    found: dict[str, Any] = {
        "times": (mine.times[kept] / mine.unit).tolist(),
        "layers": {
            name: (v[kept] - s).abs().flatten(1).amax(1).clamp_min(FLOOR).tolist()
            for name, v, s in zip(names, mine.nodes, rest, strict=True)
        },
    }
    if simulator is not None:
        measured = simulator.transient(netlist(model, x), mine.unit / 10, span * mine.unit)
        part = slice(0, None, max(1, len(measured.axis) // 40))
        found["ngspice"] = {
            "times": (measured.axis[part] / mine.unit).tolist(),
            "layers": {
                name: (measured.voltages[f"nodes{i}"][part] - s)
                .abs().amax(1).clamp_min(FLOOR).tolist()
                for i, (name, s) in enumerate(zip(names, rest, strict=True), start=1)
            },
        }  # fmt: skip
    return found


def voltages_data(model: ResistiveMLP, x: Tensor, y: Tensor, beta: float = 0.05) -> dict[str, Any]:
    """Voltages of one input (1, n) with its label, free and nudged by the cross-entropy."""
    with torch.no_grad():
        system = System.bind(model.field, x, model.system_parameters())
        free = relax(system, Newton(tol=1e-10))
    leaves = tuple(s.detach().requires_grad_() for s in free.state)
    with torch.enable_grad():
        loss = F.cross_entropy(model.readout_from(leaves), y)
        slopes = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    direction, _ = normalise(slopes)
    nudge = Opposed(LinearNudge(direction, beta), LinearNudge(direction, -beta))
    pair = relax_pair(system, nudge, Newton(tol=1e-10), free.state)
    layers = zip(layer_names(model), free.state, pair.up, pair.down, strict=True)
    return {
        "beta": beta,
        "layers": {
            name: {"free": a[0].tolist(), "up": b[0].tolist(), "down": c[0].tolist()}
            for name, a, b, c in layers
        },
    }
