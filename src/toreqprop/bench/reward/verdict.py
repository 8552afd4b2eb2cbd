"""What the study claims, judged over its seeds; a policy no better than chance never passes.

For each task, EP's mean greedy return and that of each plain network, paired by seed:

1. EP has learnt: its return exceeds the random policy's by more than half of the way from there to
   the goal (one-sided t-test, adjusted by Holm over the tasks);
2. EP is as good: two one-sided tests find it within `MARGIN` of that way of the plain network's
   (adjusted by Holm over all comparisons), or a paired t-test finds it better;
3. the network recurs: the least true norm, at first and at the end, is at least `LEAST_NORM`;
4. every certificate passes, at first, amid and at the end, at the policy's own β.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from toreqprop.bench.reward.trial import ENVIRONMENTS
from toreqprop.errors import InvalidInputError
from toreqprop.evidence.checked import check, mean, verdict
from toreqprop.evidence.statistics import SIGNIFICANCE, compare, exceeds, holm, summarise

MARGIN = 0.05
LEAST_NORM = 0.8
RANDOM = "random"

Run = dict[str, Any]


def judged_runs(runs: Sequence[Run]) -> dict[str, Any]:
    """The runs, a summary of every task and method, comparisons, checks and the verdict."""
    summaries = [_summary(runs, task, method) for task, method in _kinds(runs)]
    comparisons = _comparisons(runs)
    checks = _checks(runs, comparisons)
    return {
        "goals": {task: ENVIRONMENTS[task].goal for task in _tasks(runs)},
        "summaries": summaries,
        "comparisons": comparisons,
        "checks": checks,
        "verdict": verdict(checks),
        "runs": list(runs),
    }


def _tasks(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run["task"] for run in runs))


def _kinds(runs: Sequence[Run]) -> list[tuple[str, str]]:
    found = dict.fromkeys((run["task"], run["method"]) for run in runs)
    return sorted(found, key=lambda kind: _tasks(runs).index(kind[0]))


def _of(runs: Sequence[Run], task: str, method: str) -> list[Run]:
    own = [run for run in runs if (run["task"], run["method"]) == (task, method)]
    return sorted(own, key=lambda run: run["seed"])


def _scores(runs: Sequence[Run], task: str, method: str) -> list[float]:
    return [run["mean_return"] for run in _of(runs, task, method)]


def _summary(runs: Sequence[Run], task: str, method: str) -> dict[str, Any]:
    own, goal = _of(runs, task, method), ENVIRONMENTS[task].goal
    scores = _scores(runs, task, method)
    found: dict[str, Any] = {
        "task": task,
        "method": method,
        "seeds": len(own),
        "return": asdict(summarise(scores)),
        "worst_seed": min(scores),
        "reached_goal": sum(score >= goal for score in scores),
    }
    if method == RANDOM:
        return found
    found |= {
        "parameters": own[0]["parameters"],
        "environment_steps": own[0]["curve"]["steps"][-1],
        "second_half": asdict(summarise([second_half(run["curve"]) for run in own])),
        "timing": {"cpu_seconds": mean([run["timing"]["cpu_seconds"] for run in own])},
    }
    if own[0]["norm"] is not None:
        proofs = [run["certificates"] for run in own]
        found |= {
            "norm": [min(run["norm"][k] for run in own) for k in (0, 1)],
            "steps": {name: mean([run["steps"][name] for run in own]) for name in own[0]["steps"]},
            "cosine": [min(p["cosine"] for p in each) for each in zip(*proofs, strict=True)],
            "contraction": [
                mean([p["contraction"] for p in each]) for each in zip(*proofs, strict=True)
            ],
            "certified": sum(all(p["ok"] for p in proof) for proof in proofs),
            "unsettled": sum(run["unsettled"] for run in own),
            "relaxations": sum(run["relaxations"] for run in own),
        }
    return found


def second_half(curve: dict[str, list[Any]]) -> float:
    """Mean return of the episodes that ended in the second half of a training; of all of them
    where none did."""
    pairs = [
        (count, mean)
        for count, mean in zip(curve["episodes"], curve["mean_return"], strict=True)
        if count
    ]
    half = len(curve["steps"]) // 2
    late = [p for p in zip(curve["episodes"][half:], curve["mean_return"][half:], strict=True)
            if p[0]]  # fmt: skip
    counted = late or pairs
    if not counted:
        raise InvalidInputError("No episode ended: train longer.")
    return sum(n * mean for n, mean in counted) / sum(n for n, _ in counted)


def _comparisons(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """EP against every other trained policy of its task."""
    found = []
    for task, method in _kinds(runs):
        if method in ("ep", RANDOM) or not _of(runs, task, "ep"):
            continue
        margin = MARGIN * _way(runs, task)
        result = compare(_scores(runs, task, "ep"), _scores(runs, task, method), margin)
        found.append({"task": task, "against": method, **asdict(result)})
    adjusted = holm([each["equivalence_p"] for each in found])
    differing = holm([each["p"] for each in found])
    for each, same, other in zip(found, adjusted, differing, strict=True):
        each |= {"adjusted_equivalence_p": same, "adjusted_p": other}
        each["verdict"] = _compared(each["gap"]["mean"], same, other)
    return found


def _compared(gap: float, same: float | None, other: float | None) -> str:
    if same is not None and same < SIGNIFICANCE:
        return "EQUIVALENT"
    if other is not None and other < SIGNIFICANCE:
        return "BETTER" if gap > 0 else "WORSE"
    return "NOT SHOWN"


def _way(runs: Sequence[Run], task: str) -> float:
    """From what acting at random returns to the goal."""
    return ENVIRONMENTS[task].goal - mean(_scores(runs, task, RANDOM))


def _checks(runs: Sequence[Run], comparisons: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    learning = [task for task in _tasks(runs) if _of(runs, task, "ep")]
    p_values = holm(
        [
            exceeds(
                _scores(runs, task, "ep"), _scores(runs, task, RANDOM), by=0.5 * _way(runs, task)
            )
            for task in learning
        ]
    )
    found = []
    for task, p in zip(learning, p_values, strict=True):
        own = _of(runs, task, "ep")
        norm = min(min(run["norm"]) for run in own)
        refused = sum(not proof["ok"] for run in own for proof in run["certificates"])
        found += [
            check(
                f"{task}: p-value of no more than half of the way to the goal", p, SIGNIFICANCE,
                None if p is None else p < SIGNIFICANCE,
            ),
            check(f"{task}: least recurrent norm", norm, LEAST_NORM, norm >= LEAST_NORM),
            check(f"{task}: certificates refused", refused, 0, refused == 0),
        ]  # fmt: skip
    for each in comparisons:
        shown = {"EQUIVALENT": True, "BETTER": True, "WORSE": False, "NOT SHOWN": None}
        found.append(
            check(
                f"{each['task']}: EP as good as {each['against']}, p-value",
                each["adjusted_equivalence_p"], SIGNIFICANCE, shown[each["verdict"]],
            )
        )  # fmt: skip
    return found
