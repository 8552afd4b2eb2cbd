"""The command: what it selects, writes and returns."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.verify.cheap_tracks import cheap
from toreqprop.cli import app
from toreqprop.errors import InvalidInputError
from toreqprop.sealed import read_sealed, write_sealed
from toreqprop.verify import registry
from toreqprop.verify.runner import run_verification
from toreqprop.verify.track import Sabotage
from toreqprop.verify.verdict import at_most


def run(*arguments: str, folder: Path):
    return CliRunner().invoke(
        app, ["verify", *arguments, "--jobs", "1", "--output", str(folder)], catch_exceptions=True
    )


@pytest.fixture
def tracks(monkeypatch):
    """Replace the registered tracks; the fixture's value takes the substitutes."""

    def use(*chosen):
        known = {track.number: track for track in chosen}
        monkeypatch.setattr(registry, "all_tracks", lambda: known)

    use(cheap(90), cheap(91))
    return use


FAILING = {"bounds": lambda level: (at_most("mean", -99.0, "a mean that is far too small"),)}
PARTIAL = {
    "bounds": lambda level: (
        at_most("mean", 1.0, "mean"),
        at_most("mean", -99.0, "a mean that is far too small", required=False),
    )
}


def absent(context):
    from toreqprop.errors import DataUnavailableError

    raise DataUnavailableError("run `toreqprop data fetch`")


@pytest.mark.parametrize(
    ("second", "arguments", "code"),
    [
        ({}, (), 0),
        (FAILING, (), 1),
        (PARTIAL, (), 1),
        (FAILING, ("--track", "90"), 0),
        ({"run": absent}, (), 0),
        ({"run": absent}, ("--track", "91"), 1),
        ({"run": absent}, ("--require", "cheap"), 1),
        ({}, ("--self-test",), 0),
        ({"sabotages": (Sabotage("harmless", "nothing"),)}, ("--self-test",), 1),
    ],
)
def test_exit_codes(tracks, tmp_path, second, arguments, code) -> None:
    tracks(cheap(90), cheap(91, **second))
    result = run(*arguments, folder=tmp_path)
    assert result.exit_code == code, result.output


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (("--track", "90", "91"), [90, 91]),
        (("--track", "91,90", "--quick"), [90, 91]),
        (("--track", "91"), [91]),
        (("--require", "TRACK 90"), [90]),
        ((), [90, 91]),
    ],
)
def test_selection(tracks, tmp_path, arguments, numbers) -> None:
    assert run(*arguments, folder=tmp_path).exit_code == 0
    folder = tmp_path / "verification" / ("quick-partial" if arguments else "quick")
    report = json.loads((folder / "verification.json").read_text())
    assert [t["number"] for t in report["tracks"]] == numbers


@pytest.mark.parametrize(
    "arguments",
    [
        ("--track", "13"),
        ("--track", "many"),
        ("--require", "nothing like it"),
        ("90",),
        ("--quick", "--full"),
        ("--full", "--seeds", "3"),
    ],
)
def test_mistakes_are_one_sentence(tracks, tmp_path, arguments) -> None:
    result = run(*arguments, folder=tmp_path)
    assert isinstance(result.exception, InvalidInputError)
    assert not list(tmp_path.iterdir())


def test_a_second_run_that_differs_is_no_success(tracks, tmp_path) -> None:
    assert run("--track", "90", folder=tmp_path).exit_code == 0
    (path,) = (tmp_path / ".verification").glob("track-90-*.json")
    kept = read_sealed(path)
    assert kept is not None
    write_sealed(path, {**kept, "hash": "0" * 64})
    result = run("--track", "90", "--fresh", folder=tmp_path)
    assert result.exit_code == 1
    assert "a second run differed" in result.output
    assert "confirmed by a second run" in run("--track", "90", "--fresh", folder=tmp_path).output


