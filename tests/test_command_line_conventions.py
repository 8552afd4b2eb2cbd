"""What every command owes its users: examples, JSON, exit codes, plain output, completion."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from toreqprop.cli import app

ROOT = typer.main.get_command(app)
SEEDLESS = {
    "data list", "data fetch", "data verify", "doctor", "evaluate", "export", "info", "memory",
    "predict", "zoo list",
}  # fmt: skip
"""Commands without randomness of their own."""


def commands() -> dict[str, Any]:
    """Every command by its full name."""
    found = {}
    for name, command in ROOT.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        if inner is None:
            found[name] = command
        else:
            found |= {f"{name} {sub}": child for sub, child in inner.items()}
    return found


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_the_commands_are_all_there() -> None:
    assert set(commands()) >= {
        "train", "evaluate", "predict", "benchmark", "verify", "certify", "speed", "memory",
        "data list", "data fetch", "data verify", "info", "sklearn", "estimators", "sweep-beta",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(commands()))
def test_help_has_examples_that_parse(name: str) -> None:
    command = commands()[name]
    text = CliRunner().invoke(app, [*name.split(), "--help"]).output
    assert "Examples:" in text
    lines = re.findall(r"^ *toreqprop (.*)$", command.help, flags=re.MULTILINE)
    assert lines
    for line in lines:
        words = line.split()[len(name.split()) :]
        assert line.startswith(name)
        command.make_context(name, words, resilient_parsing=False).close()


@pytest.mark.parametrize("name", sorted(commands()))
def test_options_are_consistent(name: str) -> None:
    found = options(commands()[name])
    assert "--json" in found
    assert ("--seed" in found) == (name not in SEEDLESS)
    for option in found:
        assert option == option.lower()
        assert "_" not in option


def test_info_names_everything_a_command_takes() -> None:
    result = CliRunner().invoke(app, ["info", "--json"])
    facts = json.loads(result.stdout)
    assert "centered" in facts["estimators"]
    assert "anderson" in facts["solvers"]
    assert {"looped", "hopfield", "backprop"} <= set(facts["models"])
    assert "digits" in facts["tasks"]
    assert "numpy" in facts["kernels"]
    assert facts["cache"]


def test_info_prints_square_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra's name is text, not markup."""
    monkeypatch.setattr("toreqprop.cli.info.util.find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["info"])
    assert "toreqprop[bench]" in result.output


def test_bad_input_is_one_plain_line_and_exit_code_2(tmp_path: Path) -> None:
    absent = str(tmp_path / "[bold]absent.csv")
    result = subprocess.run(
        [sys.executable, "-m", "toreqprop", "train", absent],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == f"Error: {absent} cannot be read: No such file or directory.\n"


def test_usage_errors_have_exit_code_2() -> None:
    for arguments in (["train", "--no-such-option"], ["nonsense"], ["--threads", "0", "info"]):
        assert CliRunner().invoke(app, arguments).exit_code == 2


def test_version() -> None:
    from toreqprop import __version__

    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"{__version__}\n")


def test_shell_completion() -> None:
    def complete(**environment: str) -> str:
        return CliRunner().invoke(app, [], env=environment, prog_name="toreqprop").stdout

    assert "complete -o default -F" in complete(_TOREQPROP_COMPLETE="source_bash")
    for line, expected in (
        ("toreqprop ev", "evaluate"),
        ("toreqprop train --model ho", "hopfield"),
    ):
        found = complete(
            _TOREQPROP_COMPLETE="complete_bash",
            COMP_WORDS=line,
            COMP_CWORD=str(len(line.split()) - 1),
        )
        assert found.split() == [expected]
