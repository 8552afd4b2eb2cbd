"""Pictures of learning on chips: every method under every fault, and where a chip learns at all."""

from __future__ import annotations

from typing import Any

from toreqprop.plots.style import CYCLE, INK, STYLES, finish, new_figure, plain_style


@plain_style()
def faults_figure(data: dict[str, Any]) -> Any:
    """Test accuracy of every method under every fault, with deviations.

    ``data``: ``{"methods": [...], "rows": [{"fault": "...", "scores": {method: {"mean": 95.0,
    "sd": 0.5 or None}}}]}``.
    """
    rows = data["rows"]
    figure, (axes,) = new_figure(1, 8.0, 1.2 + 0.32 * len(rows))
    places = range(len(rows))
    for number, method in enumerate(data["methods"]):
        found = [(p, r["scores"][method]) for p, r in zip(places, rows, strict=True)
                 if method in r["scores"]]  # fmt: skip
        axes.errorbar(
            [score["mean"] for _, score in found],
            [p + 0.12 * (number - 2) for p, _ in found],
            xerr=[score["sd"] or 0.0 for _, score in found],
            fmt="osD^v"[number % 5], ms=4, lw=1, color=CYCLE[number % len(CYCLE)], label=method,
        )  # fmt: skip
    axes.set_yticks(list(places), [r["fault"] for r in rows])
    axes.invert_yaxis()
    finish(axes, "test accuracy on the chip, %", "")
    return figure


@plain_style()
def map_figure(data: dict[str, Any]) -> Any:
    """Accuracy after training in place against noise and resolution, and the budget's error.

    ``data``: ``{"noise": [...], "bits": [...], "accuracy": rows by noise or None, "error": rows by
    noise}``.
    """
    figure, axes = new_figure(2, 8.0, 3.4)
    kinds = (("accuracy", "test accuracy, %", "viridis"), ("error", "predicted error", "cividis_r"))
    for ax, (key, label, colours) in zip(axes, kinds, strict=True):
        values = [[v if v is not None else float("nan") for v in row] for row in data[key]]
        shown = [[min(v, 2.0) for v in row] for row in values] if key == "error" else values
        image = ax.imshow(shown, cmap=colours, aspect="auto", origin="lower")
        middle = 0.5 * sum(image.get_clim())
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                dark = shown[i][j] < middle if key == "accuracy" else shown[i][j] > middle
                text = f"{value:.0f}" if key == "accuracy" else f"{value:.2g}"
                ax.text(j, i, text, ha="center", va="center", color="white" if dark else INK)
        ax.set_xticks(range(len(data["bits"])), data["bits"])
        ax.set_yticks(range(len(data["noise"])), [f"{v:g}" for v in data["noise"]])
        finish(ax, "bits of a state", "read noise", legend=False)
        ax.grid(False)
        ax.set_title(label)
    return figure


@plain_style()
def budget_figure(data: dict[str, Any]) -> Any:
    """Parts of the predicted error against β, with the best one.

    ``data``: ``{"beta": best, "curve": [{"beta": 0.1, "error": 0.2, "terms": {...}}]}``.
    """
    figure, (axes,) = new_figure(1, 5.0)
    betas = [p["beta"] for p in data["curve"]]
    axes.loglog(betas, [p["error"] for p in data["curve"]], color=INK, lw=2, label="total")
    for number, name in enumerate(data["curve"][0]["terms"]):
        values = [p["terms"][name] for p in data["curve"]]
        if max(values) > 1e-6:
            label = name.replace("_", " ")
            axes.loglog(betas, values, color=CYCLE[number], ls=STYLES[number], label=label)
    axes.axvline(data["beta"], color=INK, lw=0.8, ls=":")
    finish(axes, "β", "relative error of one gradient")
    return figure
