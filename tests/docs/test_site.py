"""What the site adds to docs/: pages rendered from results/*.json."""

from __future__ import annotations

import copy
import importlib
import json
import re
from types import ModuleType, SimpleNamespace

import pytest

from tests.docs.pages import ROOT

pytest.importorskip("mkdocs", reason="pip install toreqprop[docs]")


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("site_hooks")


def test_pages_are_rendered_from_the_measurements(hooks: ModuleType) -> None:
    texts = {uri: page() for uri, page in hooks.PAGES.items()}
    report = json.loads((ROOT / "results" / hooks.BENCHMARK).read_text())
    for row in report["rows"]:
        shown = f"{row['arms']['ep']['accuracy']['mean']:.2f}"
        assert shown in texts["results/index.md"]
        assert shown in texts["results/benchmark.md"]
    for row in json.loads((ROOT / "results" / "speed.json").read_text())["rows"]:
        for timing in row["timings"]:
            if timing["name"].startswith("TorEqProp"):
                continue
            kinds = ["cpu_ratio", *["as_it_runs"] * (timing["name"] == "same size")]
            for kind in kinds:
                if timing[kind] is not None:
                    assert f"{timing[kind]:.2f}" in texts["results/speed.md"]
    for uri, text in texts.items():
        assert text.startswith("# "), uri
        plain = re.sub(r"base64,[^\"]+", "", text)  # pictures are no text
        # No figure is missing; `max_gain=None` is a setting, by its name.
        assert not re.search(r"\bnan\b|(?<!=)\bNone\b", plain), uri


def test_no_file_of_results_takes_a_page_s_place(hooks: ModuleType) -> None:
    pages = {uri.replace(".md", ".html") for uri in hooks.PAGES}
    assert not pages & set(hooks.BUILT)
    assert not pages & {hooks.static_uri(name) for name in hooks.STATIC}
    for name in hooks.STATIC:
        assert (ROOT / "results" / name).is_file()


def test_the_first_page_is_one_click_from_the_page_to_play_with(hooks: ModuleType) -> None:
    first = (ROOT / "docs" / "index.md").read_text()
    assert first.count(f'href="{hooks.PLAY}') >= 2  # the button, and the strip
    table = hooks.benchmark.BLOCKS["front-tasks"]()
    assert "\n".join(table) in first
    rows = [line for line in table if re.search(r"\([+−]\d+\.\d\d … [+−]\d+\.\d\d\)", line)]
    assert len(rows) == 5  # every task, with its interval
    place = json.loads((ROOT / "results" / "circuits" / "in_situ.json").read_text())["summary"]
    for name in ("deployed", "in_place"):
        assert f"{100 * place[name]['mean']:.1f} %" in first


def test_the_strips_are_drawn_from_the_networks(hooks: ModuleType) -> None:
    """The captions and the shapes; colours may differ by a rounding."""
    drawing = importlib.import_module("draw_settling")
    for name, picture in drawing.DRAWN.items():
        kept, fresh = (ROOT / "docs" / "figures" / f"{name}.svg").read_text(), picture()
        for part in (r">([^<]+)</text>", r"<circle|<rect", r'viewBox="[^"]+"'):
            assert re.findall(part, kept) == re.findall(part, fresh)


def test_links_of_the_repository_become_links_of_the_site(hooks: ModuleType) -> None:
    def turned(uri: str, text: str) -> str:
        page = SimpleNamespace(file=SimpleNamespace(src_uri=uri))
        return hooks.on_page_markdown(text, page=page)

    report = "[a](../results/benchmark/quick/benchmark.md)"
    assert turned("limits.md", report) == "[a](results/benchmark.md)"
    notebook = "[a](../../results/verification/quick/verification_notebook.md)"
    assert turned("how-to/csv.md", notebook) == "[a](../results/verification.md)"
    assert turned("how-to/csv.md", "[a](../../CONTRIBUTING.md)") == "[a](../contributing.md)"
    assert turned("contributing.md", "[a](docs/start.md)") == "[a](start.md)"


def test_the_verification_s_pages_speak_of_bars_where_they_have_some(hooks: ModuleType) -> None:
    report = hooks.load(hooks.FULL)
    report["tracks"] = report["tracks"][:3]  # all of them take their time
    without = copy.deepcopy(report)
    for track in without["tracks"]:
        track.pop("nearest")
        for check in track["checks"]:
            check.pop("gauge")
    for found, bars in ((report, True), (without, False)):
        text = hooks.verification_html(found)
        assert ('<i class="gauge"' in text) is bars
        assert ("<th>Nearest</th>" in text) is bars
        assert ("On every bar" in text) is bars
