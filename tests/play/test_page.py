"""The page itself, in headless Chromium: keys alone, two widths, two schemes, no network."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tests.docs.pages import ROOT
from tests.play.browser import Browser, find
from toreqprop import checkpoint
from toreqprop.cli import app
from toreqprop.errors import InvalidInputError
from toreqprop.models import EquilibriumModel
from toreqprop.play.page import page, shipped_data
from toreqprop.play.recipes import FOLDER, digits_record, hidden_record
from toreqprop.tasks import get

if sys.version_info >= (3, 11):
    import tomllib

TABS = ("settle", "nudge", "unbind", "hurt", "hide", "maze")
LARGEST = 2_000_000
"""Bytes of a page that a phone opens at once."""

needs_browser = pytest.mark.skipif(find() is None, reason="there is no Chromium here")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "play.html"
    path.write_text(page(shipped_data()))
    return path.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(str(find()), tmp_path_factory.mktemp("profile")) as found:
        yield found


def drawn(browser: Browser) -> None:
    """Wait for two frames: what was asked for is on the screen."""
    browser.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")


def status(browser: Browser) -> str:
    return browser.run("document.getElementById('status').textContent")


def focused(browser: Browser) -> str:
    return browser.run(
        "(() => { const e = document.activeElement; "
        "return e && (e.id || e.getAttribute('role') || e.value || e.tagName); })()"
    )


def tab_to(browser: Browser, wanted: str) -> None:
    """Press Tab until the focus is there; it must come by within one round of the page."""
    for _ in range(40):
        if focused(browser) == wanted:
            return
        browser.press("Tab")
    raise AssertionError(f"no Tab leads to {wanted}")


@needs_browser
def test_what_the_page_shows_is_the_library_s_equilibrium(browser: Browser, url: str) -> None:
    """With motion: frame by frame, until it has settled, however long a frame takes."""
    browser.show(url, still=False)
    browser.run(
        "new Promise(r => { const wait = () => Play.view.settled ? r(1) "
        ": requestAnimationFrame(wait); wait(); })"
    )
    model = checkpoint.load(FOLDER / "digits").model
    assert isinstance(model, EquilibriumModel)
    model.tol = 1e-7
    x = torch.tensor([browser.run("Array.from(Play.input())")], dtype=torch.float32)
    with torch.no_grad():
        solution = model.equilibrium(x)
        answer = int(model.readout_from(solution.state).argmax())
    found = browser.run("Array.from(Play.view.state)")
    np.testing.assert_allclose(found, solution.state[0][0].numpy(), rtol=0, atol=1e-5)
    assert f"The answer is {answer} " in status(browser)
    data = get("digits").load(42, False)
    sample = browser.run("Play.samples.digits[Play.view.sample].label")
    rows = torch.from_numpy(data.test_x[data.test_y == sample])
    assert float((rows - x).abs().max(1).values.min()) < 1e-5  # a test picture, as the task has it


@needs_browser
def test_keys_alone_reach_everything(browser: Browser, url: str) -> None:
    browser.show(url)
    browser.press("Tab")
    assert focused(browser) == "theme"
    tab_to(browser, "tab-settle")
    tab_to(browser, "pad")
    before = browser.run("Array.from(Play.view.state)")
    for key in ("ArrowDown", "ArrowRight", " "):
        browser.press(key)
    assert browser.run("Play.view.cursor") == 9
    assert browser.run("Play.view.pixels[9]") == 1
    assert browser.run("Array.from(Play.view.state)") != before
    tab_to(browser, "radio")
    browser.press("ArrowRight")
    assert browser.run("Play.view.sample") == 1
    tab_to(browser, "step")
    browser.press("Enter")
    assert status(browser).startswith("Step ")
    browser.run("document.getElementById('pause').click()")


def choose(browser: Browser, url: str, tab: str) -> None:
    """A tab by the arrow keys of its list."""
    browser.show(url)
    tab_to(browser, "tab-settle")
    for _ in range(TABS.index(tab)):
        browser.press("ArrowRight")
    assert focused(browser) == f"tab-{tab}"
    assert browser.run("Play.view.tab") == tab


@needs_browser
def test_a_nudge_by_keys(browser: Browser, url: str) -> None:
    choose(browser, url, "nudge")
    tab_to(browser, "beta")
    angles, parted = [], []
    for key in ("Home", "End"):
        browser.press(key)
        angles.append(browser.run("Play.view.now.angle"))
        parted.append(
            browser.run("Engine.norm(Play.view.now.up.map((v, i) => v - Play.view.now.down[i]))")
        )
    assert 0 < angles[0] < 0.01 < 1 < angles[1] < 90
    assert parted[0] < 0.1 < parted[1]
    browser.press("Home")
    for _ in range(20):
        browser.press("ArrowRight")
    loss = browser.run("Play.view.nudge.value")
    tab_to(browser, "learn")
    browser.press("Enter")
    assert browser.run("Play.view.nudge.value") < loss
    assert browser.run("Engine.spectralNorm(Play.nets.digits)") <= 0.951
    tab_to(browser, "forget")
    browser.press("Enter")
    assert browser.run("Play.view.nudge.value") == loss


@needs_browser
def test_without_its_bound_it_does_not_settle(browser: Browser, url: str) -> None:
    choose(browser, url, "unbind")
    assert status(browser).startswith("Settled")
    tab_to(browser, "bound")
    browser.press(" ")
    assert status(browser).startswith("It does not settle")
    assert browser.run("Play.view.residual") > 0.05
    tab_to(browser, "damping")
    for _ in range(14):
        browser.press("ArrowLeft")
    assert status(browser).startswith("Settled")


@needs_browser
def test_it_recovers_from_noise_and_lives_without_some_neurons(browser: Browser, url: str) -> None:
    choose(browser, url, "hurt")
    before = browser.run("Array.from(Play.view.state)")
    tab_to(browser, "shake")
    browser.press("Enter")
    assert status(browser).startswith("Back in ")
    np.testing.assert_allclose(browser.run("Array.from(Play.view.state)"), before, atol=1e-5)
    tab_to(browser, "dead")
    for _ in range(4):
        browser.press("ArrowRight")
    assert "without 29 of 144 neurons" in status(browser)
    tab_to(browser, "field")
    browser.press("ArrowRight")
    browser.press(" ")
    assert re.search(r"without (28|30) of 144", status(browser))


@needs_browser
def test_the_hidden_half_takes_shape(browser: Browser, url: str) -> None:
    """The digits' mean error over the samples of the page falls from the first step to the end."""
    choose(browser, url, "hide")
    errors = browser.run(
        """(() => {
          const net = Play.nets.hidden;
          const mean = (guess, pixels) => Math.sqrt(
            pixels.slice(32).reduce((a, p, i) => a + ((guess[32 + i] + 1) / 2 - p) ** 2, 0) / 32);
          const found = [0, 0];
          for (const { pixels } of Play.samples.hidden) {
            const seen = Array.from(pixels, (p, i) => (i < 32 ? 2 * p - 1 : 0));
            const x = Float64Array.from([...seen, ...pixels.map((_, i) => (i < 32 ? 0 : 1))]);
            const drives = Engine.drive(net, x);
            const states = [1, 500].map((maxSteps) =>
              Engine.settle(net, drives, { maxSteps, tol: 1e-9 }).state);
            states.forEach((s, k) => { found[k] += mean(Engine.readout(net, s), pixels); });
          }
          return found.map((v) => v / Play.samples.hidden.length);
        })()"""
    )
    assert errors[1] < 0.9 * errors[0]
    tab_to(browser, "lines")
    browser.press("Home")
    assert browser.run("Play.input().slice(64).every((v) => v === 0)")


