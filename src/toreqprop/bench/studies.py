"""What is measured beside the rows: negative controls, and how much β and max_steps matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toreqprop.bench.bounds import Check, at_least, status
from toreqprop.bench.row_report import percent, worst
from toreqprop.bench.rows import Row
from toreqprop.bench.run import CONTROLS, Run
from toreqprop.evidence.job import Record
from toreqprop.evidence.statistics import SIGNIFICANCE, Summary, above_chance, holm, summarise


@dataclass(frozen=True)
class ControlReport:
    """A negative control: accuracies by arm, and what of the weights moved."""

    name: str
    title: str
    status: str
    checks: tuple[Check, ...]
    chance: float
    accuracy: dict[str, Summary]
    hidden_change: float
    readout_change: float
    hidden_change_of_ep: float | None
    largest_norm: float
    unconverged: int
    worst_residual: float | None


@dataclass(frozen=True)
class Point:
    """EP trained with one setting at another value than the row's."""

    setting: str
    value: float
    accuracy: Summary
    cosine: float
    certified: bool
    unconverged: float


@dataclass(frozen=True)
class Sensitivity:
    """Accuracy and certificates against β and max_steps, all else as tuned."""

    title: str
    own: dict[str, float]
    points: tuple[Point, ...]


def control_reports(of: Row, records: Mapping[Run, Record]) -> tuple[ControlReport, ...]:
    """The controls that were run, on the row they were run on."""
    trained = [r for run, r in records.items() if _is_main(of, run) and run.model == "ep"]
    found = []
    for control in CONTROLS:
        runs = {run: r for run, r in records.items() if run.control == control}
        if runs:
            found.append(_control(control, of, runs, trained))
    return tuple(found)


def _is_main(of: Row, run: Run) -> bool:
    return run.task == of.name and run.control is None and run.variant is None


def _control(
    control: str, of: Row, runs: Mapping[Run, Record], trained: Sequence[Record]
) -> ControlReport:
    arms = {run.model: [r for k, r in runs.items() if k.model == run.model] for run in runs}
    ep = arms["ep"]
    chance = 100 * max(r["data"]["chance"] for r in ep)
    checks: list[Check] = []
    if control == "shuffled-labels":
        # Nothing to learn: neither arm may be found above chance.
        found = holm([_chance_p(records, chance) for records in arms.values()])
        checks = [
            at_least(f"{arm}: p-value against chance, adjusted", p, SIGNIFICANCE)
            for arm, p in zip(arms, found, strict=True)
        ]
    if control == "no-nudge":
        moved = max(_hidden_change(r) for r in ep)
        checks = [Check("largest change of any hidden weight", moved, 0.0, moved == 0.0)]
    return ControlReport(
        name=control,
        title=of.title,
        status=status(checks) if checks else "REPORTED",
        checks=tuple(checks),
        chance=chance,
        accuracy={arm: summarise(percent(found)) for arm, found in arms.items()},
        hidden_change=max(_hidden_change(r) for r in ep),
        readout_change=max(r["change"]["readout.weight"] for r in ep),
        hidden_change_of_ep=max((_hidden_change(r) for r in trained), default=None),
        largest_norm=max(r["relaxation"]["largest_norm"] for r in ep),
        unconverged=sum(r["relaxation"]["unconverged"] for r in ep),
        worst_residual=worst([r["relaxation"]["worst_residual"] for r in ep]),
    )


def _chance_p(found: Sequence[Record], chance: float) -> float:
    trials = sum(r["data"]["test_samples"] for r in found)
    return above_chance(percent(found), chance, sum(r["correct"] for r in found), trials)


def _hidden_change(record: Record) -> float:
    return max(v for k, v in record["change"].items() if not k.startswith("readout"))


def sensitivity(of: Row, records: Mapping[Run, Record]) -> Sensitivity | None:
    """The study, where it was run."""
    runs = [run for run in records if run.variant is not None]
    if not runs:
        return None
    chosen = runs[0].chosen
    points = []
    for variant in dict.fromkeys(run.variant for run in runs):
        assert variant is not None
        found = [records[run] for run in runs if run.variant == variant]
        proofs = [c for r in found for c in r["certificates"]]
        relaxed = sum(r["relaxation"]["relaxations"] for r in found)
        points.append(
            Point(
                setting=variant[0],
                value=variant[1],
                accuracy=summarise(percent(found)),
                cosine=min(c["cosine"] for c in proofs),
                certified=all(c["ok"] for c in proofs),
                unconverged=sum(r["relaxation"]["unconverged"] for r in found) / relaxed,
            )
        )
    own = {"beta": float(chosen.ep.beta or 0.0), "max_steps": dict(chosen.options)["max_steps"]}
    return Sensitivity(of.title, own, tuple(points))
