"""Accuracy and Lipschitz constant while a network learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toreqprop import checks
from toreqprop.errors import InvalidInputError
from toreqprop.plots.arguments import draws
from toreqprop.plots.style import CYCLE, GREY, STYLES, finish, new_figure, plain_style
from toreqprop.training import History

Rows = Sequence[Mapping[str, Any]]


def training(runs: History | Rows | Mapping[str, History | Rows]) -> Any:
    """Draw accuracy and, where it was watched, the Lipschitz constant against epoch.

    ``runs`` is what `fit` returned (or its rows), or several of them by name.
    """
    return training_figure(training_data(runs))


def training_data(runs: History | Rows | Mapping[str, History | Rows]) -> dict[str, Any]:
    """What `training` draws: by run the epochs, accuracies in percent, Lipschitz constants."""
    named = runs if isinstance(runs, Mapping) else {"": runs}
    if not named:
        raise InvalidInputError("There is no run to draw: give what fit returned.")
    found = {}
    for name, run in named.items():
        rows = run.as_rows() if isinstance(run, History) else _rows(run)
        if not rows or all(row.get("accuracy") is None for row in rows):
            raise InvalidInputError(
                "There is no accuracy to draw: train with fit(validation=(x, y))."
            )
        found[name] = curves(rows)
    return found


def _rows(run: Any) -> list[Mapping[str, Any]]:
    """Rows of a history as they are given."""
    fits = isinstance(run, Sequence) and all(isinstance(row, Mapping) for row in run)
    if not fits or any("epoch" not in row for row in run):
        raise InvalidInputError("A run must be what fit returned, or the rows of it.")
    return list(run)


def curves(rows: Rows) -> dict[str, Any]:
    """The columns of a history that a figure shows."""
    watched = all(row.get("lipschitz") is not None for row in rows)
    return {
        "epochs": [row["epoch"] for row in rows],
        "accuracy": [100 * _accuracy(row) for row in rows],
        "lipschitz": [row["lipschitz"] for row in rows] if watched else None,
    }


def _accuracy(row: Mapping[str, Any]) -> float:
    return checks.number(f"The accuracy of epoch {row['epoch']}", row.get("accuracy"))


@draws("training_data")
def training_figure(data: Mapping[str, Any]) -> Any:
    """The figure of `training_data`: accuracy on the left, Lipschitz constant on the right."""
    watched = any(run["lipschitz"] is not None for run in data.values())
    with plain_style():
        figure, axes = new_figure(2 if watched else 1, width=8.4 if watched else 4.6)
        for k, (name, run) in enumerate(data.items()):
            look: dict[str, Any] = {
                "colour": CYCLE[k % len(CYCLE)],
                "style": STYLES[k % len(STYLES)],
            }
            label = name or None
            draw_curve(axes[0], run["epochs"], run["accuracy"], label=label, **look)
            if watched and run["lipschitz"] is not None:
                draw_curve(axes[1], run["epochs"], run["lipschitz"], label=label, **look)
        finish(axes[0], "epoch", "accuracy, %", counts=True)
        if watched:
            axes[1].axhline(1.0, color=GREY, ls=":", lw=1.1, label="1, contraction ends")
            axes[1].set_ylim(bottom=0)
            finish(axes[1], "epoch", "largest Lipschitz constant", counts=True)
    return figure


def draw_curve(
    axes: Any,
    x: Sequence[float],
    y: Sequence[float],
    *,
    colour: str,
    label: str | None = None,
    style: Any = "-",
) -> None:
    """One curve against epochs; a single point is shown as a dot."""
    marker = "o" if len(x) == 1 else None
    axes.plot(x, y, ls=style, color=colour, lw=1.5, alpha=0.9, label=label, marker=marker)
