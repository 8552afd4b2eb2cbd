"""How well each tensor's gradient agrees with the exact one."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from toreqprop import checks
from toreqprop.certificate import MAX_NORM_ERROR, MIN_COSINE, Certificate
from toreqprop.errors import InvalidInputError
from toreqprop.plots.arguments import draws
from toreqprop.plots.style import CYCLE, GREY, finish, new_figure, plain_style

_MARKERS = ("o", "s", "^", "D", "v", "P")


def alignment(certificates: Certificate | Mapping[str, Certificate]) -> Any:
    """Draw angle and norm ratio per tensor, for one certificate or several by name."""
    return alignment_figure(alignment_data(certificates))


def alignment_data(certificates: Certificate | Mapping[str, Certificate]) -> dict[str, Any]:
    """What `alignment` draws, as plain data: cosine, angle in degrees, norm ratio per tensor."""
    if isinstance(certificates, Certificate):
        certificates = {certificates.estimator: certificates}
    if not isinstance(certificates, Mapping) or not certificates:
        raise InvalidInputError("certificates must be what certify returned, or several by name.")
    for name, each in certificates.items():
        checks.instance(f"The certificate {name!r}", each, Certificate, "use what certify returned")
    return {
        name: {
            "ok": found.ok,
            "tensors": [
                {
                    "name": t.name,
                    "cosine": t.cosine,
                    "angle": angle(t.cosine),
                    "norm_ratio": t.norm_ratio,
                }
                for t in found.tensors
            ],
        }
        for name, found in certificates.items()
    }


def short_name(parameter: str) -> str:
    """``recurrent.weight`` for the ``recurrent.raw`` behind its constraints."""
    return re.sub(r"\.raw(_bias)?$", lambda m: ".bias" if m[1] else ".weight", parameter)


def angle(cosine: float) -> float:
    """The angle with this cosine in degrees; above 90 the gradient points uphill."""
    checks.number("cosine", cosine)
    return math.degrees(math.acos(min(1.0, max(-1.0, cosine))))


@draws("alignment_data")
def alignment_figure(data: Mapping[str, Any]) -> Any:
    """The figure of `alignment_data`: angles on the left, norm ratios on the right."""
    names = [short_name(t["name"]) for t in next(iter(data.values()))["tensors"]]
    rows = len(names)
    with plain_style():
        figure, (angles, ratios) = new_figure(2, width=8.4, height=1.5 + 0.45 * rows)
        for k, (label, found) in enumerate(data.items()):
            places = [rows - 1 - r + _offset(k, len(data)) for r in range(rows)]
            style = {"color": CYCLE[k % len(CYCLE)], "marker": _MARKERS[k % len(_MARKERS)]}
            values = [t["angle"] for t in found["tensors"]]
            angles.hlines(places, 0, values, color=style["color"], lw=1.2, alpha=0.5)
            angles.plot(values, places, ls="", ms=6, label=label, **style)
            ratios.plot([t["norm_ratio"] for t in found["tensors"]], places, ls="", ms=6, **style)
        limit = angle(MIN_COSINE)
        worst = max(t["angle"] for found in data.values() for t in found["tensors"])
        angles.axvline(limit, color=GREY, ls="--", lw=0.9, label=f"limit, cosine {MIN_COSINE:g}")
        angles.set_xlim(0, 1.15 * max(limit, worst))
        low, high = 1 - MAX_NORM_ERROR, 1 + MAX_NORM_ERROR
        ratios.axvspan(low, high, color=GREY, alpha=0.15, lw=0, label="certified range")
        ratios.axvline(1.0, color=GREY, lw=0.9)
        for panel in (angles, ratios):
            panel.set_yticks(range(rows), list(reversed(names)))
            panel.set_ylim(-0.6, rows - 0.4)
        ratios.set_yticklabels([])
        finish(angles, "angle to the exact gradient, degrees", "", legend=False)
        finish(ratios, "norm / norm of the exact gradient", "", legend=False)
        handles, labels = (
            a + b
            for a, b in zip(
                angles.get_legend_handles_labels(), ratios.get_legend_handles_labels(), strict=True
            )
        )
        figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)))
    return figure


def _offset(k: int, count: int) -> float:
    """Estimators of one tensor stand above each other, not on each other."""
    return 0.0 if count == 1 else 0.5 * (0.5 - k / (count - 1))
