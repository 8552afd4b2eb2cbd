"""The report: its rule of passing, its controls, and its files, one of them in a browser."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.bench.conftest import report_of
from toreqprop.bench.benchmark import BenchmarkReport
from toreqprop.bench.plan import Plan
from toreqprop.bench.reports import write_reports
from toreqprop.bench.row_report import judge, row_report
from toreqprop.bench.rows import row
from toreqprop.bench.run import Run, build
from toreqprop.evidence import Outcome
from toreqprop.models import LoopedMLP
from toreqprop.tasks import get
from toreqprop.training import accuracy, fit

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


def _rescored(outcome: Outcome[Run], **scores: float) -> Outcome[Run]:
    """The same runs with other accuracies; what is printed and judged must follow."""
    changed = copy.deepcopy(outcome)
    for run, record in changed.records.items():
        if run.control is None and run.variant is None:
            accuracy = scores[run.model] + 0.0001 * (run.seed - 42)
            record["accuracy"] = accuracy
            record["correct"] = round(accuracy * record["data"]["test_samples"])
    return changed


GOOD = {"ep": 0.975, "backprop": 0.975, "shallow": 0.97, "implicit": 0.975}


@pytest.mark.parametrize(
    ("changed", "verdict", "status"),
    [
        ({}, "EQUIVALENT", "PASS"),
        ({"ep": 0.94}, "WORSE", "FAIL"),
        ({"shallow": 0.99}, "WORSE", "FAIL"),  # it is the stronger baseline that counts
        ({"ep": 0.99}, "BETTER", "PASS"),
        ({"backprop": 0.94, "shallow": 0.94, "ep": 0.94}, "EQUIVALENT", "FAIL"),  # all weak
        ({"ep": 0.1, "backprop": 0.1, "shallow": 0.1}, "EQUIVALENT", "FAIL"),  # all at chance
    ],
)
def test_the_verdict_follows_the_scores(
    small_plan: Plan,
    small_outcome: Outcome[Run],
    changed: dict[str, float],
    verdict: str,
    status: str,
) -> None:
    outcome = _rescored(small_outcome, **(GOOD | changed))
    (found,) = report_of(small_plan, outcome).rows
    assert (found.verdict, found.status) == (verdict, status)


def test_seeds_that_scatter_show_nothing(small_plan: Plan, small_outcome: Outcome[Run]) -> None:
    outcome = _rescored(small_outcome, **GOOD)
    for run, record in outcome.records.items():
        if run.model == "ep" and run.seed == 43 and run.control is None and run.variant is None:
            record["accuracy"] -= 0.01
    report = report_of(small_plan, outcome)
    (found,) = report.rows
    assert (found.verdict, found.status) == ("NOT SHOWN", "NOT SHOWN")
    assert replace(report, plan=replace(small_plan, epochs=None)).passed  # no failure either
    assert "Equivalence is not shown in Digits 8x8" in report.as_dict()["insights"][1]


def test_one_refused_certificate_fails_a_row(small_plan: Plan, small_outcome: Outcome[Run]) -> None:
    outcome = _rescored(small_outcome, **GOOD)
    record = next(r for run, r in outcome.records.items() if run.model == "ep")
    assert len(record["certificates"]) == 2  # one epoch: its middle is its end
    record["certificates"][0] |= {"ok": False, "cosine": 0.5}
    (found,) = report_of(small_plan, outcome).rows
    assert found.status == "FAIL"
    assert found.certificates.cosine == 0.5
    assert [c.claim for c in found.checks if not c.passed] == [
        "certificates that passed at EP's own beta"
    ]


def test_p_values_are_adjusted_over_the_rows(small_outcome: Outcome[Run]) -> None:
    own = {run: r for run, r in small_outcome.records.items() if _is_main(run)}
    digits = row("digits")
    one = row_report(digits, own)
    two = judge([(digits, one), (digits, replace(one, name="again"))])
    assert one.comparison.p is not None
    assert two[0].difference_p == pytest.approx(min(1.0, 2 * one.comparison.p))


def _is_main(run: Run) -> bool:
    return run.control is None and run.variant is None


def test_controls_are_what_they_say(small_report: BenchmarkReport) -> None:
    controls = {control.name: control for control in small_report.controls}
    assert set(controls) == {"shuffled-labels", "no-nudge", "no-spectral-norm"}
    assert set(controls["shuffled-labels"].accuracy) == {"backprop", "ep"}
    unnudged = controls["no-nudge"]
    assert unnudged.hidden_change == 0.0
    assert unnudged.readout_change > 0.0
    assert unnudged.hidden_change_of_ep is not None
    assert unnudged.hidden_change_of_ep > 1e-3  # with the nudge the same weights move
    assert controls["no-spectral-norm"].status == "REPORTED"


def test_a_control_that_learns_fails(small_plan: Plan, small_outcome: Outcome[Run]) -> None:
    outcome = copy.deepcopy(small_outcome)
    for run, record in outcome.records.items():
        if run.control == "shuffled-labels":
            record["accuracy"] = 0.5 + 0.001 * run.seed
        if run.control == "no-nudge":
            record["change"]["input.weight"] = 1e-9
    controls = {c.name: c for c in report_of(small_plan, outcome).controls}
    assert controls["shuffled-labels"].status == "FAIL"
    assert controls["no-nudge"].status == "FAIL"


def test_sensitivity_sees_what_beta_does(small_report: BenchmarkReport) -> None:
    assert small_report.sensitivity is not None
    by_beta = {p.value: p for p in small_report.sensitivity.points if p.setting == "beta"}
    assert by_beta[0.001].cosine > by_beta[1.0].cosine
    assert by_beta[0.001].certified
    assert not by_beta[1.0].certified
    steps = {p.value: p for p in small_report.sensitivity.points if p.setting == "max_steps"}
    assert steps[1.0].unconverged > steps[30.0].unconverged


def test_a_network_that_recurs_loses_something_when_cut(small_outcome: Outcome[Run]) -> None:
    """`W_rec = 0` by hand gives what the record says."""
    run, record = next((r, rec) for r, rec in small_outcome.records.items() if r.model == "ep")
    data = get("digits").load(run.seed, False)
    torch.manual_seed(run.seed)
    model = build(run, data, run.chosen.ep)
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    fit(model, x, y, run.chosen.training("ep", run.seed))
    assert isinstance(model, LoopedMLP)
    with torch.no_grad():
        model.recurrent.raw.zero_()
    test = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    assert accuracy(model, *test) == record["ablated"] != record["accuracy"]


def test_every_figure_of_the_tables_is_in_the_json(small_folder: Path) -> None:
    report = json.loads((small_folder / "benchmark.json").read_text())
    text = (small_folder / "benchmark.md").read_text()
    first = report["rows"][0]
    for arm in ("backprop", "shallow", "ep"):
        found = first["arms"][arm]["accuracy"]
        assert f"{found['mean']:.2f}% ± {found['sd']:.2f}%" in text
    for heading in (
        "Key Insights", "Results Matrix", "Sensitivity", "Optimal Hyperparameters", "Conclusion",
        "Reproducibility",
    ):  # fmt: skip
        assert f"## {heading}" in text
    assert report["conclusion"] in text
    for key in ("commit", "command", "environment", "timing"):
        assert report[key], key
    for name in ("benchmark.md", "statistical_report.md", "benchmark.html"):
        words = re.sub(r"<svg.*?</svg>", "", (small_folder / name).read_text(), flags=re.DOTALL)
        assert not re.search(r"\b(nan|None|inf)\b", words), name


def test_identical_scores_are_printed_without_nan(
    small_plan: Plan, small_outcome: Outcome[Run], tmp_path: Path
) -> None:
    outcome = copy.deepcopy(small_outcome)
    for record in outcome.records.values():
        record["accuracy"] = 0.975
    write_reports(report_of(small_plan, outcome).as_dict(), tmp_path)
    text = (tmp_path / "statistical_report.md").read_text()
    assert "nan" not in text.lower()
    assert "| 0.00 | 0.00 | [0.00, 0.00] | 0.00 | 1.000 | 0.00 |" in text


def test_one_seed_can_be_reported(
    small_plan: Plan, small_outcome: Outcome[Run], tmp_path: Path
) -> None:
    plan = replace(small_plan, seeds=1)
    few = Outcome({run: r for run, r in small_outcome.records.items() if run.seed == 42})
    report = report_of(plan, few)
    write_reports(report.as_dict(), tmp_path)
    assert report.rows[0].verdict == "NOT SHOWN"


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
