"""Learning from reward: advantages by hand, the same curve twice, resuming, gradients, verdicts."""

from __future__ import annotations

import gc
import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from toreqprop.bench.reward import report, study, trial
from toreqprop.bench.reward.collecting import Collector, advantages, training_seeds
from toreqprop.bench.reward.policies import RADIUS, build, recurrent_norm
from toreqprop.bench.reward.ppo import Batch, Recipe, beyond, policy_loss, train
from toreqprop.bench.reward.verdict import judged_runs
from toreqprop.certificate.estimate import in_double
from toreqprop.errors import InvalidInputError
from toreqprop.evidence import Listener
from toreqprop.evidence.study import KEPT
from toreqprop.gradients import CenteredEP, ImplicitGradient
from toreqprop.models import EquilibriumModel

ROOT = Path(__file__).parents[2]
SMALL = Recipe(3e-3, updates=2, environments=4, length=24, epochs=1, batch=32, hidden=8)


def test_advantages_are_those_computed_by_hand() -> None:
    """Two environments: one ends of its own accord at the second step, one by the clock."""
    reward = torch.tensor([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    value = torch.tensor([[10.0, 10.0], [20.0, 20.0], [30.0, 30.0], [40.0, 40.0]])
    terminated = torch.tensor([[False, False], [True, False], [False, False]])
    over = torch.tensor([[False, False], [True, True], [False, False]])
    found = advantages(reward, value, terminated, over, discount=0.5, trace=0.5)
    ended = [1 + 10 - 10 + 0.25 * (2 - 20), 2 - 20, 4 + 20 - 30]
    cut = [1 + 10 - 10 + 0.25 * (2 + 15 - 20), 2 + 15 - 20, 4 + 20 - 30]
    assert found.T.tolist() == [ended, cut]


def test_what_is_beyond_the_clip_has_no_gradient() -> None:
    logits = torch.zeros(2, 2, requires_grad=True)
    half = torch.tensor(0.5).log()
    batch = Batch(
        torch.zeros(2, 1),
        torch.tensor([0, 0]),
        torch.stack([half - 1, half]),  # the first is e times as likely as it was
        torch.tensor([1.0, 3.0]),
        torch.zeros(2),
    )
    loss = policy_loss(logits, batch, clip=0.2, entropy=0.0)
    loss.backward()
    assert loss.item() == pytest.approx(-(1.2 + 3.0) / 2)
    assert logits.grad is not None
    assert logits.grad.tolist() == [[0.0, 0.0], [-0.75, 0.75]]  # −A/2·∂log p, p = ½


def test_every_reward_is_counted_once_and_resets_are_no_steps() -> None:
    collector = Collector("CartPole-v1", 3, seed=5)
    act = lambda seen: (torch.zeros(len(seen), dtype=torch.int64), torch.zeros(len(seen)))  # noqa: E731
    played = collector.collect(act, 60)
    # Pushed to one side the pole falls: every step is worth one, also the last.
    assert len(collector.returns) == int(played.over.sum()) > 9
    last = [int(column.nonzero().max()) for column in played.over.T]
    counted = sum(int(played.real[: end + 1, k].sum()) for k, end in enumerate(last))
    assert sum(collector.returns) == counted
    assert torch.equal(~played.real[1:], played.over[:-1])
    assert not played.terminated[~played.real].any()
    after = played.observation[:-1][~played.real]
    assert (after[:, 2].abs() > 0.2).all()  # the fallen pole is seen, and asked about
    collector.close()


def test_evaluations_start_where_no_training_does() -> None:
    training: set[int] = set()
    evaluation: set[int] = set()
    for seed in (*range(10), *study.SEARCH_SEEDS):
        training |= set(training_seeds(seed, 16))
        starts = np.random.SeedSequence((seed, 2)).spawn(2)[0]  # as `tasks.control.play` draws them
        evaluation |= {int(each) for each in starts.generate_state(trial.EPISODES)}
    assert len(training) == 12 * 16
    assert not training & evaluation


def curve(method: str, seed: int) -> tuple[list[float], list[Tensor]]:
    scale = torch.tensor(trial.ENVIRONMENTS["cartpole"].scale)
    policy, value = build(method, 4, 8, 2, seed), build("same-depth", 4, 8, 1, seed)
    updates = list(train(policy, value, "CartPole-v1", scale, SMALL, seed))
    return [r for u in updates for r in u.returns], [p.detach() for p in policy.parameters()]


@pytest.mark.parametrize("method", ["ep", "same-size"])
def test_a_seed_gives_the_same_curve_twice(method: str) -> None:
    first, weights = curve(method, 3)
    torch.rand(7)  # nothing comes from the global generator
    second, again = curve(method, 3)
    assert first == second
    assert len(first) > 4
    assert all(torch.equal(a, b) for a, b in zip(weights, again, strict=True))
    assert curve(method, 4)[0] != first


def test_the_policy_gradient_of_ep_is_the_implicit_one() -> None:
    torch.manual_seed(0)
    model = build("ep", 6, 32, 3, seed=0)
    assert isinstance(model, EquilibriumModel)
    norm = recurrent_norm(model)
    assert norm is not None
    assert 0.95 * RADIUS < norm <= RADIUS  # it recurs from the first step on
    action, log_probability = torch.randint(0, 3, (128,)), torch.full((128,), 1 / 3).log()
    batch = Batch(
        torch.randn(128, 6), action, log_probability, torch.randn(128), torch.zeros(128)
    )  # fmt: skip

    def gradient(estimator: Any) -> dict[str, Tensor]:
        model.gradient = estimator
        model.zero_grad()
        policy_loss(model(batch.observation), batch, 0.2, 0.01).backward()
        return {n: p.grad.clone().flatten() for n, p in model.named_parameters()}  # type: ignore[union-attr]

    own, exact = gradient(CenteredEP()), gradient(ImplicitGradient())
    for name, found in own.items():
        assert float(torch.cosine_similarity(found, exact[name], 0)) > 0.999, name
    model.gradient = CenteredEP()
    proof = trial.certified(model, batch, SMALL)
    assert proof["ok"]
    model.gradient = replace(CenteredEP(), beta=20.0)
    assert not trial.certified(model, batch, SMALL)["ok"]


def test_a_ratio_at_the_clip_is_on_the_side_the_policy_is_on() -> None:
    """Between the policy's own probability and the exact one, with a large advantage."""
    torch.manual_seed(0)
    model = build("ep", 6, 32, 3, seed=0)
    assert isinstance(model, EquilibriumModel)
    seen, action = torch.randn(128, 6), torch.randint(0, 3, (128,))
    exact = in_double(model, 1e-12, 5000)
    with torch.no_grad():
        model.readout.weight.mul_(100)  # type: ignore[union-attr, operator]
        exact.readout.weight.mul_(100)  # type: ignore[union-attr, operator]
        one, two = (
            m(x).log_softmax(-1).double().gather(1, action[:, None])[:, 0]
            for m, x in ((model, seen), (exact, seen.double()))
        )
    before = one.clone()
    worst = int((one - two).abs().argmax())
    before[worst] = 0.5 * (one + two)[worst] - torch.tensor(SMALL.clip).double().neg().log1p()
    advantage = torch.randn(128)
    advantage[worst] = -100.0
    batch = Batch(seen, action, before.float(), advantage, torch.zeros(128))
    with torch.no_grad():
        sides = [bool(beyond(m(x), batch, SMALL.clip)[worst]) for m, x in (
            (model, seen), (exact, seen.double())
        )]  # fmt: skip
    assert sides[0] != sides[1]
    assert trial.certified(model, batch, SMALL)["ok"]


def test_what_is_certified_has_the_slope_of_the_loss() -> None:
    torch.manual_seed(0)
    logits = torch.randn(64, 3, requires_grad=True)
    batch = Batch(
        torch.zeros(64, 1), torch.randint(0, 3, (64,)), torch.randn(64) - 1.5, torch.randn(64),
        torch.zeros(64),
    )  # fmt: skip
    far = beyond(logits, batch, 0.2)
    assert 5 < int(far.sum()) < 59
    counted = replace(batch, advantage=~far * batch.advantage)
    found = torch.autograd.grad(policy_loss(logits, counted, float("inf"), 0.01), logits)[0]
    torch.testing.assert_close(
        found, torch.autograd.grad(policy_loss(logits, batch, 0.2, 0.01), logits)[0]
    )


class _StoppedError(Exception):
    pass


class _StopsAfterOne(Listener[Any]):
    def finished(self, job: Any, record: Any) -> None:
        raise _StoppedError


def test_a_study_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(**options: Any) -> dict[str, Any]:
        return study.run_reward(
            tmp_path, tasks=["cartpole"], methods=["ep", "same-depth"], seeds=1,
            **{"updates": 2, **options},
        )  # fmt: skip

    rates = tmp_path / "rates.json"
    monkeypatch.setattr(study, "RATES", rates)
    with pytest.raises(InvalidInputError, match="--search"):
        run()
    rates.write_text(json.dumps({"cartpole": {"ep": 3e-3, "same-depth": 3e-3}}))
    monkeypatch.setattr(trial, "EPISODES", 5)
    monkeypatch.setattr(trial, "CERTIFIED", 32)
    with pytest.raises(_StoppedError):
        run(listener=_StopsAfterOne())
    found = run()
    assert found["timing"]["reused"] == 1
    assert found["verdict"] != "PASS"  # one seed shows nothing, and two updates teach little
    assert not (tmp_path / "reward.json").exists()  # a part never takes the place of the whole
    monkeypatch.setattr(trial, "trained", lambda **_: pytest.fail("trained again"))
    assert run()["runs"] == found["runs"]
    ep = found["runs"][0]
    assert len(ep["certificates"]) == 3  # at first, amid, at the end
    assert min(ep["norm"]) > 0.8
    assert all(count > 1 for count in ep["steps"].values())
    for lines in (report.table_lines, report.gap_lines, report.relaxation_lines):
        assert len(lines(found)) > 2
    report.curves_figure(found)
    assert not run(keep=True)["carried"]  # what this code has made comes first
    shutil.rmtree(tmp_path / KEPT)
    monkeypatch.setattr(trial, "at_random", trial.trained)
    kept = run(keep=True)
    assert kept["runs"] == found["runs"]
    assert [each["commit"] for each in kept["carried"]] == 3 * [found["commit"]]
    with pytest.raises(pytest.fail.Exception, match="trained again"):
        run(keep=True, updates=3)  # settings that the file does not have


def test_a_search_of_one_task_leaves_the_other_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = tmp_path / "rates.json"

    def search(late: float, **options: Any) -> dict[str, Any]:
        curve = {"steps": [8, 16], "episodes": [1, 1], "mean_return": [late, late]}
        monkeypatch.setattr(
            trial, "trained", lambda **given: {"curve": curve, "mean_return": given["seed"]}
        )
        return study.run_search(tmp_path, rates=rates, fresh=True, **options)

    both = search(1.0)
    found = search(2.0, tasks=["cartpole"])
    assert not both["carried"]
    assert {t["task"]: t["second_half"] for t in found["trials"]} == {"cartpole": 2, "acrobot": 1}
    assert len(found["trials"]) == len(both["trials"])
    assert [each["commit"] for each in found["carried"]] == 18 * [both["commit"]]
    assert found["chosen"] == json.loads(rates.read_text()) == both["chosen"]


def test_seeds_of_the_search_give_no_results(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="chose the rates"):
        study.run_reward(tmp_path, first_seed=995, seeds=10)


def test_rates_are_those_the_search_chose() -> None:
    path = ROOT / "results" / "reward_search.json"
    assert path.exists() == study.RATES.exists()  # no rate without a search
    if not path.exists():
        pytest.skip("toreqprop reward --search has not been run yet")
    found = json.loads(path.read_text())
    assert study.choose(found["trials"]) == found["chosen"] == json.loads(study.RATES.read_text())
    kinds = Counter((t["task"], t["method"]) for t in found["trials"])
    assert set(kinds.values()) == {len(study.GRID) * len(study.SEARCH_SEEDS)}  # alike for all


def runs(ep: list[float], plain: list[float], **changed: Any) -> list[dict[str, Any]]:
    """Ten seeds of made-up runs."""
    rows: list[dict[str, Any]] = []
    proof = {"ok": True, "cosine": 1.0, "contraction": 0.8}
    for seed in range(10):
        common = {
            "task": "cartpole", "seed": seed, "parameters": 9, "timing": {"cpu_seconds": 1.0},
            "curve": {"steps": [8], "episodes": [1], "mean_return": [9.0 + seed]},
        }  # fmt: skip
        looped = {
            "norm": [0.87, 0.87], "steps": {"free": 9.0}, "certificates": [proof, proof],
            "unsettled": 0, "relaxations": 5,
        }  # fmt: skip
        rows += [
            {**common, "method": "ep", "mean_return": ep[seed], **looped, **changed},
            {**common, "method": "same-size", "mean_return": plain[seed], "norm": None},
            {**common, "method": "random", "mean_return": 22.0 + 0.1 * seed},
        ]
    return rows


GOOD = [490.0 + s for s in range(10)]
REFUSED = {"ok": False, "cosine": 0.5, "contraction": 0.8}


@pytest.mark.parametrize(
    ("ep", "plain", "changed", "verdict"),
    [
        (GOOD, GOOD[::-1], {}, "PASS"),
        ([g - 60 for g in GOOD], GOOD, {}, "FAIL"),  # worse than backprop
        ([22.0 + s for s in range(10)], [23.0 + s for s in range(10)], {}, "FAIL"),  # chance
        (GOOD, GOOD[::-1], {"norm": [0.87, 0.2]}, "FAIL"),  # hardly recurs
        (GOOD, GOOD[::-1], {"certificates": [REFUSED, REFUSED]}, "FAIL"),
        ([500.0, 440.0] * 5, [440.0, 500.0, 500.0, 440.0, 470.0] * 2, {}, "NOT SHOWN"),
    ],
)
def test_the_verdict_can_fail(
    ep: list[float],
    plain: list[float],
    changed: dict[str, Any],
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gc, "collect", lambda: 0)  # statsmodels does at every call, for long
    found = judged_runs(runs(ep, plain, **changed))
    assert found["verdict"] == verdict, found["checks"]


def test_the_rate_with_the_best_late_returns_is_chosen() -> None:
    trials = [
        {"task": "a", "method": "ep", "rate": rate, "seed": seed, "second_half": late}
        for rate, both in ((1e-3, (5.0, 9.0)), (3e-3, (8.0, 8.0)))
        for seed, late in enumerate(both)
    ]
    assert study.choose(trials) == {"a": {"ep": 3e-3}}
    halves = {"steps": [1, 2, 3, 4], "episodes": [9, 0, 1, 3], "mean_return": [0, None, 8.0, 4.0]}
    assert study.second_half(halves) == 5.0
