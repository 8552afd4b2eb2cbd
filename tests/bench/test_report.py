"""The report: its rule of passing, its controls, and its files, one of them in a browser."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from toreqprop.bench.runner import Outcome

from tests.bench.conftest import report_of
from toreqprop.bench.bounds import BOUNDS
from toreqprop.bench.hyperparameters import read
from toreqprop.bench.plan import Plan
from toreqprop.bench.reports import render, write_reports

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=2000",
    "--window-size=390,844",
    "--dump-dom",
]


def _rescored(outcome: Outcome, scores: dict[str, float]) -> Outcome:
    """The same runs with other accuracies; what is printed and judged must follow."""
    changed = copy.deepcopy(outcome)
    for run, measurement in changed.measurements.items():
        if run.control is None:
            measurement["accuracy"] = scores[run.model] + 0.001 * (run.seed - 42)
    return changed


@pytest.mark.parametrize(
    ("backprop", "ep", "expected"),
    [
        (0.975, 0.976, "PASS"),
        (0.975, 0.960, "FAIL"),  # below the accuracy asked for
        (0.990, 0.976, "FAIL"),  # too far below backpropagation
        (0.960, 0.976, "FAIL"),  # a weak baseline
        (0.100, 0.976, "FAIL"),  # a baseline at chance proves nothing
        (0.975, 0.100, "FAIL"),
    ],
)
def test_the_status_follows_the_bounds(
    small_plan: Plan, small_outcome: Outcome, backprop: float, ep: float, expected: str
) -> None:
    outcome = _rescored(small_outcome, {"backprop": backprop, "ep": ep})
    task = report_of(small_plan, outcome)["tasks"][0]
    assert task["status"] == expected
    assert task["status"] == ("PASS" if all(c["passed"] for c in task["checks"]) else "FAIL")


def test_a_result_whose_interval_includes_chance_fails(
    small_plan: Plan, small_outcome: Outcome
) -> None:
    outcome = _rescored(small_outcome, {"backprop": 0.975, "ep": 0.976})
    for run, measurement in outcome.measurements.items():
        if run.model == "ep" and run.seed == 42 and run.control is None:
            measurement["accuracy"] = 0.5  # two seeds this far apart: an interval down to zero
    task = report_of(small_plan, outcome)["tasks"][0]
    check = next(c for c in task["checks"] if c["claim"].startswith("EP's accuracy interval"))
    assert task["models"]["ep"]["accuracy"]["mean"] > task["chance"]
    assert not check["passed"]


def test_every_task_has_bounds() -> None:
    assert {"digits", "mnist", "fashion", "cartpole", "acrobot"} <= set(BOUNDS)


def test_controls_are_what_they_say(small_report: dict[str, Any]) -> None:
    controls = {control["name"]: control for control in small_report["controls"]}
    assert set(controls) == {"shuffled-labels", "no-nudge", "no-spectral-norm"}
    assert set(controls["shuffled-labels"]["models"]) == {"backprop", "ep"}
    unnudged = controls["no-nudge"]
    assert unnudged["hidden_change"] == 0.0
    assert unnudged["readout_change"] > 0.0
    assert unnudged["hidden_change_of_ep"] > 1e-3  # with the nudge the same weights move
    assert controls["no-spectral-norm"]["status"] == "REPORTED"


def test_a_control_that_learns_fails(small_plan: Plan, small_outcome: Outcome) -> None:
    outcome = copy.deepcopy(small_outcome)
    for run, measurement in outcome.measurements.items():
        if run.control == "shuffled-labels":
            measurement["accuracy"] = 0.5 + 0.001 * run.seed
        if run.control == "no-nudge":
            measurement["change"]["input.weight"] = 1e-9
    controls = {c["name"]: c for c in report_of(small_plan, outcome)["controls"]}
    assert controls["shuffled-labels"]["status"] == "FAIL"
    assert controls["no-nudge"]["status"] == "FAIL"


def test_every_figure_of_the_tables_is_in_the_json(small_folder: Path) -> None:
    report = json.loads((small_folder / "benchmark.json").read_text())
    text = (small_folder / "benchmark.md").read_text()
    task = report["tasks"][0]
    for model in ("backprop", "ep"):
        accuracy = task["models"][model]["accuracy"]
        assert f"{accuracy['mean']:.2f}% ± {accuracy['sd']:.2f}%" in text
    assert "## Results Matrix" in text
    assert "## Optimal Hyperparameters" in text
    assert "## Reproducibility" in text
    for name in ("benchmark.md", "statistical_report.md", "benchmark.html"):
        words = re.sub(r"<svg.*?</svg>", "", (small_folder / name).read_text(), flags=re.DOTALL)
        assert not re.search(r"\b(nan|None|inf)\b", words), name


def test_identical_scores_are_printed_without_nan(
    small_plan: Plan, small_outcome: Outcome, tmp_path: Path
) -> None:
    outcome = copy.deepcopy(small_outcome)
    for measurement in outcome.measurements.values():
        measurement["accuracy"] = 0.975
    write_reports(report_of(small_plan, outcome), tmp_path)
    text = (tmp_path / "statistical_report.md").read_text()
    assert "nan" not in text.lower()
    assert "| Digits 8x8 | 0.00 | 0.00 | [0.00, 0.00] | 0.00 | 1.000 | 0.00 |" in text


def test_a_row_with_the_baseline_of_its_task_can_be_reported(small_report: dict[str, Any]) -> None:
    search = read()["tasks"]["digits-fast"]["search"]
    assert "backprop" not in search
    text = render("benchmark.md.j2", {**small_report, "searches": {"digits-fast": search}})
    assert f"| digits-fast | {search['trials']} | {search['validation']} | – |" in text


def test_one_seed_can_be_reported(small_plan: Plan, small_outcome: Outcome, tmp_path: Path) -> None:
    plan = Plan(small_plan.tasks, small_plan.seeds[:1], epochs=small_plan.epochs)
    write_reports(report_of(plan, small_outcome), tmp_path)
    assert "one seed, no test" in (tmp_path / "benchmark.md").read_text()


def _browse(page: Path, profile: Path) -> tuple[str, list[str]]:
    """The page's DOM after loading on a phone's screen, and what the console said."""
    done = subprocess.run(
        [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


_PROBE = """<script>
const broken = [...document.images].filter(i => !(i.complete && i.naturalWidth)).length;
const empty = [...document.querySelectorAll("figure")].filter(f => f.offsetParent &&
  !(f.querySelector("svg") && f.querySelector("svg").getBoundingClientRect().height > 50)).length;
