"""The digest of the code a function runs: all it imports, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from toreqprop.evidence.code import code_digest, sources


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in which `work` imports `inside` (late) and `settings.json`; `aside` is apart."""
    folder = tmp_path / "measured_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "work.py").write_text(
        "FILE = 'settings.json'\ndef work():\n    from measured_package import inside\n"
    )
    (folder / "inside.py").write_text("import measured_package.deeper as d\nimport json\n")
    (folder / "deeper.py").write_text("x = 1\n")
    (folder / "aside.py").write_text("from measured_package.work import work\n")
    (folder / "settings.json").write_text("{}")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("measured_package")]:
        del sys.modules[name]
    return folder


def names(module: str) -> set[str]:
    return {path.name for path in sources(module)}


def test_what_is_imported_counts_wherever_it_is_imported(package: Path) -> None:
    found = {"__init__.py", "work.py", "inside.py", "deeper.py", "settings.json"}
    assert names("measured_package.work") == found
    assert names("measured_package.aside") == found | {"aside.py"}
    assert names("measured_package.deeper") == {"__init__.py", "deeper.py"}


@pytest.mark.parametrize(
    ("changed", "differs"),
    [("deeper.py", True), ("settings.json", True), ("__init__.py", True), ("aside.py", False)],
)
def test_a_change_is_seen_where_it_counts(package: Path, changed: str, differs: bool) -> None:
    before = code_digest.__wrapped__("measured_package.work")
    (package / changed).write_text("1 \n")
    assert (code_digest.__wrapped__("measured_package.work") != before) is differs


def test_a_track_s_own_code_is_its_own() -> None:
    """A change of one track leaves the records of all others usable."""
    first = names("toreqprop.verify.tracks.track_22_golden_reference")
    assert "track_22_golden_reference.py" in first
    assert not [n for n in first if n.startswith("track_") and "22" not in n and "_0" in n]
    assert "cli.py" not in first
