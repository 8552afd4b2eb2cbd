"""From the records of a row's runs to its figures, checks and verdict; see `bench.bounds`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toreqprop.bench.bounds import Check, at_least, below
from toreqprop.bench.rows import Row
from toreqprop.bench.run import Run
from toreqprop.bench.settings import ModelName, TaskSettings
from toreqprop.evidence.job import Record
from toreqprop.evidence.statistics import (
    SIGNIFICANCE,
    Comparison,
    Summary,
    above_chance,
    compare,
    holm,
    summarise,
)

EQUIVALENT, WORSE, BETTER, NOT_SHOWN = "EQUIVALENT", "WORSE", "BETTER", "NOT SHOWN"


@dataclass(frozen=True)
class Arm:
    """One arm of a row: accuracies in percent, by seed and as a whole; ``chance_p`` is the p-value
    against chance; ``policy`` the returns of its clones on control tasks."""

    parameters: int
    scores: tuple[float, ...]
    accuracy: Summary
    chance_p: float
    seconds: float
    policy: dict[str, float] | None


@dataclass(frozen=True)
class Recurrence:
    """How EP's network settled: steps and norms are means over seeds, the rest is the worst.

    ``ablated`` is its accuracy (%) with the recurrence cut after training, ``cut`` what that
    changes, in points.
    """

    free_steps: float
    nudged_steps: float
    norm: float
    largest_norm: float
    worst_residual: float | None
    unconverged: int
    relaxations: int
    ablated: Summary
    cut: Summary


@dataclass(frozen=True)
class Certificates:
    """EP's certificates over seeds, before, in the middle of and after training, at its own β."""

    made: int
    passed: int
    cosine: float
    least_ratio: float
    largest_ratio: float
    backprop_cosine: float | None
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class RowReport:
    """A row of the report.

    ``comparisons`` are EP minus each other arm; ``against`` names the stronger of the baselines
    that backpropagation trains, whose comparison the verdict is on. ``equivalence_p`` and
    ``difference_p`` are those of that comparison, adjusted by Holm over the rows.
    """

    name: str
    title: str
    counts: bool
    seeds: tuple[int, ...]
    margin: float
    settings: TaskSettings
    data: dict[str, Any]
    chance: float
    arms: dict[ModelName, Arm]
    comparisons: dict[ModelName, Comparison]
    against: ModelName
    recurrence: Recurrence
    certificates: Certificates
    ratio: float
    checks: tuple[Check, ...] = ()
    equivalence_p: float | None = None
    difference_p: float | None = None
    verdict: str = NOT_SHOWN
    status: str = NOT_SHOWN
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def comparison(self) -> Comparison:
        """EP minus the stronger baseline."""
        return self.comparisons[self.against]


def row_report(of: Row, records: Mapping[Run, Record]) -> RowReport:
    """The figures of a row whose runs are all there, without what depends on other rows."""
    chosen = next(iter(records)).chosen
    by_arm = {arm: [r for run, r in records.items() if run.model == arm] for arm in chosen.arms}
    arms = {arm: _arm(found) for arm, found in by_arm.items()}
    ep, scores = (
        by_arm["ep"],
        arms["ep"].scores,
    )  # in the order of seeds: a shorter arm has the first
    rivals = [arm for arm in chosen.arms if arm != "ep"]
    against = max(chosen.baselines, key=lambda arm: arms[arm].accuracy.mean)
    return RowReport(
        name=of.name,
        title=of.title,
        counts=of.counts,
        seeds=tuple(run.seed for run in records if run.model == "ep"),
        margin=of.margin,
        settings=chosen,
        data={k: v for k, v in ep[0]["data"].items() if k != "chance"},
        chance=100 * max(r["data"]["chance"] for r in ep),
        arms=arms,
        comparisons={
            arm: compare(scores[: len(arms[arm].scores)], arms[arm].scores, of.margin)
            for arm in rivals
        },
        against=against,
        recurrence=_recurrence(ep, scores),
        certificates=_certificates(ep),
        ratio=arms["ep"].seconds / arms[against].seconds,
        keys={run.label: r["key"] for run, r in records.items()},
    )


def judge(reports: Sequence[tuple[Row, RowReport]]) -> list[RowReport]:
    """The same reports with checks and verdicts, p-values adjusted over all of them."""
    equivalence = holm([r.comparison.equivalence_p for _, r in reports])
    difference = holm([r.comparison.p for _, r in reports])
    judged = []
    for k, (of, report) in enumerate(reports):
        adjusted = replace(report, equivalence_p=equivalence[k], difference_p=difference[k])
        verdict = _verdict(adjusted)
        checks = _checks(of, adjusted, [r for _, r in reports])
        failed = verdict == WORSE or not all(check.passed for check in checks)
        shown = "PASS" if verdict in (EQUIVALENT, BETTER) else NOT_SHOWN
        judged.append(
            replace(adjusted, verdict=verdict, checks=checks, status="FAIL" if failed else shown)
        )
    return judged


