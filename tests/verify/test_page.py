"""The page of a verification: bars that say how far a bound is, and in headless Chromium filters,
search, two widths and two schemes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.play.browser import Browser, brightness, find
from tests.verify.cheap_tracks import LEARNED, cheap
from toreqprop.verify.gauge import BOUND, gauge
from toreqprop.verify.levels import QUICK
from toreqprop.verify.measurements import Paired
from toreqprop.verify.records import Job, perform
from toreqprop.verify.report import make_report
from toreqprop.verify.report_files import page
from toreqprop.verify.verdict import (
    Bound,
    above_chance,
    at_least,
    at_most,
    check,
    equivalent,
)

SHOWN = "[...document.querySelectorAll('#overview [data-track]')].filter(r => !r.hidden)"
NUMBERS = f"{SHOWN}.map(r => Number(r.dataset.track))"


def bar(bound: Bound, value: Any) -> dict[str, Any]:
    found = gauge(check(bound, value, QUICK))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("bound", "value", "logarithmic"),
    [
        (at_most("m", 1.0, "m"), 0.5, False),
        (at_most("m", 1.0, "m"), 1.5, False),
        (at_least("m", 90.0, "m"), 93.0, False),
        (at_least("m", 90.0, "m"), 10.0, False),
        (at_most("m", 1e-7, "m"), 1e-12, True),
        (at_least("m", 1e-3, "m"), 0.4, True),
        (at_most("m", 0.0, "m"), 0.0, False),
        (at_least("m", -3.0, "m"), -2.5, False),
    ],
)
def test_the_mark_is_in_the_zone_where_the_bound_holds(
    bound: Bound, value: float, logarithmic: bool
) -> None:
    found, verdict = bar(bound, value), check(bound, value, QUICK)
    assert found["logarithmic"] is logarithmic
    assert (found["point"] >= BOUND) is verdict.holds
    assert 0 < found["point"] < 100


def test_the_further_from_the_bound_the_longer_the_way() -> None:
    places = [bar(at_most("m", 1.0, "m"), value)["point"] for value in (3.0, 1.2, 0.99, 0.5)]
    assert places == sorted(places)
    places = [bar(at_least("m", 90.0, "m"), value)["point"] for value in (10.0, 89.0, 91.0, 99.0)]
    assert places == sorted(places)
    small = [bar(at_most("m", 1e-5, "m"), value)["point"] for value in (1e-7, 1e-9, 1e-12)]
    assert small == sorted(small)


def test_intervals_and_chance_are_shown() -> None:
    found = bar(above_chance("a", "accuracy"), LEARNED)
    assert BOUND < found["low"] <= found["point"] <= found["high"]
    band = bar(equivalent("g", 3.0, "gap"), Paired((1.0, 2.0, 3.0), (1.5, 2.0, 2.5)))
    assert band["low"] <= BOUND + 70 * 2 / 3 <= band["point"] + 1e-9


def test_nothing_measured_no_bar() -> None:
    assert gauge(check(at_most("m", 1.0, "m"), None, QUICK)) is None
    assert gauge(check(above_chance("m", "m"), 0.5, QUICK)) is None


def bounds_of(limit: float) -> Any:
    return lambda level: (
        at_most("mean", 0.5, "mean of a thousand normal numbers"),
        at_most("mean", limit, "a mean that may be too small", required=limit < -50),
    )


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report with every verdict but a stub's."""
    tracks = (
        cheap(90),
        cheap(91, bounds=bounds_of(-9.0), title="Nearly There"),
        cheap(92, bounds=bounds_of(-99.0), claim="Something about whales."),
    )
    jobs = [Job(track, QUICK, (42,)) for track in tracks]
    report = make_report({job: perform(job, lambda text: None) for job in jobs}, QUICK)
    timing = {"command_seconds": 1.0, "experiment_seconds": 1.0, "experiments": 3, "reused": 0}
    environment = {"toreqprop": "0", "python": "3", "packages": {}, "system": "s", "cpu": "c"}
    report |= {"timing": {**timing, "generated": "today"}, "command": "toreqprop verify"}
    path = tmp_path_factory.mktemp("page") / "verification.html"
    path.write_text(page(report | {"environment": environment}))
    return path.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find()
    if program is None:
        pytest.skip("there is no Chromium here")
    with Browser(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_and_can_be_read(
    browser: Browser, url: str, width: int, dark: bool, tmp_path: Path
) -> None:
    browser.show(url, width, 900, dark=dark)
    assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
    style = "getComputedStyle(document.body)"
    colour, ground = (browser.run(f"{style}.{name}") for name in ("color", "backgroundColor"))
    assert (brightness(colour) > brightness(ground)) is dark
    assert abs(brightness(colour) - brightness(ground)) > 120
    assert browser.run("document.querySelectorAll('section .gauge .point').length") == 6
    assert browser.run("document.querySelectorAll('#overview .gauge .point.no').length") == 2
    widest = "Math.max(...[...document.querySelectorAll('section .gauge')].map(b => b.clientWidth))"
    assert browser.run(widest) >= 60
    assert not [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"]


def test_filters_and_search(browser: Browser, url: str) -> None:
    browser.show(url)
    assert browser.run(NUMBERS) == [90, 91, 92]
    press = "document.querySelector('.bar [data-verdict=\"{}\"]').click()"
    for verdict, left in (("FAIL", [92]), ("PARTIAL", [91]), ("PASS", [90])):
        browser.run(press.format(verdict))
        assert browser.run(NUMBERS) == left
        hidden = "[...document.querySelectorAll('section.track')].filter(s => !s.hidden).length"
        assert browser.run(hidden) == 1
        pressed = "document.querySelector('.bar [aria-pressed=true]').dataset.verdict"
        assert browser.run(pressed) == verdict
    browser.run(press.format(""))
    typed = (
        "(text => {{ const box = document.getElementById('search'); box.value = text;"
        " box.dispatchEvent(new Event('input')); }})('{}')"
    )
    for text, left in (("whales", [92]), ("nearly", [91]), ("90", [90]), ("no such", [])):
        browser.run(typed.format(text))
        assert browser.run(NUMBERS) == left
        assert browser.run("!document.getElementById('none').hidden") is (not left)


def test_light_and_dark_by_hand(browser: Browser, url: str) -> None:
    browser.show(url)
    ground = "getComputedStyle(document.body).backgroundColor"
    before = brightness(browser.run(ground))
    browser.run("document.getElementById('theme').click()")
    assert brightness(browser.run(ground)) < before - 100
