"""Documents hold what they promise: fresh figures, formulas with functions, links that lead on."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import toreqprop
from tests.docs.pages import PAGES, README, ROOT, name

REFERENCE = re.compile(r"\[[^\]]+\]\[(toreqprop[\w.]+)\]")


def resolve(path: str) -> object:
    """The object at a dotted path, a module or something in one."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AttributeError(path)


@pytest.mark.parametrize("page", [p for p in PAGES if REFERENCE.search(p.read_text())], ids=name)
def test_references_name_what_exists(page: Path) -> None:
    for path in REFERENCE.findall(page.read_text()):
        assert resolve(path) is not None


def test_a_wrong_reference_is_seen() -> None:
    with pytest.raises(AttributeError):
        resolve("toreqprop.models.looped_mlp.LoopedMLP.nonsense")


def test_every_formula_names_its_function() -> None:
    text = (ROOT / "docs" / "mathematics.md").read_text()
    parts = re.split(r'<div class="formula">.*?</div>\n', text, flags=re.DOTALL)[1:]
    assert len(parts) > 15
    for after in parts:
        first = after.strip().split("\n\n")[0]
        assert first.startswith("Computed by"), first[:60]
    linked = [after for after in parts if REFERENCE.search(after)]
    # The derivative in β itself is what the formulas after it estimate.
    assert len(parts) - len(linked) <= 1


API_PAGES = "\n".join(p.read_text() for p in (ROOT / "docs" / "api").glob("*.md"))
DOCUMENTED = set(re.findall(r"^::: (\S+)", API_PAGES, flags=re.MULTILINE))
"""Modules whose classes and functions a page of the reference shows."""


def homes() -> dict[str, str]:
    """Every public class and function of the library, and the module that defines it."""
    found = {}
    for module in pkgutil.walk_packages(toreqprop.__path__, "toreqprop."):
        package = module.name.split(".")[1]
        if not module.ispkg or package in ("bench", "cli", "verify"):
            continue
        public = importlib.import_module(module.name)
        for each in getattr(public, "__all__", ()):
            home = getattr(getattr(public, each), "__module__", "") or ""
            if home.startswith("toreqprop."):  # registries and type aliases have no home
                found[f"{module.name}.{each}"] = home
    return found | {
        f"toreqprop.{each}": getattr(toreqprop, each).__module__ for each in toreqprop.__all__
    }


def test_the_reference_shows_every_public_class_and_function() -> None:
    known = homes()
    assert len(known) > 100
    assert not {each: home for each, home in known.items() if home not in DOCUMENTED}


def test_figures_in_the_documents_are_fresh() -> None:
    script = ROOT / "scripts" / "update_docs.py"
    result = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    nav = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    listed: set[str] = set()

    def walk(entry: object) -> None:
        if isinstance(entry, str):
            listed.add(entry)
        elif isinstance(entry, list):
            for item in entry:
                walk(item)
        elif isinstance(entry, dict):
            for item in entry.values():
                walk(item)

    walk(nav)
    written = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert written <= listed
    generated = {"contributing.md", "changelog.md"}
    assert {p for p in listed - written if not p.startswith("results/")} == generated


def test_figures_of_the_pages_are_those_the_script_draws() -> None:
    shown = {
        match
        for page in PAGES
        for match in re.findall(r"\((?:\.\./)?figures/([\w-]+\.svg)\)", page.read_text())
    }
    drawn = {p.name for p in (ROOT / "docs" / "figures").iterdir()}
    script = (ROOT / "scripts" / "make_doc_figures.py").read_text()
    assert shown == drawn
    for figure in drawn:
        assert figure.removesuffix(".svg") in script


@pytest.mark.parametrize("page", [*PAGES, README], ids=name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_every_module_of_the_reference_exists() -> None:
    found = [
        module
        for page in (ROOT / "docs" / "api").iterdir()
        for module in re.findall(r"^::: (\S+)$", page.read_text(), flags=re.MULTILINE)
    ]
    assert len(found) == len(set(found)) > 20
    for module in found:
        assert importlib.import_module(module).__doc__


def test_the_citation_names_no_person_and_this_version() -> None:
    import toreqprop

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["authors"] == [{"name": "The TorEqProp developers"}]
    assert citation["version"] == toreqprop.__version__


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for folder in re.findall(r"`(src/toreqprop/\w+(?:/\w+)*)/\w+\.py`", text):
        assert (ROOT / folder).is_dir()
    for test in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", text):
        assert (ROOT / test).exists(), test