def _verdict(report: RowReport) -> str:
    if report.equivalence_p is not None and report.equivalence_p < SIGNIFICANCE:
        return EQUIVALENT
    if report.difference_p is not None and report.difference_p < SIGNIFICANCE:
        return WORSE if report.comparison.gap.mean < 0 else BETTER
    return NOT_SHOWN


def _checks(of: Row, report: RowReport, everyone: Sequence[RowReport]) -> tuple[Check, ...]:
    place = [r.name for r in everyone].index(report.name)

    def chance_p(arm: str) -> float | None:
        found = [r.arms["ep" if arm == "ep" else r.against].chance_p for r in everyone]
        return holm(found)[place]

    made, passed = report.certificates.made, report.certificates.passed
    checks = [
        below("p-value of EP against chance, adjusted", chance_p("ep"), SIGNIFICANCE),
        below("p-value of the stronger baseline against chance, adjusted", chance_p("rival"),
              SIGNIFICANCE),
        at_least("EP's mean accuracy (%)", report.arms["ep"].accuracy.mean, of.accuracy),
        at_least("the stronger baseline's mean accuracy (%), no weak baseline",
                 report.arms[report.against].accuracy.mean, of.accuracy),
        at_least("certificates that passed at EP's own beta", passed, made),
        below("largest norm of the map after any epoch", report.recurrence.largest_norm, 1.0),
    ]  # fmt: skip
    policy = report.arms["ep"].policy
    if policy is not None and of.policy_return is not None:
        claim = "mean return of EP's cloned policy"
        checks.append(at_least(claim, policy["mean_return"], of.policy_return))
    if policy is not None and of.below_expert is not None:
        claim = f"mean return of EP's cloned policy (the expert's less {of.below_expert:g})"
        least = policy["expert_return"] - of.below_expert
        checks.append(at_least(claim, policy["mean_return"], least))
    return tuple(checks)


def _arm(found: Sequence[Record]) -> Arm:
    scores = percent(found)
    trials = sum(r["data"]["test_samples"] for r in found)
    chance = 100 * max(r["data"]["chance"] for r in found)
    return Arm(
        parameters=found[0]["parameters"],
        scores=scores,
        accuracy=summarise(scores),
        chance_p=above_chance(scores, chance, sum(r["correct"] for r in found), trials),
        seconds=_mean([r["timing"]["training_seconds"] for r in found]),
        policy=_policy(found),
    )


def percent(found: Sequence[Record]) -> tuple[float, ...]:
    """Accuracies in percent."""
    return tuple(100 * r["accuracy"] for r in found)


def worst(residuals: Sequence[float | None]) -> float | None:
    """The largest; None where one was not finite."""
    known = [r for r in residuals if r is not None]
    return max(known) if len(known) == len(residuals) else None


def _recurrence(ep: Sequence[Record], scores: Sequence[float]) -> Recurrence:
    parts = [r["relaxation"] for r in ep]
    cut = [100 * r["ablated"] for r in ep]
    return Recurrence(
        free_steps=_mean([p["free_steps"] for p in parts]),
        nudged_steps=_mean([p["nudged_steps"] for p in parts]),
        norm=_mean([p["norm"] for p in parts]),
        largest_norm=max(p["largest_norm"] for p in parts),
        worst_residual=worst([p["worst_residual"] for p in parts]),
        unconverged=sum(p["unconverged"] for p in parts),
        relaxations=sum(p["relaxations"] for p in parts),
        ablated=summarise(cut),
        cut=summarise([a - b for a, b in zip(cut, scores, strict=True)]),
    )


def _certificates(ep: Sequence[Record]) -> Certificates:
    found = [c for r in ep for c in r["certificates"]]
    beside = [c["backprop_cosine"] for c in found if c["backprop_cosine"] is not None]
    return Certificates(
        made=len(found),
        passed=sum(c["ok"] for c in found),
        cosine=min(c["cosine"] for c in found),
        least_ratio=min(c["least_ratio"] for c in found),
        largest_ratio=max(c["largest_ratio"] for c in found),
        backprop_cosine=min(beside, default=None),
        reasons=tuple(sorted({reason for c in found for reason in c["reasons"]})),
    )


def _policy(found: Sequence[Record]) -> dict[str, float] | None:
    parts = [r["policy"] for r in found]
    if parts[0] is None:
        return None
    return {
        "mean_return": _mean([p["mean_return"] for p in parts]),
        "worst_return": min(p["worst_return"] for p in parts),
        "expert_return": _mean([p["expert_return"] for p in parts]),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
