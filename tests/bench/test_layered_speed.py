"""The speed of stacks: what is timed recurs, and what it was bought with is measured."""

from __future__ import annotations

import torch

from toreqprop.bench import layered_speed
from toreqprop.bench.layered_speed import Network, Setup


def test_couplings_are_at_their_bounds_when_they_are_timed() -> None:
    torch.set_num_threads(1)
    (row,) = layered_speed.measure(Setup(rounds=3, warmup=2), (Network(16, 24, 3, 0.5),))
    assert 0.95 < row.reach <= 1
    assert row.free > 1
    assert row.nudged > 1
    assert row.cosine > 0.99
    assert row.certified
    assert row.ratio > 0
    assert row.fused_ratio > 0
    assert row.as_dict()["network"]["layers"] == 3
