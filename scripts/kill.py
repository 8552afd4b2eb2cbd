"""Kill commands at random moments, run them again, and compare with runs that nobody disturbed.

Each command first runs to its end. Then it is killed with signal 9 after a random time, the program
itself or one of its worker processes, run again, killed again, and at last left to finish: its
results must be those of the undisturbed run. Run it from the top of the repository:

    python scripts/kill.py --kills 100
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robustness import record

KILLS_PER_ROUND = 5
"""After so many kills a command is left to finish and compared."""

Digest = dict[str, Any]


def without_times(value: Any) -> Any:
    """Plain data without what a clock measured."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in ("timing", "timings")}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def whole_files(folder: Path) -> Digest:
    """Every file of a folder, byte by byte; those that begin with a dot are the program's own."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")}


def of_benchmark(folder: Path) -> Digest:
    return without_times(
        json.loads((folder / "benchmark/quick-partial/benchmark.json").read_text())
    )


def of_verification(folder: Path) -> Digest:
    report = json.loads((folder / "verification/quick-partial/verification.json").read_text())
    return {
        "hash": report["reproducibility"]["hash"],
        "tracks": [(t["number"], t["status"], t["hash"]) for t in report["tracks"]],
    }


@dataclass
class Command:
    """What is run in a folder, and what of its results must not depend on kills."""

    name: str
    words: Callable[[Path], list[str]]
    results: Callable[[Path], Digest]
    expected: Digest = field(default_factory=dict)
    seconds: float = 0.0
    moments: list[tuple[str, float]] = field(default_factory=list)
    """Who was killed, the program or first one of its workers, and after how many seconds."""
    rounds: int = 0
    different: list[int] = field(default_factory=list)
    orphans: int = 0
    left_over: int = 0

    @property
    def kills(self) -> int:
        return len(self.moments)

    @property
    def of_workers(self) -> int:
        return sum(whom == "worker" for whom, _ in self.moments)

    def row(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "name": self.name,
            "words": " ".join(["toreqprop", *self.words(Path("FOLDER"))]),
            "kills": self.kills,
            "of_workers": self.of_workers,
            "rounds": self.rounds,
            "different": len(self.different),
            "orphans": self.orphans,
            "left_over": self.left_over,
            "seconds_undisturbed": round(self.seconds, 1),
            "moments": [{"killed": whom, "after_seconds": round(t, 2)} for whom, t in self.moments],
        }


TRAIN = "train digits --hidden 16 --epochs 15 --resume --output"
BENCHMARK = "benchmark --tasks digits --seeds 1 --epochs 1 --no-controls --jobs 2 --output"
VERIFY = "verify --track 9 --track 22 --track 29 --seeds 1 --jobs 2 --output"
TUNE = "tune digits --trials 2 --epochs 1 --jobs 2 --output"


def commands() -> list[Command]:
    """The five, at settings as small as they come."""
    return [
        Command("train", lambda folder: [*TRAIN.split(), str(folder)], whole_files),
        Command("benchmark", lambda folder: [*BENCHMARK.split(), str(folder)], of_benchmark),
        Command("verify", lambda folder: [*VERIFY.split(), str(folder)], of_verification),
        Command("tune", lambda folder: [*TUNE.split(), str(folder / "file.json")], whole_files),
        Command("sweep-beta", lambda folder: ["sweep-beta", "--output", str(folder)], whole_files),
    ]


def start(command: Command, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "toreqprop", *command.words(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def finish(command: Command, folder: Path) -> float:
    """Run to the end; the seconds it took.

    Raises:
        SystemExit: the command did not end as it should.
    """
    started = time.monotonic()
    code = start(command, folder).wait()
    if code != 0:
        sys.exit(f"{command.name} ended with exit code {code} in {folder}.")
    return time.monotonic() - started


def workers(parent: int) -> list[int]:
    """Processes that a program has started."""
    try:
        return [int(p) for p in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except OSError:
        return []


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_once(command: Command, folder: Path, chance: random.Random) -> bool:
    """Start it and kill it, or one of its workers, at a random moment; whether it was in time."""
    started, after = time.monotonic(), chance.uniform(0, command.seconds)
    process = start(command, folder)
    try:
        process.wait(timeout=after)
        # What the machine does beside this changes: later moments are drawn from this time.
        command.seconds = min(command.seconds, time.monotonic() - started)
        return False
    except subprocess.TimeoutExpired:
        pass
    others = workers(process.pid)
    if others and chance.random() < 0.4:
        os.kill(chance.choice(others), signal.SIGKILL)
        time.sleep(chance.uniform(0, 1.0))
        command.moments.append(("worker", after))
    else:
        command.moments.append(("program", after))
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and any(map(alive, others)):
        time.sleep(0.05)
    command.orphans += sum(map(alive, others))
    return True


def prepare(command: Command, base: Path) -> None:
    """What a run gives that nobody disturbs, and how long it takes once its code is compiled."""
    folder = base / command.name / "undisturbed"
    folder.mkdir(parents=True)
    command.seconds = finish(command, folder)
    command.expected = command.results(folder)
    print(f"{command.name}: {command.seconds:.1f} s undisturbed", flush=True)


def disturb(command: Command, kills: int, base: Path, chance: random.Random) -> None:
    """One round: so many kills, unless it comes to its end before, and the end result."""
    command.rounds += 1
    folder = base / command.name / f"round-{command.rounds}"
    folder.mkdir()
    while kills and kill_once(command, folder, chance):
        kills -= 1
    finish(command, folder)
    same = command.results(folder) == command.expected
    command.left_over += sum(1 for p in folder.glob(".*") if p.is_file())
    if same:
        shutil.rmtree(folder)
    else:
        command.different.append(command.rounds)
    print(
        f"{command.name}: {command.kills} kills, round {command.rounds} "
        f"{'the same' if same else 'DIFFERENT'}",
        flush=True,
    )


def table(done: list[Command]) -> str:
    lines = [
        "| command | kills | of a worker | rounds | different | orphans | files left over |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {c.name} | {c.kills} | {c.of_workers} | {c.rounds} | {len(c.different)} | {c.orphans} "
        f"| {c.left_over} |"
        for c in done
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=100, help="in all")
    parser.add_argument("--only", choices=[c.name for c in commands()], action="append")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--record", action="store_true", help="write results/robustness/kill.json")
    options = parser.parse_args()
    chosen = [c for c in commands() if options.only is None or c.name in options.only]
    chance = random.Random(options.seed)
    base = Path(tempfile.mkdtemp(prefix="toreqprop-kill-"))
    start(chosen[0], base / "compiling").wait()
    for command in chosen:
        prepare(command, base)
    turns = itertools.cycle(chosen)
    while (left := options.kills - sum(c.kills for c in chosen)) > 0:
        disturb(next(turns), min(KILLS_PER_ROUND, left), base, chance)
        if options.record:  # after every round, so that a run which is stopped is not lost
            record("kill", {"seed": options.seed, "commands": [c.row() for c in chosen]})
    print(table(chosen))
    wrong = any(c.different or c.orphans for c in chosen)
    print(f"What differed is in {base}." if wrong else "Every end result was the same.")
    if not wrong:
        shutil.rmtree(base)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
