"""The comparison of nudges: on a map that contracts every variant is the exact gradient."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product

import pytest
import torch

from toreqprop.bench import maze_nudges as study
from toreqprop.bench.mazes import targets
from toreqprop.gradients import CenteredEP, ImplicitGradient
from toreqprop.models import EquilibriumMap
from toreqprop.solvers import FixedPoint
from toreqprop.tasks.mazes import mazes

FOUND = mazes(study.TASK, 9, 4, seed=0)
X, Y = torch.from_numpy(FOUND.x), targets(FOUND)


def settling(tol: float = 1e-6, max_steps: int = 1000) -> EquilibriumMap:
    model = study.prototype(0)
    with torch.no_grad():
        model.recurrent.raw.mul_(0.3)
    model.solver = FixedPoint(tol=tol, max_steps=max_steps)
    return model


def exact() -> torch.Tensor:
    model = settling()
    model.gradient = ImplicitGradient()
    return study.gradient(model, X, Y)


@pytest.mark.parametrize("start", study.STARTS)
@pytest.mark.parametrize("normalised", [True, False])
def test_where_phases_settle_all_variants_agree(normalised: bool, start: str) -> None:
    model, reference = settling(), exact()
    model.gradient = study.Contrast(0.02, normalised, start, unit=100.0)
    found = study.gradient(model, X, Y)
    # Chained phases are subtracted in single precision, and the bias is O(β²).
    assert torch.cosine_similarity(found, reference, dim=0) > 0.999
    assert float(found.norm() / reference.norm()) == pytest.approx(1, abs=0.02)


def test_the_variant_of_one_size_from_the_free_state_is_centred_ep() -> None:
    found = []
    for estimator in (CenteredEP(0.01), study.Contrast(0.01, True, "free", 1.0)):
        model = settling()
        model.gradient = estimator
        found.append(study.gradient(model, X, Y))
    assert torch.equal(*found)


def test_chained_phases_that_stop_early_are_wrong() -> None:
    """What the second phase has not forgotten of the first is no part of a gradient."""
    model, reference = settling(max_steps=2), exact()
    model.gradient = study.Contrast(0.02, True, "chained", 1.0)
    chained = torch.cosine_similarity(study.gradient(model, X, Y), reference, dim=0)
    model.gradient = study.Contrast(0.02, True, "free", 1.0)
    free = torch.cosine_similarity(study.gradient(model, X, Y), reference, dim=0)
    assert chained < free


def test_the_table_has_a_row_for_each_nudge() -> None:
    compared = [
        asdict(study.Compared(0, n, start, beta, tol, steps, 0.5, 1.0))
        for n, start, beta, (tol, steps) in product(
            (True, False), study.STARTS, study.STRENGTHS, study.STOPS
        )
    ]
    lines = study.render_markdown({"points": [{"compared": compared}]}).splitlines()
    assert len(lines) == 2 + 2 * len(study.STARTS) * len(study.STRENGTHS)
    assert "0.50 (0.50)" in lines[2]
