"""A sabotage counts as seen only if the bounds, and nothing else, made an honest track fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify.cheap_tracks import cheap
from toreqprop.evidence import Store, run_jobs
from toreqprop.verify.levels import QUICK
from toreqprop.verify.records import Job, perform, verdict_of
from toreqprop.verify.registry import all_tracks
from toreqprop.verify.self_test import detections, sabotage_jobs
from toreqprop.verify.track import Sabotage
from toreqprop.verify.verdict import Status, at_most


def detect(track, folder: Path):
    honest = [Job(track, QUICK, (42, 43))]
    return detections(run_jobs(honest + sabotage_jobs(honest), Store(folder)).records)


@pytest.mark.parametrize(
    ("fault", "seen"), [("shift", True), ("harmless", False), ("crash", False)]
)
def test_what_counts_as_seen(fault, seen, tmp_path: Path) -> None:
    (found,) = detect(cheap(sabotages=(Sabotage(fault, "a fault"),)), tmp_path)
    assert found.seen is seen


def test_a_track_that_fails_anyway_shows_nothing(tmp_path: Path) -> None:
    track = cheap(bounds=lambda level: (at_most("mean", -99.0, "mean"),))
    (found,) = detect(track, tmp_path)
    assert found.verdict.status is Status.FAIL
    assert not found.seen


@pytest.mark.parametrize(
    ("number", "fault", "seeds"),
    [
        (22, "transposed weight", (42,)),
        (9, "wrong sign", (42,)),
        (29, "step reversed", (42,)),
    ],
)
def test_real_tracks_see_their_sabotages(number, fault, seeds) -> None:
    track = all_tracks()[number]
    record = perform(Job(track, QUICK, seeds, fault))
    assert record["error"] is None
    assert verdict_of(track, record).status is Status.FAIL


@pytest.mark.parametrize(("number", "seeds"), [(9, (42,)), (29, (42, 43))])
def test_the_same_tracks_pass_without(number, seeds) -> None:
    track = all_tracks()[number]
    assert verdict_of(track, perform(Job(track, QUICK, seeds))).status is Status.PASS


def test_every_track_names_sabotages_and_required_bounds() -> None:
    from toreqprop.verify.levels import LEVELS

    tracks = all_tracks()
    assert {0, 1, 2, 3, 9, 15, 22, 25, 26, 29, 57} <= set(tracks)
    for track in tracks.values():
        if track.run is None:
            continue
        assert track.sabotages
        for level in LEVELS.values():
            assert any(bound.required for bound in track.bounds(level))
