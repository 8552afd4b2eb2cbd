"""The one rule from measurements to verdicts: every way in which evidence can be missing fails."""

from __future__ import annotations

import math

import pytest

from tests.verify.cheap_tracks import GUESSING, LEARNED, cheap
from toreqprop.errors import InvalidInputError
from toreqprop.verify.levels import FULL, INTERMEDIATE, QUICK, seeds_from
from toreqprop.verify.measurements import Accuracy, Measurements, Paired
from toreqprop.verify.records import Job, perform, verdict_of
from toreqprop.verify.verdict import (
    Status,
    above,
    above_chance,
    at_least,
    at_most,
    below,
    equivalent,
    judge,
)

MUST, SHOULD = at_most("a", 1.0, "a"), at_most("b", 1.0, "b", required=False)


@pytest.mark.parametrize(
    ("a", "b", "status", "score"),
    [
        (0.5, 0.5, Status.PASS, 100.0),
        (0.5, 1.5, Status.PARTIAL, 50.0),
        (1.5, 0.5, Status.FAIL, 50.0),
        (1.5, 1.5, Status.FAIL, 0.0),
        (math.nan, 0.5, Status.FAIL, 50.0),
        (math.inf, 0.5, Status.FAIL, 50.0),
        (-math.inf, 0.5, Status.FAIL, 50.0),
        (None, 0.5, Status.FAIL, 50.0),
    ],
)
def test_status_and_score(a, b, status, score) -> None:
    verdict = judge((MUST, SHOULD), {"a": a, "b": b}, QUICK)
    assert verdict.status is status
    assert verdict.score == score


def test_a_missing_measurement_fails() -> None:
    assert judge((MUST,), {}, QUICK).status is Status.FAIL


def test_weights_count_in_the_score() -> None:
    heavy = at_most("b", 1.0, "b", weight=3.0)
    assert judge((MUST, heavy), {"a": 0.0, "b": 2.0}, QUICK).score == 25.0


@pytest.mark.parametrize(
    ("bound", "at_limit"), [(at_most, True), (at_least, True), (below, False), (above, False)]
)
def test_the_limit_itself(bound, at_limit) -> None:
    holds = judge((bound("a", 1.0, "a"),), {"a": 1.0}, QUICK).status is Status.PASS
    assert holds is at_limit


def test_a_track_that_could_not_fail_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="cannot fail"):
        judge((SHOULD,), {"b": 0.0}, QUICK)
    with pytest.raises(InvalidInputError, match="names no sabotage"):
        cheap(sabotages=())


def test_accuracy_at_chance_fails_although_nobody_asked() -> None:
    verdict = judge((MUST,), {"a": 0.0, "accuracy": GUESSING}, QUICK)
    assert verdict.status is Status.FAIL
    assert judge((MUST,), {"a": 0.0, "accuracy": LEARNED}, QUICK).status is Status.PASS


def test_the_interval_decides_not_the_mean() -> None:
    lucky = Accuracy((14,), (100,), 0.1)
    assert lucky.mean > lucky.chance_percent
    verdict = judge((above_chance("accuracy", "accuracy"),), {"accuracy": lucky}, QUICK)
    assert verdict.status is Status.FAIL
    many = Accuracy((1400,), (10000,), 0.1)
    verdict = judge((above_chance("accuracy", "accuracy"),), {"accuracy": many}, QUICK)
    assert verdict.status is Status.PASS


def test_identical_scores_do_not_look_certain() -> None:
    low, high = Accuracy((11, 11, 11), (100, 100, 100), 0.1).interval
    assert low < 10 < 11 < high


def test_a_bare_number_called_accuracy_fails() -> None:
    assert judge((MUST,), {"a": 0.0, "test_accuracy": 99.0}, QUICK).status is Status.FAIL


def test_a_contrast_is_reported_and_not_held_against_the_track() -> None:
    shown = Accuracy(GUESSING.correct, GUESSING.total, GUESSING.chance, contrast=True)
    assert judge((MUST,), {"a": 0.0, "accuracy": shown}, QUICK).status is Status.PASS


def test_equivalence_needs_evidence_not_just_a_small_gap() -> None:
    rule = (equivalent("gap", 1.0, "gap"),)
    close = Paired((95.0, 96.0, 94.0), (95.1, 96.1, 93.9))
    noisy = Paired((95.0, 90.0, 99.0), (91.0, 96.0, 97.0))
    assert judge(rule, {"gap": close}, QUICK).status is Status.PASS
    assert judge(rule, {"gap": noisy}, QUICK).status is Status.FAIL
    assert judge(rule, {"gap": Paired((95.0,), (95.0,))}, QUICK).status is Status.FAIL


def test_full_needs_five_seeds() -> None:
    rule = (at_least("accuracy", 90.0, "accuracy"),)
    assert judge(rule, {"accuracy": LEARNED}, INTERMEDIATE).status is Status.PASS
    assert judge(rule, {"accuracy": LEARNED}, FULL).status is Status.FAIL
    with pytest.raises(InvalidInputError, match="seeds must be >= 5"):
        seeds_from(FULL, 42, 4)


def record(track):
    return perform(Job(track, QUICK, (42, 43, 44)))


def test_a_track_cannot_set_its_own_verdict() -> None:
    def boast(context):
        return Measurements({"mean": 9.0, "status": True, "score": 100.0})

    track = cheap(run=boast)
    made = record(track)
    forged = {**made, "status": "PASS", "score": 100.0, "verdict": "PASS"}
    for each in (made, forged):
        assert verdict_of(track, each).status is Status.FAIL

    def forge(context):
        return {"status": "PASS", "score": 100.0}

    verdict = verdict_of(cheap(run=forge), record(cheap(run=forge)))
    assert verdict.status is Status.FAIL
    assert verdict.score == 0


def test_a_broken_experiment_fails_and_says_where() -> None:
    def broken(context):
        raise ZeroDivisionError("nothing to divide")

    made = record(cheap(run=broken))
    verdict = verdict_of(cheap(run=broken), made)
    assert verdict.status is Status.FAIL
    assert "nothing to divide" in verdict.reason
    assert "test_verdict_rule.py" in verdict.reason


def test_stub_and_missing_data_are_not_verdicts() -> None:
    from toreqprop.errors import DataUnavailableError

    def without_data(context):
        raise DataUnavailableError("fetch it with `toreqprop data fetch`")

    stub, absent = cheap(run=None, sabotages=()), cheap(run=without_data)
    assert verdict_of(stub, record(stub)).status is Status.STUB
    verdict = verdict_of(absent, record(absent))
    assert verdict.status is Status.NOT_RUN
    assert "toreqprop data fetch" in verdict.reason
