"""From measurements of single runs to the figures of the report: one plain dictionary.

Everything the reports show is here; docs/benchmark-schema.md describes it. Accuracies of runs are
fractions, those of summaries percentages. Wall-clock figures are only under keys ``timing``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from toreqprop.bench.bounds import BOUNDS, Check, above, at_least, below, status
from toreqprop.bench.hyperparameters import MODELS, read, variant
from toreqprop.bench.plan import Plan
from toreqprop.bench.rows import base, title
from toreqprop.bench.run import CONTROLS, EPISODES, SCHEMA, Run
from toreqprop.bench.runner import Outcome
from toreqprop.bench.statistics import (
    CONFIDENCE,
    MARGIN,
    SIGNIFICANCE,
    compare,
    summarise,
    wilson,
)

Measurement = dict[str, Any]


def summarise_benchmark(
    plan: Plan, outcome: Outcome, environment: dict[str, Any], command: str
) -> dict[str, Any]:
    """The content of ``benchmark.json``, apart from the time the whole command took."""
    runs = [run for run in plan.runs() if run in outcome.measurements]
    by_run = {run: outcome.measurements[run] for run in runs}
    lost = {run.task: reason for run, reason in outcome.lost.items() if run.control is None}
    reasons = {**lost, **outcome.not_run}
    tasks = [_task(plan, name, by_run, reasons.get(name)) for name in plan.tasks]
    done = [t for t in tasks if t["status"] != "NOT RUN"]
    # Every task once: rows that vary the model of another row would count it again.
    plain = [t for t in done if base(t["task"]) == t["task"]] or done
    gaps = [t["comparison"]["gap"]["mean"] for t in plain]
    controls = [_control(control, plan, by_run) for control in CONTROLS] if plan.controls else []
    return {
        "schema": SCHEMA,
        "command": command,
        "environment": environment,
        "seeds": list(plan.seeds),
        "full_data": plan.full,
        "epochs_override": plan.epochs,
        "statistics": {
            "confidence": CONFIDENCE,
            "significance": SIGNIFICANCE,
            "equivalence_margin": MARGIN,
            "policy_episodes": EPISODES,
        },
        "status": _overall(plan, tasks, [c for c in controls if c]),
        "average_gap": sum(gaps) / len(gaps) if gaps else None,
        "tasks": tasks,
        "controls": [c for c in controls if c],
        "searches": _searches(plan),
        "runs": [by_run[run] for run in runs],
    }


def _task(
    plan: Plan, name: str, by_run: dict[Run, Measurement], reason: str | None
) -> dict[str, Any]:
    entry = variant(name, plan.full)
    facts: dict[str, Any] = {"name": entry, "task": name, "title": title(name, plan.full)}
    found = {
        model: [
            m
            for run, m in by_run.items()
            if run.task == name and run.model == model and run.control is None
        ]
        for model in MODELS
    }
    backprop, ep = found["backprop"], found["ep"]
    if reason is not None or not backprop or len(backprop) != len(ep):
        return facts | {"status": "NOT RUN", "reason": reason or "its runs were not finished"}
    chance = 100 * max(m["data"]["chance"] for m in backprop + ep)
    comparison = compare(_scores(ep), _scores(backprop))
    relaxation = _relaxation(ep)
    policy = {model: _policy(found[model]) for model in MODELS} if ep[0]["policy"] else None
    checks = _checks(entry, found, chance, comparison.gap.mean, relaxation, policy)
    return facts | {
        "status": status(checks),
        "checks": [asdict(check) for check in checks],
        "data": {k: v for k, v in ep[0]["data"].items() if k not in ("chance", "sha256")},
        "sha256": {str(m["run"]["seed"]): m["data"]["sha256"] for m in ep},
        "same_data": all(m["data"]["sha256"] == ep[0]["data"]["sha256"] for m in ep),
        "chance": chance,
        "settings": ep[0]["run"]["settings"],
        "models": {
            model: {
                "parameters": found[model][0]["parameters"],
                "scores": _scores(found[model]),
                "accuracy": asdict(summarise(_scores(found[model]))),
            }
            for model in MODELS
        },
        "comparison": asdict(comparison),
        "relaxation": relaxation,
        "policy": policy,
        "timing": _timing(backprop, ep),
    }


def _checks(
    entry: str,
    found: dict[Any, list[Measurement]],
    chance: float,
    gap: float,
    relaxation: dict[str, Any],
    policy: dict[Any, dict[str, float]] | None,
) -> list[Check]:
    bounds = BOUNDS[entry]
    ep_mean = summarise(_scores(found["ep"])).mean
    checks = [
        above("backpropagation's accuracy interval lies above chance (%)",
              lower_end(found["backprop"]), chance),
        above("EP's accuracy interval lies above chance (%)", lower_end(found["ep"]), chance),
        at_least("backpropagation's mean accuracy (%), no weak baseline",
                 summarise(_scores(found["backprop"])).mean, bounds.accuracy),
        at_least("EP's mean accuracy (%)", ep_mean, bounds.accuracy),
        at_least("mean gap, EP minus backpropagation (points)", gap, bounds.gap),
        below("largest Lipschitz constant at any training step",
              relaxation["largest_lipschitz"], 1.0),
    ]  # fmt: skip
    if policy is not None and bounds.policy_return is not None:
        claim = "mean return of EP's cloned policy"
        checks.append(at_least(claim, policy["ep"]["mean_return"], bounds.policy_return))
    if policy is not None and bounds.below_expert is not None:
        claim = f"mean return of EP's cloned policy (the expert's less {bounds.below_expert:g})"
        least = policy["ep"]["expert_return"] - bounds.below_expert
        checks.append(at_least(claim, policy["ep"]["mean_return"], least))
    return checks


def _control(control: str, plan: Plan, by_run: dict[Run, Measurement]) -> dict[str, Any] | None:
    found: dict[str, list[Measurement]] = {}
    for run, measurement in by_run.items():
        if run.control == control:
            found.setdefault(run.model, []).append(measurement)
    if "ep" not in found:
        return None
    some = found["ep"]
    chance = 100 * max(m["data"]["chance"] for m in some)
    checks = []
    if control == "shuffled-labels":
        for model, measured in found.items():
            low = lower_end(measured)
            claim = f"{model}: the accuracy interval reaches down to chance (%)"
            checks.append(Check(claim, low, chance, low <= chance))
    if control == "no-nudge":
        moved = max(_hidden_change(m) for m in some)
        checks.append(Check("largest change of any hidden weight", moved, 0.0, moved == 0.0))
    nudged = [
        m
        for run, m in by_run.items()
        if run.task == plan.tasks[0] and run.model == "ep" and run.control is None
    ]
    return {
        "name": control,
        "task": plan.tasks[0],
        "title": title(plan.tasks[0], plan.full),
        "status": status(checks) if checks else "REPORTED",
        "checks": [asdict(check) for check in checks],
        "chance": chance,
        "models": {
            model: {"scores": _scores(m), "accuracy": asdict(summarise(_scores(m)))}
            for model, m in found.items()
        },
        "relaxation": _relaxation(some),
        "hidden_change": max(_hidden_change(m) for m in some),
        "readout_change": max(m["change"]["readout.weight"] for m in some),
        "hidden_change_of_ep": max((_hidden_change(m) for m in nudged), default=None),
    }


def lower_end(measured: Sequence[Measurement]) -> float:
    """Lower end of the 95 % interval of the accuracy, in percent: over seeds by Student's t, or
    over the test samples (Wilson) where there is one seed."""
    low = summarise(_scores(measured)).low
    if low is not None:
        return low
    return 100 * wilson(measured[0]["correct"], measured[0]["data"]["test_samples"])[0]


def _scores(measured: Sequence[Measurement]) -> list[float]:
    return [100 * m["accuracy"] for m in measured]


def _hidden_change(measurement: Measurement) -> float:
    return max(v for k, v in measurement["change"].items() if not k.startswith("readout"))


def _relaxation(ep: Sequence[Measurement]) -> dict[str, Any]:
    parts = [m["relaxation"] for m in ep]
    return {
        "free_steps": sum(p["free_steps"] for p in parts) / len(parts),
        "nudged_steps": sum(p["nudged_steps"] for p in parts) / len(parts),
        "worst_residual": max(p["worst_residual"] for p in parts),
        "unconverged": sum(p["unconverged"] for p in parts),
        "largest_lipschitz": max(p["largest_lipschitz"] for p in parts),
        "tolerance": parts[0]["tolerance"],
        "max_steps": parts[0]["max_steps"],
    }


def _policy(measured: Sequence[Measurement]) -> dict[str, float]:
    parts = [m["policy"] for m in measured]
    return {
        "mean_return": sum(p["mean_return"] for p in parts) / len(parts),
        "worst_return": min(p["worst_return"] for p in parts),
        "expert_return": sum(p["expert_return"] for p in parts) / len(parts),
    }


def _timing(backprop: Sequence[Measurement], ep: Sequence[Measurement]) -> dict[str, float]:
    seconds = {
        "backprop_seconds": sum(m["timing"]["training_seconds"] for m in backprop) / len(backprop),
        "ep_seconds": sum(m["timing"]["training_seconds"] for m in ep) / len(ep),
    }
    return seconds | {"ratio": seconds["ep_seconds"] / seconds["backprop_seconds"]}


def _searches(plan: Plan) -> dict[str, Any]:
    tasks = read(plan.hyperparameters)["tasks"]
    names = [variant(name, plan.full) for name in plan.tasks]
    return {name: tasks[name].get("search") for name in names}


def _overall(plan: Plan, tasks: Sequence[Measurement], controls: Sequence[Measurement]) -> str:
    statuses = [part["status"] for part in (*tasks, *controls)]
    if all(task["status"] == "NOT RUN" for task in tasks):
        return "NOT RUN"
    if "NOT RUN" not in statuses and plan.epochs is not None:
        return "QUICK LOOK"  # the bounds are for networks trained as long as they were tuned for
    if "FAIL" in statuses and plan.epochs is None:
        return "FAIL"
    return "INCOMPLETE" if "NOT RUN" in statuses else "PASS"
