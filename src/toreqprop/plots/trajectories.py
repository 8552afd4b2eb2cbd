"""The path of a state through its space, seen in its two main directions."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.errors import InvalidInputError
from toreqprop.models import EquilibriumModel
from toreqprop.plots.arguments import check_batch, draws
from toreqprop.plots.phases import Loss, PhaseTrace, in_double, trace_phases
from toreqprop.plots.style import INK, PHASES, finish, new_figure, plain_style
from toreqprop.solvers import FixedPoint
from toreqprop.solvers.relaxation import is_extrapolation

FINE = 1e-6
_MARKERS = {"free": "o", "nudged +β": "^", "nudged −β": "v"}


def trajectories(
    model: EquilibriumModel,
    x: Tensor,
    y: Tensor,
    *,
    sample: int = 0,
    loss: Loss = F.cross_entropy,
) -> Any:
    """Draw one sample's way to the free equilibrium, and from there to the nudged ones."""
    return trajectory_figure(trajectory_data(model, x, y, sample=sample, loss=loss))


def trajectory_data(
    model: EquilibriumModel,
    x: Tensor,
    y: Tensor,
    *,
    sample: int = 0,
    loss: Loss = F.cross_entropy,
) -> dict[str, Any]:
    """What `trajectories` draws: each phase's states on the two main axes of all of them.

    The axes are the first two principal components of the states of every phase, each phase with
    the same weight whatever its length; ``explained`` is the share of the variance they carry.
    """
    loss = check_batch(model, x, y, loss)
    if checks.whole_number("sample", sample, 0) >= len(x):
        raise InvalidInputError(f"sample must be in 0..{len(x) - 1}, got {sample}.")
    exact = copy.deepcopy(model).double()
    if is_extrapolation(exact.solver):  # the way a network takes by itself is that of its map
        exact.solver = FixedPoint(tol=exact.tol, max_steps=exact.max_steps)
    one = in_double(x[sample : sample + 1])
    phases = trace_phases(exact, one, y[sample : sample + 1], loss=loss, tol=FINE, keep_states=True)
    paths = [_path(phase) for phase in phases]
    origin = paths[0][-1]
    weighted = torch.cat([(p - origin) / len(p) ** 0.5 for p in paths])
    _, sizes, axes = torch.linalg.svd(weighted, full_matrices=False)
    total = float(sizes.square().sum())
    explained = [float(s) ** 2 / total if total > 0 else 0.0 for s in sizes[:2]]
    return {
        "estimator": repr(model.gradient),
        "sample": sample,
        "neurons": paths[0].shape[1],
        "explained": explained,
        "phases": [
            {
                "phase": phase.name,
                "beta": phase.beta,
                "points": ((path - origin) @ axes[:2].mT).tolist(),
            }
            for phase, path in zip(phases, paths, strict=True)
        ],
    }


def _path(phase: PhaseTrace) -> Tensor:
    """The iterates and the state they ended in, (steps + 1, neurons)."""
    states = [*phase.trace.states, phase.solution.state]
    return torch.stack([torch.cat([s.flatten() for s in state]) for state in states])


@draws("trajectory_data")
def trajectory_figure(data: Mapping[str, Any]) -> Any:
    """The figure of `trajectory_data`: a dot for every step."""
    with plain_style():
        figure, (axes,) = new_figure(1, width=5.6, height=4.0)
        for phase in data["phases"]:
            _draw_path(axes, phase)
        start = data["phases"][0]["points"][0]
        axes.annotate("start", start, (7, 0), textcoords="offset points", va="center", color=INK)
        axes.plot(0, 0, "*", color=INK, ms=11, zorder=5, label="free equilibrium")
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_title(f"The state of {data['neurons']} neurons on its way, one dot per step")
        first, second = (f"{100 * share:.0f} % of the variance" for share in data["explained"])
        finish(axes, f"first component ({first})", f"second component ({second})", legend=False)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _draw_path(axes: Any, phase: Mapping[str, Any]) -> None:
    across, up = zip(*phase["points"], strict=True)
    name = phase["phase"]
    label = name if phase["beta"] == 0 else f"β = {phase['beta']:+g}".replace("-", "−")
    axes.plot(
        across, up, "-", color=PHASES[name], marker=_MARKERS[name], ms=4, lw=1.2, alpha=0.9,
        label=label,
    )  # fmt: skip
