"""Faults of the certificate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from toreqprop.certificate import certifying
from toreqprop.models import EquilibriumModel
from toreqprop.verify.mutations.mutation import Mutation, swapped

AREA = "certificates"


def _itself(right: Any) -> Any:
    return lambda name, found, exact, *limits: right(name, found, found, *limits)


def _directions_alone(right: Any) -> Any:
    def compare(name: str, found: Any, exact: Any, least: float, most: float) -> Any:
        return right(name, found, exact, least, float("inf"))

    return compare


def _unsigned(right: Any) -> Any:
    def compare(name: str, found: Any, exact: Any, least: float, most: float) -> Any:
        made = right(name, found, exact, least, most)
        cosine = abs(made.cosine)
        return replace(made, cosine=cosine, ok=cosine >= least and abs(made.norm_ratio - 1) <= most)

    return compare


def _lenient(right: Any) -> Any:
    def compare(name: str, found: Any, exact: Any, least: float, most: float) -> Any:
        return right(name, found, exact, 0.96, most)

    return compare


MUTATIONS = (
    Mutation(
        "certificate compared with itself", AREA, "the oracle is the estimator's own gradient", 69,
        swapped(certifying, "compare", _itself),
    ),
    Mutation(
        "norms ignored", AREA, "a certificate looks at directions alone", 69,
        swapped(certifying, "compare", _directions_alone),
    ),
    Mutation(
        "signs ignored", AREA, "a certificate takes the size of a cosine", 69,
        swapped(certifying, "compare", _unsigned),
    ),
    Mutation(
        "cosine of 0.96 is enough", AREA, "whatever was asked for", 69,
        swapped(certifying, "compare", _lenient),
    ),
    Mutation(
        "oracle at the model's tolerance", AREA, "the exact gradient is that of where it stopped",
        69, swapped(certifying, "ORACLE_TOL", lambda right: 0.5),
    ),
    Mutation(
        "one tensor certified for all", AREA, "only the first tensor is compared", 69,
        swapped(
            EquilibriumModel, "estimated_parameters", lambda right: lambda self: right(self)[:1]
        ),
    ),
    Mutation(
        "no reason is structural", AREA, "unrolled and unnudged gradients are like any", 69,
        swapped(certifying, "structural_faults", lambda right: lambda *given: ()),
    ),
)  # fmt: skip
