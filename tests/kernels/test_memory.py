"""Peak memory: flat in the steps of a relaxation, and drawn from what was measured."""

from __future__ import annotations

import json
import sys

import pytest

from toreqprop.bench import memory
from toreqprop.bench.memory_probe import peaks


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_flat_in_the_steps():
    # With 64 units a step needs 5 MB, and the pages of libraries alone differ by a twentieth of it.
    few, many = peaks("EP", 512, (10, 200), batch=256)
    (unrolled,) = peaks("unrolled", 512, (200,), batch=256)
    # A twentieth is the project's own bound; pages and libraries account for less.
    assert many <= 1.05 * few
    assert unrolled > 5 * many


def test_every_point_of_the_study_is_in_its_curves():
    jobs = [job for job in memory.measurements() if "steps" in dict(job.arguments)]
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

    curves = memory.MemoryCurves(points("steps"), points("hidden"), ())
    assert curves.growth("unrolled") == 2
    assert all(p.stat().st_size > 0 for p in memory.draw(curves, tmp_path))
    plain = json.loads(json.dumps(curves.as_dict()))
    assert plain["growth_from_fewest_to_most_steps"]["TorEqProp"] == 2
