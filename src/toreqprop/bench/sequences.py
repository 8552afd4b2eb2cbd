"""Sequences: transformers whose attention relaxes, trained by EP to reverse and to sort.

Training sequences are seen once, test sequences by no network. The recipes are those that track 14
had, chosen on validation sequences; that of 64 is that of 32.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.certificate import certify
from toreqprop.errors import InvalidInputError
from toreqprop.evidence import Measurement
from toreqprop.gradients import CenteredEP
from toreqprop.models import EquilibriumTransformer
from toreqprop.tasks.sequences import sequences
from toreqprop.training import TrainingConfig, fit, predict

ENERGY: dict[str, Any] = {"variant": "energy"}
DEEP: dict[str, Any] = {
    "variant": "energy",
    "layers": 2,
    "feedback": 0.15,
    "radius": 1.5,
    "bound": "proven",
    "tol": 3e-4,
    "max_steps": 1000,
    "gradient": CenteredEP(0.01),
}
"""Close to a tie between two digits sweeps are slow, so that a small step is no small error: at the
default tolerance of 1e-3 the gradient of a network that sorts can lose its direction."""
STACKED: dict[str, Any] = {"variant": "stacked"}

NETWORKS = {"energy": ENERGY, "energy, 2 layers": DEEP, "stacked": STACKED}
ROWS = (
    # task, length, network, updates, sequences of an update
    ("reversal", 8, "energy", 70, 64),
    ("reversal", 16, "energy", 150, 32),
    ("reversal", 32, "energy", 160, 32),
    ("reversal", 64, "energy", 160, 32),
    ("sorting", 8, "energy, 2 layers", 600, 64),
    ("sorting", 8, "stacked", 600, 64),
)
BEFORE = {
    ("reversal", 8, "energy"): 100.0,
    ("reversal", 16, "energy"): 100.0,
    ("reversal", 32, "energy"): 100.0,
    ("sorting", 8, "energy, 2 layers"): 99.295,
    ("sorting", 8, "stacked"): 99.6175,
}
"""Tokens right in percent, on the worst of three seeds, that track 14 had at commit d21352c. It had
no sequences of 64."""
SYMBOLS, TEST, RATE, CERTIFIED = 10, 5000, 1e-2, 32
SEEDS = 5


def token_loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over every position."""
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


def trained(
    task: str, length: int, network: str, updates: int, batch: int, seed: int, test: int = TEST
) -> dict[str, Any]:
    """Train one network and test it; its gradient is certified before, amid and after."""
    data = sequences(
        task, length=length, symbols=SYMBOLS, train=updates * batch, test=test, seed=seed
    )
    torch.manual_seed(seed)
    model = EquilibriumTransformer(SYMBOLS, length, on_failure="ignore", **NETWORKS[network])
    held = data.validation_x[:CERTIFIED], data.validation_y[:CERTIFIED]
    certificates: list[dict[str, Any]] = []
    step = 0

    def look(net: nn.Module) -> None:
        nonlocal step
        step += 1
        if step in (updates // 2, updates):
            certificates.append(_certified(net, *held))

    certificates.append(_certified(model, *held))
    config = TrainingConfig(1, batch, RATE, schedule="cosine", seed=seed)
    started = time.process_time()
    epoch = fit(model, data.x, data.y, config, loss=token_loss, on_step=look).epochs[-1]
    seconds = time.process_time() - started
    right = predict(model, data.test_x) == data.test_y
    return {
        "task": task,
        "length": length,
        "network": network,
        "seed": seed,
        "updates": updates,
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens": 100 * float(right.double().mean()),
        "whole": 100 * float(right.all(1).double().mean()),
        "chance": 100 * data.chance,
        "steps": [epoch.free_steps, epoch.nudged_steps],
        "unsettled": epoch.unconverged,
        "relaxations": epoch.relaxations,
        "certificates": certificates,
        "timing": {"training": seconds},
    }


def _certified(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any]:
    assert isinstance(model, EquilibriumTransformer)
    try:  # of a copy: what it relaxes is not counted as the training's
        found = certify(copy.deepcopy(model), x, y, loss=token_loss)
    except InvalidInputError as lost:  # a training that diverged is a finding too
        return {"ok": False, "cosine": 0.0, "verdict": str(lost)}
    return {"ok": found.ok, "cosine": found.min_cosine, "verdict": found.verdict}


def measurements(seeds: Sequence[int]) -> list[Measurement]:
    """Every row from every seed."""
    names = ("task", "length", "network", "updates", "batch")
    return [
        Measurement(
            "sequences",
            f"{task} of {length}, {network}, seed {seed}",
            f"{__name__}:trained",
            (*zip(names, (task, length, network, updates, batch), strict=True), ("seed", seed)),
        )
        for seed in seeds
        for task, length, network, updates, batch in ROWS
    ]


def assemble(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What is kept: every training, and whether it is as good as before."""
    return {"runs": found, "checks": [_check(*row[:3], _of(found, *row[:3])) for row in ROWS]}


def _of(runs: list[dict[str, Any]], task: str, length: int, network: str) -> list[dict[str, Any]]:
    return [r for r in runs if (r["task"], r["length"], r["network"]) == (task, length, network)]


def _check(task: str, length: int, network: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The worst seed against the worst one of before, to a token."""
    before = BEFORE.get((task, length, network))
    worst = min(r["tokens"] for r in runs)
    return {
        "row": f"{task} of {length}, {network}",
        "before": before,
        "worst": worst,
        "passed": None if before is None else worst >= before,
    }


def render_markdown(report: dict[str, Any]) -> list[str]:
    """One row for each task, length and network."""
    lines = [
        "| task | length | network | updates | seeds | tokens right, mean (worst) "
        "| worst before | | sequences wholly right, mean | chance | certified "
        "| smallest cosine before, amid, after | steps, free + nudged | did not settle "
        "| processor time |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row, check in zip(ROWS, report["checks"], strict=True):
        runs = _of(report["runs"], *row[:3])
        looks = list(zip(*(r["certificates"] for r in runs), strict=True))
        passed = [c["ok"] for look in looks for c in look]
        cosines = ", ".join(f"{min(c['cosine'] for c in look):.4f}" for look in looks)
        free, nudged = (fmean(r["steps"][k] for r in runs) for k in (0, 1))
        before = "–" if check["before"] is None else f"{check['before']:.3f} %"
        verdict = {None: "", True: "no worse", False: "worse"}[check["passed"]]
        lines.append(
            f"| {row[0]} | {row[1]} | {row[2]} | {row[3]} | {len(runs)} "
            f"| {fmean(r['tokens'] for r in runs):.3f} % ({check['worst']:.3f} %) "
            f"| {before} | {verdict} | {fmean(r['whole'] for r in runs):.2f} % "
            f"| {runs[0]['chance']:.1f} % | {sum(passed)} of {len(passed)} | {cosines} "
            f"| {free:.1f} + {nudged:.1f} "
            f"| {sum(r['unsettled'] for r in runs)} of {sum(r['relaxations'] for r in runs):,} "
            f"| {fmean(r['timing']['training'] for r in runs):.0f} s |"
        )
    return lines
