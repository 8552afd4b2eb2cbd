"""Planted faults: each leaves no trace behind, and counts as seen only if a bound saw it."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.verify import cheap_tracks
from tests.verify.cheap_tracks import cheap
from toreqprop.cli import app
from toreqprop.errors import DataUnavailableError, InvalidInputError
from toreqprop.verify import registry
from toreqprop.verify.levels import QUICK
from toreqprop.verify.mutations import Mutation, score
from toreqprop.verify.mutations.catalogue import AREAS, mutations
from toreqprop.verify.records import Job, perform, verdict_of
from toreqprop.verify.registry import all_tracks
from toreqprop.verify.verdict import Status, at_most


def test_there_are_enough_of_them_in_every_area() -> None:
    known = mutations()
    assert len(known) >= 40
    assert all(len(area.MUTATIONS) >= 5 for area in AREAS)
    assert {m.track for m in known.values()} <= set(all_tracks())


def snapshot() -> dict[tuple[str, str], int]:
    """The identity of everything that a patch of the library could exchange."""
    found = {}
    modules = {n: m for n, m in sys.modules.items() if n.startswith(("toreqprop", "torch.optim"))}
    for name, module in modules.items():
        for key, value in vars(module).items():
            found[name, key] = id(value)
            if isinstance(value, type) and value.__module__ == name:
                found |= {(f"{name}.{key}", k): id(v) for k, v in vars(value).items()}
    tasks = modules["toreqprop.tasks.registry"].TASKS
    return found | {("tasks", name): id(task) for name, task in tasks.items()}


@pytest.mark.parametrize("name", mutations())
def test_a_fault_is_put_in_and_taken_out(name: str) -> None:
    before = snapshot()
    with mutations()[name].plant():
        within = snapshot()
    sequences = name == "sorted backwards"  # inside a dictionary that the snapshot does not open
    assert within != before or sequences
    assert snapshot() == before


@contextmanager
def shifted():
    """A fault of what the cheap tracks use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cheap_tracks.Measurements, "__init__", _moved)
        yield


def _moved(self, values, **rest) -> None:
    object.__setattr__(self, "values", {k: v + 9 for k, v in values.items()})
    for name in ("tables", "figures"):
        object.__setattr__(self, name, ())
    object.__setattr__(self, "timings", {})


@contextmanager
def crashing():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cheap_tracks, "Measurements", None)
        yield


@contextmanager
def harmless():
    yield


def absent(context):
    raise DataUnavailableError("run `toreqprop data fetch`")


@pytest.fixture
def planted(monkeypatch):
    """Cheap tracks, and mutations of them: number 90 passes, 91 fails anyway, 92 has no data."""
    failing = {"bounds": lambda level: (at_most("mean", -99.0, "mean"),)}
    tracks = {90: cheap(90), 91: cheap(91, **failing), 92: cheap(92, run=absent)}
    for place in (score, registry):
        monkeypatch.setattr(place, "all_tracks", lambda: tracks)

    def use(*chosen):
        known = {
            f"{p.__name__} {t}": Mutation(f"{p.__name__} {t}", "a", "", t, p) for p, t in chosen
        }
        monkeypatch.setattr(score, "mutations", lambda: known)

    return use


def test_what_counts_as_seen(planted, tmp_path: Path) -> None:
    planted((shifted, 90), (harmless, 90), (crashing, 90), (shifted, 91), (shifted, 92))
    report = score.run_mutations(output=tmp_path)
    seen = {o.name: o.seen for o in report.outcomes}
    assert seen == {
        "shifted 90": True, "harmless 90": False, "crashing 90": False, "shifted 91": False,
        "shifted 92": False,
    }  # fmt: skip
    assert (report.planted, report.seen, report.score) == (4, 1, 25.0)
    assert report.seeds == (42,)


@pytest.mark.parametrize(("faults", "code"), [(("shifted",), 0), (("shifted", "harmless"), 1)])
def test_the_command_prints_the_score(planted, tmp_path: Path, faults, code) -> None:
    planted(*((globals()[fault], 90) for fault in faults))
    arguments = ["verify", "--mutations", "--jobs", "1", "--output", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    found = json.loads(result.stdout)
    assert found["score"] == 100 / len(faults)
    assert json.loads((tmp_path / "verification/mutations.json").read_text()) == found
    assert f"1 of {len(faults)} faults seen" in result.stderr
    assert ("NOT SEEN by track 90" in result.stderr) is bool(code)


def test_a_part_of_them_is_not_written_over_the_whole(planted, tmp_path: Path) -> None:
    planted((shifted, 90), (harmless, 91))
    arguments = ["--track", "90", "--jobs", "1", "--output", str(tmp_path)]
    assert CliRunner().invoke(app, ["verify", "--mutations", *arguments]).exit_code == 0
    assert not (tmp_path / "verification").exists()


def test_one_fault_alone(planted, tmp_path: Path) -> None:
    planted((shifted, 90), (harmless, 90))
    report = score.run_mutations(faults=["shifted 90"], output=tmp_path)
    assert [o.name for o in report.outcomes] == ["shifted 90"]
    assert report.made["command"].endswith("--fault 'shifted 90'")
    arguments = ["--fault", "shifted 90", "--jobs", "1", "--output", str(tmp_path)]
    assert CliRunner().invoke(app, ["verify", "--mutations", *arguments]).exit_code == 0
    assert not (tmp_path / "verification").exists()
    alone = CliRunner().invoke(app, ["verify", *arguments])
    assert isinstance(alone.exception, InvalidInputError)


def test_a_stopped_score_goes_on(planted, tmp_path: Path) -> None:
    planted((shifted, 90))
    first = score.run_mutations(output=tmp_path)
    again = score.run_mutations(output=tmp_path)
    assert (first.made["timing"]["reused"], again.made["timing"]["reused"]) == (0, 2)
    assert again.outcomes == first.outcomes
    assert set(first.as_dict()) >= {"commit", "command", "environment", "timing"}


@pytest.mark.parametrize(
    "options",
    [
        {"tracks": [4]},
        {"faults": ["no such fault"]},
        {"level": "huge"},
        {"processes": 0},
        {"level": "full", "seeds": 3},
    ],
)
def test_mistakes_are_one_sentence(options) -> None:
    with pytest.raises(InvalidInputError):
        score.run_mutations(**options)


def test_a_real_track_sees_a_fault_it_is_told_nothing_of() -> None:
    mutation = mutations()["last batch dropped"]
    track = all_tracks()[mutation.track]
    with mutation.plant():
        record = perform(Job(track, QUICK, (42,)))
    assert record["error"] is None
    assert verdict_of(track, record).status is Status.FAIL


def test_sabotages_called_like_a_fault_are_planted() -> None:
    """A name alone does nothing: the experiment has to be one in which faults are planted."""
    carrying = {
        track.number: track
        for track in all_tracks().values()
        for sabotage in track.sabotages
        if sabotage.name in mutations()
    }
    assert {1, 9, 13, 15, 66, 67, 68, 69} <= set(carrying)
    assert all(hasattr(track.run, "__wrapped__") for track in carrying.values())
