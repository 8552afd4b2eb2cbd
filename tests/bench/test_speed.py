"""The speed table: what is timed recurs, what it was bought with is measured; no time is judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from toreqprop.bench import parallel_speed, speed, speed_rows, time_to
from toreqprop.bench.deq_baseline import METHODS, deq_available
from toreqprop.bench.speed_rows import KINDS, QUICK, ROWS, Network
from toreqprop.cli import speed as command
from toreqprop.cli.app import app
from toreqprop.errors import InvalidInputError
from toreqprop.kernels import has_wide_products

SHORT = speed.Setup(rounds=3, warmup=2, seconds=0.1)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def measured(network: Network) -> speed.Row:
    (row,) = speed.measure(SHORT, (network,)).rows
    return row


def test_a_loop_at_its_bound_is_held_against_everything_the_table_promises() -> None:
    row = measured(Network("looped", 16, 24, inputs=64))
    names = [t.name for t in row.timings]
    plain = [speed.SIZE, speed.SIZE + speed.FUSED, speed.DEPTH, speed.DEPTH + speed.FUSED]
    others = [f"torchdeq {m}" for m in METHODS] if deq_available() else []
    runs = [speed.AS_IT_RUNS] if has_wide_products() else []
    assert names == [speed.OURS, *runs, speed.DEFAULT, *plain, speed.UNROLLED, *others]
    # The estimate comes from below, and its margin is what is left to the radius.
    assert 0.94 < row.norm < 0.979
    assert 0.96 < row.reach <= 1
    assert row.steps["free"] > 2
    assert row.residual <= row.network.tol
    assert row.of(speed.OURS).cpu_ratio == 1
    # Where products are PyTorch's anyway there is one figure, else two for everybody.
    assert {t.as_it_runs is None for t in row.timings} == {not runs}
    if runs:
        assert row.of(speed.AS_IT_RUNS).as_it_runs == 1
    assert 0 <= row.passed <= row.certificates == 3  # one between any two of three rounds
    assert 0.9 < row.norm_ratio < 1.1
    # As many parameters as two hidden layers, but for one bias.
    assert row.of(speed.SIZE).parameters - row.of(speed.OURS).parameters == 24
    assert row.of(speed.DEPTH).parameters < row.of(speed.SIZE).parameters
    assert row.rounds == 3


def test_where_the_twin_has_the_same_size_and_depth_it_is_timed_once() -> None:
    row = measured(Network("layered", 8, 16, 3, inputs=64, feedback=0.25))
    assert row.of(speed.DEPTH) is row.of(speed.SIZE)
    assert row.of(speed.SIZE).parameters == row.of(speed.OURS).parameters
    assert row.norm == pytest.approx(0.95, rel=0.02)  # the coupling's own, whatever the feedback
    assert 0.96 < row.reach <= 1
    assert row.cosine > 0.99
    assert json.loads(json.dumps(row.network.__dict__))["layers"] == 3


@pytest.mark.parametrize(
    "network",
    [
        Network("convolutional", 4, 4, 2, feedback=0.1, pooling="max"),
        Network("transformer", 4, 16, 2, feedback=0.2),
    ],
    ids=lambda n: n.kind,
)
def test_other_kinds_have_twins_of_about_their_size(network: Network) -> None:
    built = speed_rows.build(network, 0)
    ours, twin = (speed_rows.parameters(make()) for make in (built.model, built.same_size))
    assert abs(ours - twin) < 0.1 * ours
    model = built.model()
    assert speed_rows.true_norms(model)
    x, _ = built.draw()
    assert model(x).shape == built.same_size()(x).shape


@pytest.mark.parametrize("pooling", ["average", "max"])
def test_plain_convolutions_are_also_computed_as_cleverly_as_ours(pooling: str) -> None:
    """The same map, with averages folded into kernels and channels next to each other."""
    built = speed_rows.build(Network("convolutional", 3, 4, 2, feedback=0.1, pooling=pooling), 0)
    assert built.rearranged is not None
    torch.manual_seed(0)
    plain = built.same_size()
    torch.manual_seed(0)
    clever = built.rearranged()
    x, y = built.draw()
    torch.testing.assert_close(clever(x), plain(x), rtol=1e-4, atol=1e-5)
    gradients = []
    for twin in (plain, clever):
        torch.nn.functional.cross_entropy(twin(x), y).backward()
        gradients.append([p.grad for p in twin.parameters()])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-6)


def test_every_row_can_be_built_and_the_quick_ones_are_of_the_same_kinds() -> None:
    assert {n.kind for n in ROWS} == set(KINDS)
    assert max(n.width for n in ROWS) == 4096
    assert max(n.layers for n in ROWS) == 16
    assert len(set(ROWS)) == len(ROWS)
    assert {n.kind for n in QUICK} <= set(KINDS)
    with pytest.raises(InvalidInputError, match="no kind of network"):
        speed_rows.build(Network("twisted", 4, 4), 0)


def test_images_have_the_size_of_the_row() -> None:
    x, y = speed_rows.images(Network("looped", 5, 8), 42)()
    assert x.shape == (5, 784)
    assert y.shape == (5,)


def test_the_file_keeps_rows_of_other_kinds_and_other_studies(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    one, other = (json.loads(json.dumps({"network": n.__dict__})) for n in (ROWS[0], ROWS[-1]))
    command._keep(path, {"rows": [{**other, "norm": 1}], "conditions": {}})
    command._keep(path, {"training": {"ratio": {}}})
    command._keep(path, {"rows": [{**one, "norm": 2}], "conditions": {}})
    found = json.loads(path.read_text())
    assert [row["norm"] for row in found["rows"]] == [2, 1]
    assert found["training"] == {"ratio": {}}


def test_the_command_refuses_what_it_does_not_know() -> None:
    for options in (["--kind", "twisted"], ["--training", "--parallel"]):
        assert CliRunner().invoke(app, ["speed", *options]).exit_code == 2


def test_time_to_a_goal_is_of_held_out_training_images() -> None:
    setup = time_to.Setup(
        "digits", full=False, goal=0.8, width=16, held_out=200, lengths=(1, 6, 9), searched=4,
        candidates=((1e-9, 0.0), (3e-3, 0.0)), batch=64, search_seeds=(1,), seeds=(42,),
    )  # fmt: skip
    found = time_to.study(setup)
    searched = [arm for arm in time_to.ARMS if arm != time_to.SAME_PRODUCTS]
    assert len(found.search) == 2 * len(searched)
    for arm in time_to.ARMS:
        *short, last = [r for r in found.runs if r.arm == arm]
        assert last.reached
        assert not any(r.reached for r in short)  # the shortest that gets there counts
        assert found.seconds(arm) == last.seconds > 0
        assert last.rate == 3e-3  # the other one learns nothing
        assert last.validation >= 0.8
        assert last.test is not None
    assert all(run.test is None for run in found.search)  # the test set chooses nothing
    ours = next(r for r in found.runs if r.arm == time_to.OURS and r.reached)
    assert ours.norm is not None
    assert ours.norm < 0.979 / setup.feedback**0.5
    assert [proof["ok"] for proof in ours.certificates] == [True, True]
    plain = found.as_dict()
    assert plain["ratio"][time_to.OURS] == 1
    missed = time_to.Study(setup, (), tuple(r for r in found.search if r.rate == 1e-9))
    assert missed.as_dict()["ratio"][time_to.TWO] is None


def test_the_search_goes_by_all_its_seeds() -> None:
    setup = time_to.Setup(candidates=((1.0, 0.0), (2.0, 0.0)))
    scores = {1.0: (0.9, 0.5, 0.5), 2.0: (0.8, 0.8, 0.8)}  # the first is best on one seed alone
    tried = [
        time_to.Run(time_to.OURS, rate, 0.0, seed, False, 5, 1.0, 1.0, score, None)
        for rate, found in scores.items()
        for seed, score in enumerate(found)
    ]
    assert time_to.best_of(setup, time_to.OURS, tried) == (2.0, 0.0)


def test_processes_share_a_batch() -> None:
    points = parallel_speed.measure((8,), (16,), rounds=3, arms=(time_to.LOOPED,))
    assert [(p.processes, p.threads) for p in points] == [(1, 1), (1, 2), (2, 1)]
    assert points[0].speed_up == 1
    assert all(p.milliseconds > 0 for p in points)
