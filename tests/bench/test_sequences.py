"""Transformers that reverse and sort: what a run measures, and when a row is worse than before."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from toreqprop.bench import sequences as study

ROOT = Path(__file__).parents[2]


def run(row: tuple[Any, ...], tokens: float, seed: int) -> dict[str, Any]:
    """What `trained` returns, as far as tables and checks look at it."""
    certificate = {"ok": True, "cosine": 0.9999, "verdict": "PASS"}
    return {
        **dict(zip(("task", "length", "network", "updates"), row, strict=False)),
        "seed": seed, "tokens": tokens, "whole": 90.0, "chance": 10.0, "steps": [3.0, 2.0],
        "unsettled": 0, "relaxations": 10, "certificates": [certificate] * 3,
        "timing": {"training": 1.0},
    }  # fmt: skip


def test_a_network_learns_and_is_certified_before_amid_and_after() -> None:
    found = study.trained("reversal", 4, "energy", 60, 32, seed=0, test=100)
    assert found["tokens"] > 90 > found["chance"] + 50
    assert found["whole"] <= found["tokens"]
    assert [c["ok"] for c in found["certificates"]] == [True] * 3
    # A free and a nudged phase for each update: those of certificates are not among them.
    assert found["relaxations"] == 120
    assert found == json.loads(json.dumps(found))


def test_a_row_is_worse_where_its_worst_seed_is() -> None:
    runs = [run(row, 100.0, seed) for row in study.ROWS for seed in (1, 2)]
    report = study.assemble(runs)
    assert [check["passed"] for check in report["checks"]].count(True) == len(study.BEFORE)
    assert [c["row"] for c in report["checks"] if c["passed"] is None] == ["reversal of 64, energy"]
    for place, row in enumerate(study.ROWS):
        spoilt = copy.deepcopy(runs)
        spoilt[2 * place + 1]["tokens"] = 99.0
        failed = [c["row"] for c in study.assemble(spoilt)["checks"] if c["passed"] is False]
        assert failed == ([f"{row[0]} of {row[1]}, {row[2]}"] if row[:3] in study.BEFORE else [])
    lines = study.render_markdown(report)
    assert len(lines) == 2 + len(study.ROWS)
    assert "6 of 6" in lines[2]
    assert "no worse" in lines[2]


def test_every_row_is_asked_from_every_seed() -> None:
    names = [each.name for each in study.measurements((1, 2))]
    assert len(set(names)) == len(names) == 2 * len(study.ROWS)


def test_the_results_are_judged_by_their_runs() -> None:
    path = ROOT / "results/sequences.json"
    if not path.exists():
        pytest.skip("not measured yet")
    report = json.loads(path.read_text())
    assert report["checks"] == study.assemble(report["runs"])["checks"]
    assert {len(r["certificates"]) for r in report["runs"]} == {3}
