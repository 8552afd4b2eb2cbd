"""Pictures of circuits: how one settles, its voltages in every phase, learning under mismatch."""

from __future__ import annotations

from typing import Any

from toreqprop.plots.style import CYCLE, GREY, finish, new_figure, plain_style


@plain_style()
def settling_figure(data: dict[str, Any]) -> Any:
    """Distance of each layer from its operating point against time in units of RC.

    ``data``: ``{"times": [...], "layers": {name: [...]}, "ngspice": {...} or absent}``.
    """
    figure, (axes,) = new_figure(1, 5.0)
    for colour, (name, values) in zip(CYCLE, data["layers"].items(), strict=False):
        axes.semilogy(data["times"], values, color=colour, label=f"{name}, PyTorch")
    other = data.get("ngspice")
    if other:
        for colour, (name, values) in zip(CYCLE, other["layers"].items(), strict=False):
            axes.semilogy(
                other["times"], values, "o", color=colour, ms=2.5, label=f"{name}, ngspice"
            )
    finish(axes, "time / RC", "largest distance from rest, V")
    return figure


@plain_style()
def voltages_figure(data: dict[str, Any]) -> Any:
    """Voltages of every node in the free phase, and how far the two nudged phases move them.

    ``data``: ``{"layers": {name: {"free": [...], "up": [...], "down": [...]}}}`` in volts.
    """
    layers = data["layers"]
    figure, rows = new_figure(2, 8.0)
    for colour, (name, phases) in zip(CYCLE, layers.items(), strict=False):
        units = range(1, len(phases["free"]) + 1)
        rows[0].plot(units, phases["free"], "o", ms=3, color=colour, label=name)
        for phase, mark in (("up", "^"), ("down", "v")):
            moved = [1e3 * (a - b) for a, b in zip(phases[phase], phases["free"], strict=True)]
            sign = "+" if phase == "up" else "−"
            rows[1].plot(units, moved, mark, ms=3, color=colour, label=f"{name} at {sign}β")
    rows[1].set_yscale("symlog", linthresh=1e-3)
    finish(rows[0], "unit", "free phase, V", counts=True)
    finish(rows[1], "unit", "moved by the nudge, mV", counts=True)
    return figure


@plain_style()
def mismatch_figure(data: dict[str, Any]) -> Any:
    """Test accuracy against the spread of the components, trained in place and deployed.

    ``data``: ``{"runs": [{"spread": 1.0, "deployed": 0.94, "in_place": 0.97, ...}, ...]}``.
    """
    figure, (axes,) = new_figure(1, 5.0)
    names = {"in_place": "in place", "deployed": "deployed", "frozen": "in place, layer frozen"}
    spreads = sorted({run["spread"] for run in data["runs"]})
    for colour, (key, name) in zip(CYCLE, names.items(), strict=False):
        means = []
        for spread in spreads:
            values = [100 * run[key] for run in data["runs"] if run["spread"] == spread]
            axes.plot([spread] * len(values), values, ".", color=colour, alpha=0.4)
            means.append(sum(values) / len(values))
        axes.plot(spreads, means, "o-", color=colour, label=name)
    ideal = [100 * run["ideal"] for run in data["runs"]]
    axes.axhline(sum(ideal) / len(ideal), color=GREY, lw=1, ls="--", label="as drawn")
    finish(axes, "mismatch, in units of 40 % / 70 % / 20 % / 50 mV", "test accuracy, %")
    return figure
