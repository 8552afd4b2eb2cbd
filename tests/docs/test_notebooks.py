"""The notebooks run from top to bottom, end in a picture, and are in the site."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml

from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "scripts" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()


def images(notebook: dict[str, Any]) -> list[str]:
    last = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"][-1]
    return [o["data"]["image/png"] for o in last["outputs"] if "data" in o]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_ends_in_a_picture(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    kept = json.loads(path.read_text())
    fresh = SCRIPT.run(kept, path.name)
    assert len(images(fresh)) == len(images(kept)) == 1
    page = SCRIPT.page(kept, path.name)
    assert page.startswith("# ")
    assert "data:image/png;base64," in page


def test_five_of_them_are_in_the_site() -> None:
    class Loader(yaml.SafeLoader):
        """Tags of plugins stay text."""

    listed = str(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"])
    assert len(NOTEBOOKS) == 5
    for path in NOTEBOOKS:
        assert f"notebooks/{path.stem}.md" in listed


def test_one_without_a_picture_is_refused() -> None:
    cell = {"cell_type": "code", "source": ["1 + 1"], "outputs": []}
    with pytest.raises(AssertionError, match="draws nothing"):
        SCRIPT.run({"cells": [cell]}, "empty.ipynb")


def test_every_example_has_a_figure() -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    sections = {s.split("\n")[0]: s for s in page.split("\n## ")[1:]}
    for script in sorted((ROOT / "examples").glob("*.py")):
        (section,) = [s for s in sections.values() if f"examples/{script.name}" in s]
        (figure,) = [line for line in section.splitlines() if line.startswith("![")]
        assert (ROOT / "docs" / figure.split("(")[1].rstrip(")")).is_file()
