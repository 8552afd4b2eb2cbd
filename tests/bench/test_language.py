"""The character model: counts by hand, no look ahead, exact gradients, resuming, verdicts."""

from __future__ import annotations

import gc
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from toreqprop.bench.language import report, study, trial
from toreqprop.bench.language.networks import METHODS, Shape, build
from toreqprop.bench.language.ngrams import ngram_bits
from toreqprop.bench.language.training import Recipe, Windows, bits, sample, train
from toreqprop.bench.language.verdict import judged_runs
from toreqprop.errors import InvalidInputError
from toreqprop.evidence import Listener
from toreqprop.gradients import VectorFieldEP
from toreqprop.models import EquilibriumTransformer
from toreqprop.tasks.markov import markov_text
from toreqprop.tasks.shakespeare import Corpus

ROOT = Path(__file__).parents[2]
SMALL = Shape(6, context=8, width=16, heads=2, plain_hidden=10)


def test_ngrams_are_those_counted_by_hand() -> None:
    """abab aab: after a, two b of four... with Witten and Bell's share for what is new."""
    train_text = np.array([0, 1, 0, 1, 0, 0, 1], np.uint8)  # a: 4, b: 3, two kinds
    held, scored = np.array([0, 1], np.uint8), np.array([1])
    one = (3 + 2 * 0.5) / (7 + 2)
    assert ngram_bits(train_text, held, scored, 1, 2) == pytest.approx(-math.log2(one))
    two = (3 + 2 * one) / (4 + 2)  # after a: b three times, a once
    assert ngram_bits(train_text, held, scored, 2, 2) == pytest.approx(-math.log2(two))


def test_a_context_never_seen_is_left_to_the_shorter_one() -> None:
    train_text = np.array([0, 1, 0, 1], np.uint8)
    held, scored = np.array([2, 0], np.uint8), np.array([1])
    shorter = ngram_bits(train_text, held, scored, 1, 3)
    assert ngram_bits(train_text, held, scored, 2, 3) == pytest.approx(shorter)


def test_every_scored_character_has_half_a_window_before_it() -> None:
    text = np.arange(200, dtype=np.uint8)
    windows = Windows.spread(text, 8, 10**6)
    assert sorted(windows.scored) == list(range(5, 5 + len(windows.scored)))  # each once
    assert windows.scored.max() >= len(text) - 5
    targets = torch.cat([y[:, 4:].flatten() for _, y in windows.batches(7)])
    assert targets.tolist() == text[windows.scored].tolist()
    few = Windows.spread(text, 8, 40)
    assert len(few.scored) == 40
    assert set(few.scored) <= set(windows.scored)


@pytest.mark.parametrize("method", METHODS)
def test_no_network_looks_ahead(method: str) -> None:
    torch.manual_seed(0)
    model = build(method, replace(SMALL, tol=1e-10, max_steps=300), 0).double()
    x = torch.randint(0, 6, (5, 8))
    later = x.clone()
    later[:, 5:] = (later[:, 5:] + 1) % 6
    with torch.no_grad():
        one, two = model(x), model(later)
    assert float((one[:, :5] - two[:, :5]).abs().max()) < 1e-8  # of relaxations to 1e-10
    assert float((one[:, 5:] - two[:, 5:]).abs().min(-1).values.max()) > 1e-4


def test_every_network_sees_the_same_windows_and_the_twins_the_same_weights() -> None:
    text = markov_text(6, 2_000, 10, 0).train
    seen = {}
    for method in METHODS:
        torch.manual_seed(0)
        steps = list(train(build(method, SMALL, 3), text, 8, Recipe(1e-2, 2, batch=4), 3))
        seen[method] = [x.tolist() for _, _, x, _ in steps]
    assert seen["ep"] == seen["implicit"] == seen["plain"]
    ep, exact = (build(m, SMALL, 3).state_dict() for m in ("ep", "implicit"))
    assert all(torch.equal(ep[name], exact[name]) for name in ep)
    sizes = [sum(p.numel() for p in build(m, study.SHAPE, 0).parameters()) for m in METHODS]
    assert max(sizes) / min(sizes) < 1.03


def test_the_gradient_is_certified_and_needs_its_correction() -> None:
    text = markov_text(6, 3_000, 10, 1).train
    torch.manual_seed(0)
    model = build("ep", SMALL, 0)
    assert isinstance(model, EquilibriumTransformer)
    *_, (_, _, x, y) = train(model, text, 8, Recipe(2e-2, 30, batch=16), 0)
    found = trial.proven(model, x, y)
    assert found["ok"]
    assert found["uncorrected_cosine"] < 0.99
    assert found["one_pass_cosine"] < 0.999
    model.gradient = VectorFieldEP(correction=False)
    assert not trial.proven(model, x, y)["ok"]


def test_a_sample_is_the_same_twice() -> None:
    model = build("plain", SMALL, 0)
    one, two = (sample(model, np.array([1, 2]), 20, 8, 0.7, seed=5) for _ in range(2))
    assert one == two
    assert len(one) == 20
    assert one != sample(model, np.array([1, 2]), 20, 8, 0.7, seed=6)


class _StoppedError(Exception):
    pass


class _StopsAfterTwo(Listener[Any]):
    done = 0

    def finished(self, job: Any, record: Any) -> None:
        self.done += 1
        if self.done == 2:
            raise _StoppedError


