"""The benchmarks run and return what they promise; nothing here asserts on a time."""

from __future__ import annotations

import json
import sys

import pytest

from toreqprop.bench import memory, scaling, speed
from toreqprop.bench.deq_baseline import deq_available
from toreqprop.bench.memory_probe import peaks

QUICK = speed.Setup(rounds=2, warmup=2)


def test_speed_measures_every_contender_in_one_run():
    with_deq = deq_available()
    table = speed.measure(QUICK, sizes=((16, 64, 24),), against_torchdeq=with_deq)
    (row,) = table.rows
    names = [t.name for t in row.timings]
    assert names[:3] == [speed.BASELINE, speed.OURS, speed.UNROLLED]
    assert len(names) == (5 if with_deq else 3)
    ours = row.of(speed.OURS)
    assert set(ours.steps) == {"free", "nudged"}
    assert max(ours.residual.values()) <= QUICK.tol
    assert ours.gigaflop > 0
    assert row.contraction <= QUICK.radius
    assert row.of(speed.BASELINE).ratio == 1
    assert json.loads(json.dumps(table.as_dict()))["conditions"]["optimizer"].startswith("torch.")


def test_rows_with_784_inputs_see_images_of_that_size():
    x, y = speed.batches((5, 784, 8), seed=42)()
    assert x.shape == (5, 784)
    assert y.shape == (5,)


def test_scaling_figure_is_drawn_from_the_measurements(tmp_path):
    points = tuple(
        scaling.Point(varied, value, 2.0, 1.0, 2.0, 7.0, 0.05)
        for varied in ("hidden size", "batch", "radius")
        for value in (1.0, 2.0)
    )
    paths = scaling.draw(scaling.Scaling(points, {}), tmp_path)
    assert [p.suffix for p in paths] == [".svg", ".png"]
    assert all(p.stat().st_size > 0 for p in paths)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_flat_in_the_steps():
    # With 64 units a step needs 5 MB, and the pages of libraries alone differ by a twentieth of it.
    few, many = peaks("EP", 512, (10, 200), batch=256)
    (unrolled,) = peaks("unrolled", 512, (200,), batch=256)
    # A twentieth is the project's own bound; pages and libraries account for less.
    assert many <= 1.05 * few
    assert unrolled > 5 * many


def test_every_point_of_the_study_is_in_its_curves():
    jobs = memory.measurements()
    found = [{**dict(job.arguments), "peak_mb": dict(job.arguments)["steps"]} for job in jobs]
    curves = memory.assembled(found)
    steps = {m: [p.steps for p in curves.against_steps if p.method == m] for m in memory.METHODS}
    sizes = {m: [p.hidden for p in curves.against_hidden if p.method == m] for m in memory.METHODS}
    assert set(map(tuple, steps.values())) == {memory.STEPS}
    assert set(map(tuple, sizes.values())) == {memory.HIDDEN}
    assert curves.growth("unrolled") == memory.STEPS[-1] / memory.STEPS[0]


def test_memory_figure_is_drawn_from_the_measurements(tmp_path):
    def points(attribute):
        return tuple(
            memory.Point(method, **{"steps": 10, "hidden": 64, attribute: value}, peak_mb=value)
            for method in memory.METHODS
            for value in (10, 20)
        )

    curves = memory.MemoryCurves(points("steps"), points("hidden"))
    assert curves.growth("unrolled") == 2
    assert all(p.stat().st_size > 0 for p in memory.draw(curves, tmp_path))
    plain = json.loads(json.dumps(curves.as_dict()))
    assert plain["growth_from_fewest_to_most_steps"]["TorEqProp"] == 2
