"""Every block of every page: Python runs, shell commands exist and take their options."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest
import torch
import typer

from tests.docs.pages import PAGES, README, ROOT, Block, blocks, imported_packages, name
from toreqprop.cli import app

FRAMEWORKS = {"pytorch_lightning", "skorch", "accelerate"}
"""What a block may import that need not be installed; the extra `docs` has them."""
PROGRAMS = {"toreqprop", "torchrun", "dask", "pip", "make", "python"}

WITH_PYTHON = [p for p in PAGES if blocks(p, "python")]
WITH_SHELL = [p for p in [*PAGES, README] if blocks(p, "sh")]


def test_known_pages_are_looked_at() -> None:
    assert len(WITH_PYTHON) >= 10
    assert len(WITH_SHELL) >= 5
    languages = {b.language for page in PAGES for b in blocks(page)}
    assert languages <= {"python", "sh"}, "say what a block is, so that it can be tested"


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_python_blocks_run_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    module = types.ModuleType("page")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, "page", module)
    left_out = []
    for block in blocks(page, "python"):
        if block.title is not None:
            Path(block.title).write_text(block.code)
            continue
        missing = _missing(block)
        if missing:
            left_out.append(f"line {block.line} needs {', '.join(sorted(missing))}")
            continue
        # Line numbers of the page, so that a failure points into it.
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        with warnings.catch_warnings():
            if imported_packages(block.code) & FRAMEWORKS:
                warnings.simplefilter("ignore")  # theirs, about themselves
            exec(code, vars(module))
    _run_scripts(page, tmp_path)
    if left_out:
        pytest.skip("; ".join(left_out) + ": pip install toreqprop[docs]")


def _missing(block: Block) -> set[str]:
    wanted = imported_packages(block.code) & FRAMEWORKS
    return {package for package in wanted if importlib.util.find_spec(package) is None}


def _run_scripts(page: Path, folder: Path) -> None:
    """Commands of a page that run a script of the same page."""
    scripts = {b.title for b in blocks(page, "python") if b.title is not None}
    ran = set()
    for words in _commands(page):
        if words[0] == "torchrun" and set(words) & scripts:
            launcher = [sys.executable, "-m", "torch.distributed.run", *words[1:]]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            result = subprocess.run(
                launcher, cwd=folder, env=environment, capture_output=True, text=True
            )
            assert result.returncode == 0, result.stdout + result.stderr
            ran |= set(words) & scripts
    assert ran == scripts, f"no command runs {scripts - ran}"


def _commands(page: Path) -> list[list[str]]:
    lines = [line for b in blocks(page, "sh") for line in b.code.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("page", WITH_SHELL, ids=name)
def test_shell_commands_exist_and_take_their_options(page: Path) -> None:
    not_yet = []
    for words in _commands(page):
        assert words[0] in PROGRAMS, f"{page.name}: {words[0]}"
        if words[0] == "toreqprop" and not _arriving(words):
            check_command(words[1:])
        elif words[0] == "make":
            assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
        elif words[0] == "toreqprop":
            not_yet.append(" ".join(words))
    if not_yet:
        pytest.skip("not in this version: " + "; ".join(not_yet))


def _arriving(words: list[str]) -> bool:
    """Commands on files come together with `predict`; before that they cannot be checked."""
    arrived = "predict" in typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return not arrived and any(w.endswith(".csv") for w in words)


def check_command(words: list[str]) -> None:
    """Parse a command line with the program's own parser, without running anything."""
    command = typer.main.get_command(app)
    context = command.make_context("toreqprop", list(words))
    while hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]
        chosen, command, rest = command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(chosen, rest, parent=context)


@pytest.mark.parametrize(
    "words", [["nonsense"], ["certify", "--nonsense"], ["plot", "relaxation", "--hidden", "many"]]
)
def test_a_wrong_command_is_seen(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|invalid|should be a valid|not a valid"):
        check_command(words)