def test_a_study_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = markov_text(6, 6_000, 4_000, 0)
    parts = {"train": ("a",), "validation": ("b",), "test": ("c",)}
    text = Corpus(made.train, made.test[:2_000], made.test[2_000:], parts, {})
    monkeypatch.setattr(trial, "corpus", lambda: text)
    monkeypatch.setattr(trial, "WRITTEN", 10)
    monkeypatch.setattr(trial, "encode", lambda prompt: np.array([0, 1], np.uint8))
    monkeypatch.setattr(study, "BATCH", 4)

    def run(**options: Any) -> dict[str, Any]:
        return study.run_language(tmp_path, seeds=1, updates=12, shape=SMALL, **options)

    with pytest.raises(_StoppedError):
        run(listener=_StopsAfterTwo())
    found = run()
    assert found["timing"]["reused"] == 2
    assert found["verdict"] != "PASS"  # one seed shows nothing, and twelve updates teach little
    assert not (tmp_path / "language.json").exists()  # a part never takes the place of the whole
    monkeypatch.setattr(trial, "trained", lambda **_: pytest.fail("trained again"))
    assert run()["runs"] == found["runs"]
    ep = next(r for r in found["runs"] if r["method"] == "ep")
    assert [p["update"] for p in ep["certificates"]] == [1, 6, 12]
    assert ep["curve"]["tokens"][-1] == ep["tokens"] == 12 * 4 * 8
    assert set(ep["cut"]) == {"1", "2", "4", "settled"}
    for lines in (
        *(report.table_lines, report.gap_lines, report.check_lines, report.certificate_lines),
        *(report.settling_lines, report.sample_lines),
    ):
        assert len(lines(found)) > 2
    report.curves_figure(found)


def test_training_lowers_the_bits() -> None:
    made = markov_text(6, 6_000, 2_000, 0)
    windows = Windows.spread(made.test, 8, 1_000)
    torch.manual_seed(0)
    model = build("ep", SMALL, 0)
    before = bits(model, windows)
    for _ in train(model, made.train, 8, Recipe(2e-2, 40, batch=16), 0):
        pass
    assert bits(model, windows) < before - 0.5


def test_the_seed_of_the_search_gives_no_results(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="chose the rates"):
        study.run_language(tmp_path, first_seed=998, seeds=3)


def test_rates_are_those_the_search_chose() -> None:
    lines = (ROOT / "results" / "language_search.jsonl").read_text().splitlines()
    trials = [t for t in map(json.loads, lines) if t["kind"] == "rate"]
    assert study.choose(trials) == study.RATES
    kinds = Counter(t["method"] for t in trials)
    assert set(kinds.values()) == {len(study.GRID)}  # alike for all
    assert {t["seed"] for t in trials} == {study.SEARCH_SEED}


def runs(ep: list[float], exact: list[float], **changed: Any) -> list[dict[str, Any]]:
    """Five seeds of made-up runs."""
    proof = {
        "update": 1, "ok": True, "cosine": 1.0, "least_ratio": 1.0, "largest_ratio": 1.0,
        "uncorrected_cosine": 0.8, "one_pass_cosine": 0.9, "contraction": 2.0, "asymmetry": 1.4,
        "steps": {"free": 8},
    }  # fmt: skip
    made: list[dict[str, Any]] = []
    for seed in range(5):
        common = {
            "seed": seed, "parameters": 100, "tokens": 64, "rate": 0.01,
            "timing": {"cpu_seconds": 1.0},
        }  # fmt: skip
        settling = {
            "steps": {"free": 9.0}, "unsettled": 0, "relaxations": 5, "norms": {"query": 1.0},
            "cut": {"1": 3.0}, "certificates": [proof],
        }  # fmt: skip
        made += [
            {**common, **settling, "method": "ep", "test_bits": ep[seed], **changed},
            {**common, **settling, "method": "implicit", "test_bits": exact[seed]},
            {**common, "method": "plain", "test_bits": 2.5 + 0.01 * seed},
        ]
    return made


GOOD = [2.90, 2.91, 2.92, 2.93, 2.94]
REFUSED = {
    "update": 1, "ok": False, "cosine": 0.5, "least_ratio": 1.0, "largest_ratio": 1.0,
    "uncorrected_cosine": 0.8, "one_pass_cosine": 0.9, "contraction": 2.0, "asymmetry": 1.4,
    "steps": {"free": 8},
}  # fmt: skip


@pytest.mark.parametrize(
    ("ep", "exact", "changed", "verdict"),
    [
        (GOOD, GOOD[::-1], {}, "PASS"),
        ([g + 0.1 for g in GOOD], GOOD, {}, "FAIL"),  # worse than the twin
        ([g + 0.6 for g in GOOD], [g + 0.6 for g in GOOD], {}, "FAIL"),  # counting does as well
        (GOOD, GOOD[::-1], {"parameters": 120}, "FAIL"),  # not of equal size
        (GOOD, GOOD[::-1], {"tokens": 128}, "FAIL"),  # nor of equal tokens
        (GOOD, GOOD[::-1], {"certificates": [REFUSED]}, "FAIL"),
        ([2.8, 3.0, 2.9, 2.85, 2.95], [3.0, 2.8, 2.9, 2.95, 2.85], {}, "NOT SHOWN"),
    ],
)
def test_the_verdict_can_fail(
    ep: list[float],
    exact: list[float],
    changed: dict[str, Any],
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gc, "collect", lambda: 0)  # statsmodels does at every call, for long
    found = judged_runs({"two": 3.6}, runs(ep, exact, **changed))
    assert found["verdict"] == verdict, found["checks"]
