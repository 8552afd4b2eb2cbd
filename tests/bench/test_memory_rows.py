"""Rows of `toreqprop memory`: a step's own memory is seen, and nothing that was there before."""

from __future__ import annotations

import sys
from dataclasses import asdict

import numpy as np
import pytest

from toreqprop.bench import memory, memory_rows
from toreqprop.bench.speed import OURS, SIZE, UNROLLED
from toreqprop.bench.speed_rows import Network

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="peak memory is measured through /proc"
)


def test_a_row_says_what_its_memory_was_bought_with() -> None:
    """At a batch so large that states decide, what is unrolled keeps one for every step."""
    network = Network("looped", 4096, 64, inputs=64, tol=1e-3)
    found = memory_rows.row(tuple(asdict(network).items()), 0)
    peaks = {each["name"]: each["peak_mb"] for each in found["peaks"]}
    assert found["passed"] == found["certificates"] == 1
    assert 0.94 < found["norm"] < 0.979
    state = 4096 * 64 * 4 / 2**20
    steps = found["steps"]["free"]
    # Each step keeps a state and what tanh needs; the first two may be shared with others.
    assert peaks[UNROLLED] > (steps - 2) * state
    assert peaks[UNROLLED] > peaks[OURS]
    assert 2 * state < peaks[SIZE] < peaks[OURS]


def test_what_a_step_allocates_for_a_while_counts() -> None:
    from toreqprop.bench.memory_probe import peak_of

    def step() -> None:
        for _ in range(3):
            np.ones(8 << 20, np.uint8).sum()

    # Freed between the rounds, and never less than one of them.
    assert 7.5 < peak_of(step) < 20


def test_every_row_is_a_job() -> None:
    jobs = memory.measurements()
    rows = [job for job in jobs if "network" in dict(job.arguments)]
    assert len(rows) == len(memory_rows.wanted())
    assert len({job.label for job in jobs}) == len(jobs)
    assert {job.key for job in rows}
