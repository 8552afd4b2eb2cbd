"""The first minute with the library: quick answers, one version, a doctor, pages for every name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import toreqprop as teq
from toreqprop.cli import app, doctor, names

ROOT = Path(__file__).parents[1]

ASK = """
import sys
from typer.testing import CliRunner
from toreqprop.cli import app
complete = {"_TOREQPROP_COMPLETE": "complete_bash", "COMP_WORDS": "toreqprop train --model ho"}
said = [CliRunner().invoke(app, words).output for words in (
    ["--version"], ["--help"], ["train", "--help"], ["plot", "relaxation", "--help"],
)]
said.append(CliRunner().invoke(app, [], env={**complete, "COMP_CWORD": "3"},
                               prog_name="toreqprop").output)
assert all(said), said
assert "hopfield" in said[-1], said
print(sorted({"torch", "numpy", "sklearn", "scipy", "matplotlib"} & set(sys.modules)))
"""


def test_version_help_and_completion_load_no_heavy_package() -> None:
    """What makes them quick; a clock would measure the machine."""
    found = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout == "[]\n"


def test_only_the_command_that_is_asked_for_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of two dozen commands are a third of what ``train --help`` takes."""
    import importlib

    program = importlib.import_module("toreqprop.cli.app")
    built: list[list[str]] = []
    whole = len(app.registered_commands)

    def note() -> None:
        groups = [g.name or "" for g in app.registered_groups]
        built.append([*map(program.command_name, app.registered_commands), *groups])

    for words in (["train", "--help"], ["plot", "--help"], ["sweep-beta"], ["--help"], ["nope"]):
        with program._narrowed(words):
            note()
    assert built[:3] == [["train"], ["plot"], ["sweep-beta"]]
    assert len(built[3]) == len(built[4]) > 20
    assert len(app.registered_commands) == whole


def test_the_names_shown_are_those_of_the_registries() -> None:
    from toreqprop.bench import completion, depth, mazes, norms
    from toreqprop.bench.cifar import recipe
    from toreqprop.bench.cifar import study as cifar_study
    from toreqprop.bench.hardware.methods import METHODS
    from toreqprop.bench.language import networks
    from toreqprop.bench.reward import policies, study
    from toreqprop.checkpoint import NETWORKS
    from toreqprop.gradients import ESTIMATORS
    from toreqprop.models.example_networks import NETWORKS as EXAMPLES
    from toreqprop.solvers import SOLVERS
    from toreqprop.tasks.files import DATA_VARIABLE
    from toreqprop.tasks.mazes import MAZE_TASKS

    assert tuple(NETWORKS) == names.MODELS
    assert tuple(ESTIMATORS) == names.ESTIMATORS
    assert tuple(SOLVERS) == names.SOLVERS
    assert tuple(EXAMPLES) == names.EXAMPLE_NETWORKS
    assert (names.DEPTH_TASKS, names.DEPTH_NETWORKS) == (depth.TASKS, depth.NETWORKS)
    assert tuple(norms.PLAN) == names.NORM_KINDS
    assert completion.METHODS == names.COMPLETION_METHODS
    assert names.DEVICE_METHODS == METHODS
    assert (names.MAZE_TASKS, names.MAZE_METHODS) == (MAZE_TASKS, mazes.METHODS)
    assert names.CIFAR_METHODS == recipe.METHODS
    assert names.CIFAR_NETWORKS == cifar_study.NETWORKS
    assert (names.REWARD_TASKS, names.REWARD_METHODS) == (study.TASKS, policies.METHODS)
    assert networks.METHODS == names.LANGUAGE_METHODS
    assert names.DATA_VARIABLE == DATA_VARIABLE


def test_every_public_name_has_one_home() -> None:
    homes = [name for names in teq._HOMES.values() for name in names.split()]
    assert sorted(homes) == sorted(teq.__all__)
    assert set(teq.__all__) <= set(dir(teq))
    for name in teq.__all__:
        assert getattr(teq, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Loopy'"):
        teq.Loopy  # noqa: B018


def test_one_version() -> None:
    """The changelog's newest, the citation's, and the package's, which the build reads."""
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert newest is not None
    assert cited is not None
    assert newest[1] == cited[1] == teq.__version__
    assert 'attr = "toreqprop.__version__"' in (ROOT / "pyproject.toml").read_text()


def findings(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    result = CliRunner().invoke(app, ["doctor", *arguments])
    return result.exit_code, {f["name"]: f for f in json.loads(result.stdout)}


def test_the_doctor_names_what_is_missing_and_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = doctor.util.find_spec
    monkeypatch.setattr(
        doctor.util, "find_spec", lambda name: None if name in ("numba", "pooch") else real(name)
    )
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setenv("TOREQPROP_NGSPICE", "no-such-program")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    code, found = findings("--json")
    assert code == 0
    for name, remedy in {
        "numba": 'pip install "toreqprop[compiled]"',
        "mnist data": 'pip install "toreqprop[bench]"',
        "ngspice": "apt-get install ngspice",
        "chromium": "apt-get install chromium",
        "cache": "set XDG_CACHE_HOME",
    }.items():
        assert found[name]["found"] is None
        assert found[name]["remedy"].startswith(remedy)
    assert found["torch"]["found"]
    assert not found["torch"]["remedy"]
    said = CliRunner().invoke(app, ["doctor"]).output
    assert "missing: numba" in " ".join(said.split())


def test_the_doctor_fails_where_nothing_can_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.util, "find_spec", lambda name: None)
    code, found = findings("--json")
    assert code == 1
    assert found["torch"]["remedy"] == 'pip install "toreqprop"'


def test_the_doctor_knows_every_extra() -> None:
    """What the project offers and nobody examines would never be found missing."""
    text = (ROOT / "pyproject.toml").read_text()
    block = text.split("[project.optional-dependencies]")[1].split("[project.scripts]")[0]
    for extra in ("bench", "compiled", "tune", "tensorboard", "tables", "export"):
        listed = re.search(rf"^{extra} = \[(.*?)\]", block, re.MULTILINE | re.DOTALL)
        assert listed is not None
        for name in re.findall(r'"([a-z0-9-]+)', listed[1]):
            assert doctor.PACKAGES[name][1] == extra
