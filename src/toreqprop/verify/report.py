"""Puts records and verdicts together into one report: plain data, complete before any rendering."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from toreqprop.evidence.job import Record
from toreqprop.verify.gauge import BOUND, gauge
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import decode
from toreqprop.verify.records import Job, verdict_of
from toreqprop.verify.self_test import Detection
from toreqprop.verify.track import Track
from toreqprop.verify.verdict import Check, Status

Report = dict[str, Any]

MARKS = {"PASS": "✅", "PARTIAL": "⚠️", "FAIL": "❌", "STUB": "🔧", "NOT RUN": "⏸️"}


def make_report(
    records: Mapping[Job, Record],
    level: Level,
    found: Sequence[Detection] | None = None,
) -> Report:
    """The report of a verification; ``found`` adds the outcome of the self-test."""
    honest = {job: record for job, record in records.items() if job.sabotage is None}
    tracks = [_track(job.track, record) for job, record in honest.items()]
    ran = [t for t in tracks if t["status"] in ("PASS", "PARTIAL", "FAIL")]
    counts = {s.value: sum(t["status"] == s.value for t in tracks) for s in Status}
    digest = hashlib.sha256("".join(t["hash"] for t in tracks).encode()).hexdigest()
    seeds = sorted({seed for job in honest for seed in job.seeds})
    confirmed = [t["confirmed"] for t in tracks if t["status"] not in ("STUB", "NOT RUN")]
    return {
        "title": "TorEqProp Verification Results",
        "level": level.title,
        "seeds": seeds,
        "overall": {
            "verified": len(ran),
            "counts": counts,
            "average_score": sum(t["score"] for t in ran) / len(ran) if ran else 0.0,
            "passed": bool(ran) and all(t["status"] == "PASS" for t in ran),
        },
        "tracks": tracks,
        "reproducibility": {
            "hash": digest,
            "confirmed": sum(c is True for c in confirmed),
            "differing": [t["number"] for t in tracks if t["confirmed"] is False],
        },
        "self_test": None if found is None else [_detection(d) for d in found],
    }


def _track(track: Track, record: Record) -> dict[str, Any]:
    verdict = verdict_of(track, record)
    status = verdict.status.value
    checks = [_check(c) for c in verdict.checks]
    return {
        "number": track.number,
        "title": track.title,
        "claim": track.claim,
        "experiment": track.experiment,
        "status": status,
        "score": verdict.score,
        "reason": verdict.reason,
        "seeds": record["seeds"],
        "checks": checks,
        "nearest": _nearest(checks),
        "interpretation": _interpretation(track, record, verdict.checks),
        "improvements": [_sentence(c) for c in verdict.checks if not c.holds],
        "sabotages": [{"name": s.name, "does": s.does} for s in track.sabotages],
        "tables": record["tables"],
        "figures": record["figures"],
        "values": record["values"],
        "timings": record["timings"],
        "checksums": record["checksums"],
        "key": record.get("key"),
        "hash": record["hash"],
        "confirmed": record.get("confirmed"),
        "seconds": record["seconds"],
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "says": check.bound.says,
        "kind": check.kind,
        "measured": check.measured,
        "low": check.low,
        "high": check.high,
        "bound": bound_text(check),
        "gauge": gauge(check),
        "holds": check.holds,
        "reason": check.reason,
        "weight": check.bound.weight,
    }


def _nearest(checks: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The bound that is broken by most, or held by least; one that is met exactly, as none of
    something is, says nothing."""
    shown = [c for c in checks if c["gauge"] is not None]
    shown = [c for c in shown if not c["holds"] or c["gauge"]["point"] != BOUND]
    if not shown:
        return None
    found = min(shown, key=lambda c: c["gauge"]["point"])
    return {name: found[name] for name in ("says", "holds", "gauge")}


def bound_text(check: Check) -> str:
    """The right-hand side of a check."""
    bound = check.bound
    if bound.relation == "above chance":
        return f"> {check.reason}" if check.reason.startswith("chance") else "> chance"
    if bound.relation == "equivalent within":
        return f"within ±{bound.limit:g}"
    sign = {"<=": "≤", ">=": "≥"}.get(bound.relation, bound.relation)
    return f"{sign} {number(bound.limit)}"


def number(value: float | None) -> str:
    """Four digits, whatever the size."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.4g}"


def _sentence(check: Check) -> str:
    """What was found where something else was asked for."""
    if check.measured is None:
        return f"{check.bound.says}: {check.reason}; asked for {bound_text(check)} ({check.kind})"
    why = f"; {check.reason}" if check.reason and not check.reason.startswith("chance") else ""
    return (
        f"{check.bound.says}: measured {number(check.measured)}{why}; asked for "
        f"{bound_text(check)} ({check.kind})"
    )


def _interpretation(track: Track, record: Record, checks: Sequence[Check]) -> list[str]:
    """Figures in sentences, then how many bounds hold: all of it from the measurements."""
    values = {name: decode(stored) for name, stored in record["values"].items()}
    known = {name: v for name, v in {**record["timings"], **values}.items() if v is not None}
    lines = []
    for statement in track.statements:
        try:
            lines.append(statement.format(**known))
        except (KeyError, ValueError, TypeError):  # a figure of it was not measured
            continue
    if checks:
        required = [c for c in checks if c.bound.required]
        rest = [c for c in checks if not c.bound.required]
        text = f"{sum(c.holds for c in required)} of {len(required)} required bounds hold"
        if rest:
            text += f", {sum(c.holds for c in rest)} of {len(rest)} desirable ones"
        lines.append(f"{text}.")
    return lines


def _detection(found: Detection) -> dict[str, Any]:
    return {
        "track": found.track,
        "title": found.title,
        "sabotage": found.sabotage,
        "does": found.does,
        "honest": found.honest.value,
        "status": found.verdict.status.value,
        "broken": list(found.broken),
        "reason": found.verdict.reason,
        "seen": found.seen,
        "available": found.available,
    }