def test_a_run_of_one_track_leaves_the_whole_report_alone(tracks, tmp_path) -> None:
    run(folder=tmp_path)
    whole = tmp_path / "verification/quick/verification.json"
    before = whole.read_bytes()
    run("--track", "90", folder=tmp_path)
    assert whole.read_bytes() == before
    report = json.loads(before)
    assert report["command"] == "toreqprop verify --quick"
    assert report["environment"]["packages"]["torch"]
    assert report["timing"]["started"] <= report["timing"]["generated"]


def test_a_verification_from_python_is_typed(tracks, tmp_path) -> None:
    found = run_verification([90], self_test=True, output=tmp_path)
    assert found.passed
    assert found.complete
    assert [job.track.number for job in found.records] == [90, 90]
    assert found.detections is not None
    assert all(d.seen for d in found.detections)
    # Of a higher level, sabotages and their honest counterparts are smoke tests.
    found = run_verification([90], level="full", self_test=True, output=tmp_path)
    assert found.passed
    assert [job.level.name for job in found.records] == ["full", "quick", "quick"]
    assert [t["seeds"] for t in found.report["tracks"]] == [[42, 43, 44, 45, 46]]
    tracks(cheap(90, **FAILING))
    assert not run_verification([90], output=tmp_path).passed


def test_list_names_every_track(tmp_path) -> None:
    result = run("--list", folder=tmp_path)
    assert result.exit_code == 0
    for number in (0, 1, 2, 3, 9, 15, 22, 25, 26, 29, 57):
        assert re.search(rf"^. {number} ", result.output, re.MULTILINE), number


def test_notebook_has_the_layout(tracks, tmp_path) -> None:
    tracks(cheap(90), cheap(91, **FAILING), cheap(92, run=None, sabotages=()))
    run("--self-test", folder=tmp_path)
    text = (tmp_path / "verification/quick/verification_notebook.md").read_text()
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [
        "# TorEqProp Verification Results",
        "## Executive Summary",
        "### Overall Results",
        "### Track Summary",
        "## Track 90: Cheap Track 90",
        "## Track 91: Cheap Track 91",
        "### Areas for Improvement",
        "## Track 92: Cheap Track 92",
        "## Self-Test",
    ]
    for line in (
        "| Tracks Verified | 2 |",
        "| Passed | 1 ✅ |",
        "| Failed | 1 ❌ |",
        "| Stubs (TODO) | 1 🔧 |",
        "| Average Score | 50.0/100 |",
        "🧪 **Evidence Level**: Smoke Test (seeds 42, 43, 44)",
        "**Claim**: The mean of normal numbers is near zero.",
        "| what | mean |",
    ):
        assert line in text.splitlines(), line
    assert re.search(r"^✅ \*\*Status\*\*: PASS \| \*\*Score\*\*: 100.0/100 \| ", text, re.M)
    assert re.search(r"^❌ \*\*Status\*\*: FAIL \| \*\*Score\*\*: 0.0/100 \| ", text, re.M)
    assert "asked for ≤ -99" in text
    assert "Not measured" not in text  # a statement without its figure is left out


def test_page_is_self_contained(tracks, tmp_path) -> None:
    run(folder=tmp_path)
    page = (tmp_path / "verification/quick/verification.html").read_text()
    assert page.count("<svg") == 4
    assert 'name="viewport"' in page
    assert not re.search(r'(src|href)="https?:', page)
    assert not re.search(r"<script[^>]*\bsrc=", page)


def test_reports_differ_in_times_alone(tracks, tmp_path) -> None:
    reports = []
    for name in ("a", "b"):
        run(folder=tmp_path / name)
        report = json.loads((tmp_path / name / "verification/quick/verification.json").read_text())
        report.pop("timing")
        for track in report["tracks"]:
            track.pop("seconds")
            track.pop("timings")
            track["tables"] = [t for t in track["tables"] if not t["volatile"]]
        reports.append(report)
    assert reports[0] == reports[1]
    assert len(reports[0]["reproducibility"]["hash"]) == 64
