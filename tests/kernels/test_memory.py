"""Peak memory: flat in the steps of a relaxation, and drawn from what was measured."""

from __future__ import annotations

import json
import sys

import pytest

from toreqprop.bench import memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_flat_in_the_steps():
    # With 64 units a step needs 5 MB, and the pages of libraries alone differ by a twentieth of it.
    few, many = (memory.in_new_process("TorEqProp", steps, 512) for steps in (10, 200))
    unrolled = memory.in_new_process("unrolled", 200, 512)
    # A twentieth is the project's own bound; pages and libraries account for less.
    assert many.peak_mb <= 1.05 * few.peak_mb
    assert unrolled.peak_mb > 5 * many.peak_mb


def test_memory_figure_is_drawn_from_the_measurements(tmp_path):
    def points(attribute):
        return tuple(
            memory.Point(method, **{"steps": 10, "hidden": 64, attribute: value}, peak_mb=value)
            for method in memory.METHODS
            for value in (10, 20)
        )

    curves = memory.MemoryCurves(points("steps"), points("hidden"), points("layers"), {})
    assert curves.growth("unrolled") == 2
    assert all(p.stat().st_size > 0 for p in memory.draw(curves, tmp_path))
    plain = json.loads(json.dumps(curves.as_dict()))
    assert plain["growth_from_fewest_to_most_steps"]["TorEqProp"] == 2
