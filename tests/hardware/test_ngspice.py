"""The program: found, missing, refused, and given up."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from toreqprop.errors import InvalidInputError
from toreqprop.hardware import Circuit, Ngspice, SpiceError
from toreqprop.hardware.ngspice import LOCAL_PROGRAM, VARIABLE, find_program
from toreqprop.hardware.raw_file import read_raw

DIVIDER = ("vin in 0 dc 1", "r1 in mid 1000.0", "r2 mid 0 3000.0")
SCRIPT = Path(__file__).parents[2] / "scripts" / "install_ngspice.sh"


def circuit(*cards: str, node: str = "mid", points: int = 3) -> Circuit:
    return Circuit("test", (), cards, {"measured": (node,)}, points)


def test_divider(ngspice: Ngspice) -> None:
    measured = ngspice.operating_points(circuit(*DIVIDER))
    assert measured.complete
    assert measured.voltages["measured"].flatten().tolist() == pytest.approx([0.75] * 3, rel=1e-12)
    assert ngspice.version().startswith("ngspice-")


def test_missing_program_says_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpiceError, match="apt-get install ngspice"):
        Ngspice("/nowhere/ngspice").path()
    monkeypatch.setenv(VARIABLE, "/nowhere/else")
    with pytest.raises(SpiceError, match="/nowhere/else was not found"):
        Ngspice().operating_points(circuit(*DIVIDER))


def test_program_is_found_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / LOCAL_PROGRAM
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "** ngspice-0 $LD_LIBRARY_PATH"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "ngspice" / "usr" / "lib" / "x86_64-linux-gnu").mkdir(parents=True)
    monkeypatch.setenv(VARIABLE, str(program))
    assert find_program() == str(program)
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert find_program() == str(program)
    assert Ngspice().version() == "ngspice-0"
    with pytest.raises(SpiceError, match="gave no result"):
        Ngspice().operating_points(circuit(*DIVIDER))


def test_a_card_that_is_refused_becomes_one_sentence(ngspice: Ngspice) -> None:
    with pytest.raises(SpiceError, match="gave no result") as refused:
        ngspice.operating_points(circuit(*DIVIDER, "d1 mid 0 nosuchmodel"))
    assert "\n" not in str(refused.value)


def test_a_node_that_is_not_there_is_named(ngspice: Ngspice) -> None:
    with pytest.raises(SpiceError, match="no data saved"):
        ngspice.operating_points(circuit(*DIVIDER, node="nowhere"))
    both = Circuit("test", (), DIVIDER, {"measured": ("mid", "nowhere")}, 2)
    with pytest.raises(SpiceError, match="voltage of node nowhere"):
        ngspice.operating_points(both)


def test_a_sweep_that_stops_is_incomplete(ngspice: Ngspice) -> None:
    # v = a·(exp(v) + 1) has a solution at a = 0 and none at a = 1
    runaway = circuit("r1 mid 0 1", "b1 0 mid i=v(index)*(exp(v(mid))+1)")
    measured = ngspice.operating_points(runaway)
    assert not measured.complete
    found = measured.voltages["measured"].flatten()
    assert float(found[0]) == pytest.approx(0, abs=1e-12)
    assert bool(found[1:].isnan().all())
    assert 'vindex = 1: trouble with node "mid"' in measured.message


def test_time_is_limited(ngspice: Ngspice, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 5\n")
    slow.chmod(0o755)
    with pytest.raises(SpiceError, match=r"within 0\.2 s"):
        Ngspice(str(slow), timeout=0.2).operating_points(circuit(*DIVIDER))
    with pytest.raises(InvalidInputError, match="timeout"):
        Ngspice(timeout=0)


def test_raw_files_are_read_and_bad_ones_refused() -> None:
    head = b"Title: t\nFlags: real\nNo. Variables: 2\nNo. Points: 2\nVariables:\n"
    head += b"\t0\tv-sweep\tvoltage\n\t1\tV(out)\tvoltage\nBinary:\n"
    data = np.array([[0.0, 1.5], [1.0, 2.5]])
    assert read_raw(head + data.tobytes())["v(out)"].tolist() == [1.5, 2.5]
    for bad in (b"", head + data.tobytes()[:-1], head.replace(b"real", b"complex")):
        with pytest.raises(ValueError, match=r"section|short|real"):
            read_raw(bad)


def test_the_script_says_one_sentence_where_it_cannot_install(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for ci, code in (("true", 1), ("false", 0)):
        done = subprocess.run(
            ["/bin/sh", str(SCRIPT), str(tmp_path / "ngspice")],
            env={"PATH": str(tools), "CI": ci},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code
        assert done.stderr.count("\n") == 1
        assert VARIABLE in done.stderr