@needs_browser
def test_the_way_through_a_maze(browser: Browser, url: str) -> None:
    """Found from all cells lit; a wall across it, set by keys, leaves no way."""
    choose(browser, url, "maze")
    said = "document.getElementById('maze-status').textContent"
    assert "It found the way" in browser.run(said)
    lit = "Maps.readout(Maze.net, Maze.view.state, Maze.view.maze.side).filter(p => p > 0.5).length"
    way = browser.run(lit)
    assert 2 < way < browser.run("Maze.view.maze.walls.filter(w => !w).length")
    corner = browser.run(
        "(() => { const { walls, side, marks } = Maze.view.maze; "
        "Maze.view.cursor = Maps.way(walls, side, ...marks)[1]; return Maze.view.cursor; })()"
    )
    tab_to(browser, "maze-field")
    browser.press(" ")
    assert browser.run(f"Maze.view.maze.walls[{corner}]") == 1
    assert "It found the way" not in browser.run(said)
    assert browser.run(lit) < way
    browser.press(" ")
    assert "It found the way" in browser.run(said)


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_can_be_read(browser: Browser, url: str, width: int, dark: bool) -> None:
    browser.show(url, width, 844, dark=dark)
    for tab in TABS:
        browser.run(f"Play.select('{tab}')")
        drawn(browser)
        assert browser.run("document.documentElement.scrollWidth") <= width, tab
        wide = browser.run(
            "[...document.querySelectorAll('main *')].filter(e => e.offsetParent && "
            f"e.getBoundingClientRect().right > {width} && !e.closest('.tabs')).map(e => e.id)"
        )
        assert wide == [], tab
        blank = browser.run(
            "[...document.querySelectorAll('canvas')].filter(c => c.offsetParent && !c.getContext("
            "'2d').getImageData(0, 0, c.width, c.height).data.some(v => v)).map(c => c.id)"
        )
        assert blank == [], tab
        wrong = [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"]
        assert wrong == [], tab
    assert browser.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    for name in ("ink", "soft", "up", "down", "accent"):
        assert contrast(browser, name) >= 4.5, name


def contrast(browser: Browser, name: str) -> float:
    """Of a colour of text on the cards, by the formula of the web's accessibility guidelines."""
    hexes = browser.run(
        "(() => { const s = getComputedStyle(document.documentElement); "
        f"return ['--{name}', '--card'].map(n => s.getPropertyValue(n).trim()); }})()"
    )

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted(map(luminance, hexes), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@needs_browser
def test_nothing_is_fetched_and_nothing_is_without_a_name(browser: Browser, url: str) -> None:
    browser.show(url)
    for tab in TABS:
        browser.run(f"Play.select('{tab}')")
        drawn(browser)
        asked = [
            e["params"]["request"]["url"]
            for e in browser.events
            if e.get("method") == "Network.requestWillBeSent"
        ]
        assert {a.split("#")[0] for a in asked if not a.startswith("data:")} == {url}
        nameless = browser.run(
            "[...document.querySelectorAll('button, input, select, canvas, [role=radiogroup]')]"
            ".filter(e => e.offsetParent && !e.closest('[role=radio]') && !(e.labels && "
            "e.labels.length) && !e.getAttribute('aria-label') && !e.textContent.trim())"
            ".map(e => e.outerHTML)"
        )
        assert nameless == []


def test_the_command_writes_one_file_with_its_records(tmp_path: Path) -> None:
    out = tmp_path / "play.html"
    result = CliRunner().invoke(app, ["play", "--no-open", "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    text = out.read_text()
    assert facts["bytes"] == len(text.encode()) < LARGEST
    assert not re.search(r"(src|href)=[\"'](?!data:)", text)
    assert "{{" not in text
    for name, measure in (("digits", digits_record), ("hidden", hidden_record)):
        stored = checkpoint.load(FOLDER / name)
        found = measure(stored.model, get("digits").load(stored.about["play"]["seed"], False))  # type: ignore[arg-type]
        assert facts["networks"][name]["certificate"]["ok"]
        for key in ("test_accuracy", "hidden_error", "hidden_error_first_step"):
            if key in found:  # the record is what the network that ships does
                assert found[key] == pytest.approx(facts["networks"][name][key], abs=1e-4)


def test_a_network_of_one_s_own(tmp_path: Path) -> None:
    run, out = str(tmp_path / "run"), str(tmp_path / "own.html")
    train = ["train", "digits", "--epochs", "1", "--hidden", "20", "--output", run]
    assert (
        CliRunner().invoke(app, [*train, "--model", "hopfield", "--feedback", "1"]).exit_code == 0
    )
    result = CliRunner().invoke(app, ["play", run, "--no-open", "--out", out, "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)["networks"]["digits"]
    scores = json.loads(CliRunner().invoke(app, ["evaluate", run, "digits", "--json"]).stdout)
    assert facts["test_accuracy"] == pytest.approx(scores["accuracy"])
    assert '"looped": false' in Path(out).read_text()


def test_a_network_that_does_not_settle_is_refused(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    train = ["train", "digits", "--epochs", "1", "--hidden", "8", "--output", run]
    assert CliRunner().invoke(app, [*train, "--model", "backprop"]).exit_code == 0
    done = CliRunner().invoke(app, ["play", run, "--no-open", "--out", str(tmp_path / "x.html")])
    assert isinstance(done.exception, InvalidInputError)
    assert "networks that settle" in str(done.exception)
    assert not (tmp_path / "x.html").exists()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="reads TOML")
def test_the_wheel_has_every_file_of_the_page() -> None:
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["toreqprop"]
    folder = ROOT / "src" / "toreqprop"
    found = [
        p for p in (folder / "play").rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")
    ]
    assert {p.suffix for p in found} == {".html", ".css", ".js", ".json", ".safetensors"}
    for path in found:
        name = str(path.relative_to(folder))
        assert any(fnmatch(name, pattern.replace("**/", "*")) for pattern in patterns), name
