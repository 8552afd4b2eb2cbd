"""One look for every figure: colours, fonts, and SVG text that needs no other file."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from toreqprop import checks
from toreqprop.atomic import write_atomically
from toreqprop.errors import InvalidInputError

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
)
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
GREY = "#6b7280"
INK = "#1f2937"
PHASES = {"free": BLUE, "nudged": VERMILION, "nudged +β": VERMILION, "nudged −β": GREEN}
"""The colour of each phase, the same in every figure."""

FORMATS = (".svg", ".png", ".pdf")


def need_matplotlib() -> None:
    """Refuse to draw without Matplotlib, before anything is measured for a figure."""
    if find_spec("matplotlib") is None:
        raise InvalidInputError('Figures need matplotlib: run `pip install "toreqprop[bench]"`.')


@contextmanager
def plain_style() -> Iterator[None]:
    """Small type, few lines, text that stays text in SVG, no background of its own."""
    need_matplotlib()
    import matplotlib as mpl

    with mpl.rc_context(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 10,
            "legend.frameon": False,
            "legend.fontsize": 8,
            "svg.fonttype": "none",
            "figure.facecolor": "none",
            "savefig.transparent": True,
        }
    ):
        yield


def new_figure(
    columns: int, width: float = 8.0, height: float = 3.2, *, share_y: bool = False
) -> tuple[Any, Any]:
    """A figure on white with a row of axes; it belongs to no window and needs no display."""
    need_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    return figure, figure.subplots(1, columns, squeeze=False, sharey=share_y)[0]


def finish(
    axes: Any, x_label: str, y_label: str, *, legend: bool = True, counts: bool = False
) -> None:
    """Labels, a faint grid, a legend where curves have names; ``counts``: x has whole numbers."""
    if counts:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(True, color=GREY, alpha=0.18, lw=0.6)
    axes.set_axisbelow(True)
    if legend and axes.get_legend_handles_labels()[1]:
        axes.legend(loc="best")


def check_format(path: Path) -> None:
    """Refuse a file name whose ending names no format a figure is written in."""
    if path.suffix not in FORMATS:
        raise InvalidInputError(
            f"A figure is written as {', '.join(FORMATS)}, not {path.suffix or path.name!r}: "
            f"use for instance {path.with_suffix('.svg').name}."
        )


def save(figure: Any, path: Path | str) -> Path:
    """Write a figure as SVG, PNG or PDF by the file's name; the same figure, the same bytes."""
    path = checks.path("path", path)
    check_format(path)
    need_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    checks.instance("figure", figure, Figure, "use what a function of toreqprop.plots returned")
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    drawn = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "path"}):
        figure.savefig(
            drawn, dpi=150, format=path.suffix.removeprefix("."), metadata=dates.get(path.suffix)
        )
    write_atomically(path, drawn.getvalue())
    return path


def svg(name: str, size: tuple[float, float], draw: Callable[[Any], None]) -> str:
    """Draw on fresh axes; the text holds no date, and ids that are this figure's own."""
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name):
        raise InvalidInputError(
            f"name must be one word, as it begins ids, got {checks.shown(name)}."
        )
    if not isinstance(size, tuple | list) or len(size) != 2:
        raise InvalidInputError(f"size must be a width and a height, got {checks.shown(size)}.")
    for side in size:
        checks.number("size, in inches,", side, 0, above=True)
    checks.function("draw", draw)
    need_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    found = text.getvalue()
    found = re.sub(r"<metadata>.*?</metadata>", "", found[found.index("<svg") :], flags=re.DOTALL)
    for reference in ('id="', 'href="#', "url(#"):
        found = found.replace(reference, f"{reference}{name}-")
    # Without a size of its own the figure takes the width the page gives it.
    head, rest = found.split(">", 1)
    return re.sub(r' (width|height)="[^"]*"', "", head) + ">" + rest
