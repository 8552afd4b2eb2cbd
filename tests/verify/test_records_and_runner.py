"""Records are exact, confirmed by a second run, and taken up after an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import toreqprop
from tests.verify.cheap_tracks import cheap, measure
from toreqprop.evidence import Listener, Store, run_jobs
from toreqprop.sealed import write_sealed
from toreqprop.verify.levels import QUICK
from toreqprop.verify.records import Job, perform
from toreqprop.verify.registry import all_tracks

SEEDS = (42, 43, 44)


def test_the_hash_repeats_and_depends_on_the_measurements() -> None:
    job = Job(cheap(), QUICK, SEEDS)
    first, second = perform(job), perform(job)
    assert first["timings"] != second["timings"]  # left out, as times must be
    assert first["hash"] == second["hash"]
    assert perform(replace(job, seeds=(7,)))["hash"] != first["hash"]
    assert perform(replace(job, sabotage="shift"))["hash"] != first["hash"]


@pytest.mark.parametrize("number", [22])
def test_a_real_track_repeats_to_the_last_bit(number: int) -> None:
    job = Job(all_tracks()[number], QUICK, (42,))
    assert perform(job)["hash"] == perform(job)["hash"]


def test_a_second_run_confirms_or_contradicts(tmp_path: Path) -> None:
    job, records = Job(cheap(), QUICK, SEEDS), Store(tmp_path)
    assert "confirmed" not in run_jobs([job], records).records[job]
    assert run_jobs([job], records, fresh=True).records[job]["confirmed"] is True
    kept = records.load(job)
    assert kept is not None
    write_sealed(records.path(job), {**kept, "hash": "0" * 64})
    assert run_jobs([job], records, fresh=True).records[job]["confirmed"] is False


class Counter(Listener[Job]):
    def __init__(self) -> None:
        self.done: list[int] = []

    def finished(self, job, record) -> None:
        self.done.append(job.track.number)


def test_finished_jobs_are_taken_up(tmp_path: Path) -> None:
    jobs = [Job(cheap(n), QUICK, SEEDS) for n in (90, 91)]
    records = Store(tmp_path)
    run_jobs(jobs[:1], records)
    counter = Counter()
    found = run_jobs(jobs, records, listener=counter).records
    assert counter.done == [91]
    assert [found[job]["track"] for job in jobs] == [90, 91]
    # other seeds are another job; half a file is no record
    records.path(jobs[0]).write_text(records.path(jobs[0]).read_text()[:50])
    counter = Counter()
    run_jobs([jobs[0], replace(jobs[1], seeds=(1,))], records, listener=counter)
    assert sorted(counter.done) == [90, 91]


def test_an_interrupted_run_keeps_what_is_finished(tmp_path: Path) -> None:
    def stop(context):
        raise KeyboardInterrupt

    jobs = [Job(cheap(90, cost=2.0), QUICK, SEEDS), Job(cheap(91, run=stop), QUICK, SEEDS)]
    records = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, records)
    assert records.load(jobs[0]) is not None
    assert records.load(jobs[1]) is None


def test_missing_data_is_asked_for_again(tmp_path: Path) -> None:
    from toreqprop.errors import DataUnavailableError

    def absent(context):
        raise DataUnavailableError("not here")

    job, records = Job(cheap(run=absent), QUICK, SEEDS), Store(tmp_path)
    run_jobs([job], records)
    assert records.load(job) is None
    available = replace(job, track=cheap(run=measure))
    assert run_jobs([available], records).records[available]["values"]


def test_killed_with_nine_and_run_again(tmp_path: Path) -> None:
    """The first track is on disk when the process is killed; the second command starts with it."""
    source = Path(toreqprop.__file__).parents[1]
    settings = {**os.environ, "PYTHONPATH": str(source)}
    command = [
        sys.executable, "-c", "from toreqprop.cli import main; main()", "verify",
        "--track", "22", "0", "--jobs", "1", "--output", str(tmp_path), "--seeds", "1",
    ]  # fmt: skip
    started = subprocess.Popen(
        command, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    folder = tmp_path / ".verification"
    while started.poll() is None and not list(folder.glob("track-22-*.json")):
        time.sleep(0.05)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    assert not list(folder.glob("track-00-*.json"))
    job = Job(all_tracks()[22], QUICK, (42,))
    counter = Counter()
    run_jobs([job], Store(folder), listener=counter)
    assert counter.done == []
