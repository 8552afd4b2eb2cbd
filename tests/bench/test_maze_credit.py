"""How far credit travels: against the inverse of the slope, and trainings with fewer targets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.autograd.functional import jacobian

from toreqprop.bench import maze_credit as study
from toreqprop.bench.mazes import SETUPS, build
from toreqprop.energies import System
from toreqprop.models import EquilibriumMap
from toreqprop.solvers import relax
from toreqprop.tasks.mazes import MARK, distances, mazes


def small(method: str = "ep") -> EquilibriumMap:
    model = build(SETUPS["maze-reach"], method, 0)
    assert isinstance(model, EquilibriumMap)
    return model.double()


def test_credit_is_the_inverse_of_the_slope() -> None:
    """``ds/du = (I − J)⁻¹ σ'``, all of it, in a maze of a few cells."""
    found, model = mazes("maze-reach", 7, 1, seed=3), small()
    x = torch.from_numpy(found.x).double()
    system = System.bind(model.field, x, tuple(p.detach() for p in model.system_parameters()))
    (state,) = relax(system, study.SETTLED).state
    slope = jacobian(lambda s: system.map((s,))[0], state).reshape(state.numel(), -1)
    # σ(u) = 1/(1 + e^(2−4u)) has the slope 4σ(1 − σ).
    steep = torch.diag((4 * state * (1 - state)).flatten())
    moved = torch.linalg.solve(torch.eye(len(slope), dtype=torch.float64) - slope, steep)
    moved = moved.reshape(*state.shape[1:], *state.shape[1:]).sum((0, 3)).abs().numpy()
    cells = np.argwhere(found.open[0])
    by_distance: dict[int, list[float]] = {}
    for r, c in cells:
        image = found.x[0].copy()
        image[MARK] = 0
        image[MARK, r, c] = 1
        apart = distances(image)
        for q, d in np.argwhere(apart >= 0):
            by_distance.setdefault(int(apart[q, d]), []).append(moved[q, d, r, c])
    means = [np.mean(by_distance[d]) for d in sorted(by_distance)]
    expected = np.array(means) / means[0]
    # The nudge is finite: its bias is its square, 1e-8, next to shares of 1e-6 and more.
    assert study.credit(model, found) == pytest.approx(expected, rel=1e-4, abs=1e-9)
    assert expected[1] > 0.01


def test_without_a_kernel_credit_stays_where_it_is() -> None:
    shares = study.credit(small("uncoupled"), mazes("maze-reach", 7, 1, seed=3))
    assert shares[0] == 1
    assert not any(shares[1:])


def test_the_tables_have_every_training(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = replace(
        SETUPS["maze-reach"], updates=8, mazes=32, batch=8, max_steps=20, counts=(2, 2, 2, 1),
        sides=(7, 9, 11, 13),
    )  # fmt: skip
    monkeypatch.setitem(SETUPS, "maze-reach", setup)
    monkeypatch.setattr(study, "SIDE", 9)
    monkeypatch.setattr(study, "COUNT", 1)
    parts = [study.along_training("maze-reach"), *map(study.with_targets, ("all", "near", "far"))]
    found = study.assemble(parts)
    assert [p["update"] for p in found["credit"][0]["points"]] == [0, 1, 2, 4, 8]
    lines = study.render_markdown(found).splitlines()
    assert len(lines) == 2 + len(study.POINTS) + 1 + 2 + 3
    scores = {p["targets"]: p["scores"] for p in found["targets"]}
    assert scores["all"] != scores["near"]  # other targets make another map
