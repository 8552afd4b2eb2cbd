"""Residual and energy against step, in the free and the nudged phases."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.models import EquilibriumModel
from toreqprop.plots.arguments import check_batch, draws
from toreqprop.plots.phases import Loss, in_double, trace_phases
from toreqprop.plots.style import GREY, PHASES, finish, new_figure, plain_style
from toreqprop.solvers import Trace

FINE = 1e-9
"""Tolerance of the curves: finer than in training, so that they show the rate of convergence."""
_MARKERS = {"free": "o", "nudged +β": "^", "nudged −β": "v"}
_DASHES = {"free": "-", "nudged +β": "--", "nudged −β": ":"}


def relaxation(
    model: EquilibriumModel, x: Tensor, y: Tensor, *, loss: Loss = F.cross_entropy
) -> Any:
    """Draw how a model settles on a batch: worst and median residual, and energy, by phase."""
    return relaxation_figure(relaxation_data(model, x, y, loss=loss))


def relaxation_data(
    model: EquilibriumModel,
    x: Tensor,
    y: Tensor,
    *,
    loss: Loss = F.cross_entropy,
    tol: float = FINE,
) -> dict[str, Any]:
    """What `relaxation` draws, as plain data; measured on a float64 copy of the model.

    Free residuals are relative to the activity, nudged ones to the first nudged residual: what
    each phase's stopping rule looks at. Energies are means over the batch above the last value,
    None for models without one.
    """
    loss = check_batch(model, x, y, loss)
    checks.number("tol", tol, 0, above=True)
    exact = copy.deepcopy(model).double()
    phases = trace_phases(exact, in_double(x), y, loss=loss, tol=tol, keep_energies=True)
    return {
        "estimator": repr(model.gradient),
        "samples": len(x),
        "tolerance": model.tol,
        "phases": [
            {
                "phase": phase.name,
                "beta": phase.beta,
                "steps": phase.solution.steps,
                "residual": residuals(phase.trace),
                "energy": _energy(phase.trace),
            }
            for phase in phases
        ],
    }


def residuals(trace: Trace) -> dict[str, list[float]]:
    """The worst and the median residual at each step."""
    return {
        "worst": [float(r.max()) for r in trace.residuals],
        "median": [float(r.median()) for r in trace.residuals],
    }


def _energy(trace: Trace) -> list[float] | None:
    if not trace.energies:
        return None
    mean = torch.stack(trace.energies).mean(1)
    return [float(e) for e in mean - mean[-1]]


@draws("relaxation_data")
def relaxation_figure(data: Mapping[str, Any]) -> Any:
    """The figure of `relaxation_data`: one panel for residuals, one for energies if there are."""
    phases = data["phases"]
    energies = [p for p in phases if p["energy"] is not None]
    with plain_style():
        figure, axes = new_figure(2 if energies else 1, width=8.4 if energies else 4.6)
        for phase in phases:
            draw_residual(axes[0], phase["residual"]["worst"], phase["phase"], label=phase["phase"])
            median, colour = phase["residual"]["median"], PHASES[phase["phase"]]
            axes[0].semilogy(range(1, len(median) + 1), median, color=colour, lw=0.7, alpha=0.6)
        axes[0].axhline(data["tolerance"], color=GREY, lw=0.9, ls="--", label="tolerance")
        axes[0].set_title("Residual of the worst sample (thin: median)")
        finish(axes[0], "relaxation step", "relative residual", counts=True)
        if energies:
            _draw_energies(axes[1], energies)
    return figure


def draw_residual(
    axes: Any, values: Sequence[float], phase: str, *, label: str | None = None
) -> None:
    """One curve of residuals on a logarithmic axis, in the colour of its phase."""
    marker = _MARKERS.get(phase, "^") if len(values) <= 40 else None
    axes.semilogy(
        range(1, len(values) + 1), values, ls=_DASHES.get(phase, "--"), color=PHASES[phase], lw=1.4,
        marker=marker, ms=3.5, label=label,
    )  # fmt: skip


def _draw_energies(axes: Any, phases: Sequence[Mapping[str, Any]]) -> None:
    for phase in phases:
        # The last value is zero by definition, and rounding may put others there too.
        kept = [(k, e) for k, e in enumerate(phase["energy"], start=1) if e > _RESOLVED]
        if not kept:
            continue
        name = phase["phase"]
        axes.semilogy(
            *zip(*kept, strict=True), ls=_DASHES[name], color=PHASES[name], lw=1.4,
            marker=_MARKERS[name] if len(kept) <= 40 else None, ms=3.5, label=name,
        )  # fmt: skip
    axes.set_title("Energy above its value at the equilibrium")
    finish(axes, "relaxation step", "E − E at the equilibrium, mean", counts=True)


_RESOLVED = 1e-13
"""Differences of energies below this are rounding."""