window.addEventListener("load", () => {
  const root = document.documentElement;
  const figures = document.querySelectorAll("figure").length;
  const probe = {broken, empty, figures, width: root.scrollWidth, window: window.innerWidth};
  root.dataset.probe = JSON.stringify(probe);
});
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_opens_on_a_phone(small_folder: Path, tmp_path: Path) -> None:
    text = (small_folder / "benchmark.html").read_text()
    assert not re.search(r'(src|href)="(?!#|data:)', text)  # nothing is loaded from elsewhere
    page = tmp_path / "probed.html"
    page.write_text(text.replace("</body>", _PROBE))
    dom, console = _browse(page, tmp_path / "profile")
    probe = json.loads(re.search(r'data-probe="([^"]*)"', dom)[1].replace("&quot;", '"'))  # type: ignore[index]
    assert console == []
    assert probe["broken"] == 0
    assert probe["empty"] == 0
    assert probe["figures"] >= 6  # gap, Lipschitz, learning, relaxation, two confusion matrices
    assert probe["width"] <= probe["window"]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_browser_check_would_notice(tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text(
        '<meta name="viewport" content="width=device-width"><body><img src="missing.png">'
        '<p style="width: 3000px">wide</p><script>console.error("no")</script>' + _PROBE
    )
    dom, console = _browse(page, tmp_path / "profile")
    probe = json.loads(re.search(r'data-probe="([^"]*)"', dom)[1].replace("&quot;", '"'))  # type: ignore[index]
    assert console != []
    assert probe["broken"] == 1
    assert probe["width"] > probe["window"]
