"""What the tracks compare with is right itself: closed forms, autograd, and tables made by hand."""

from __future__ import annotations

import math
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import toreqprop as teq
from tests.docs.pages import ROOT, blocks
from toreqprop.verify import kinks
from toreqprop.verify.independent import Stack, apart, slopes
from toreqprop.verify.levels import QUICK
from toreqprop.verify.records import Job, perform, verdict_of
from toreqprop.verify.routing import routing
from toreqprop.verify.verdict import Status


def test_a_stack_at_rest_solves_its_own_equation() -> None:
    """One neuron that feeds itself back: s = tanh(0.5 s + 0.3), by bisection."""
    low, high = -1.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if math.tanh(0.5 * middle + 0.3) > middle else (low, middle)
    one = np.ones((1, 1))
    stack = Stack((0.3 * one,), (np.zeros(1),), 1.0, 0.5 * one, (one, np.zeros(1)))
    assert float(stack.relax(one)[0][0, 0]) == pytest.approx(low, abs=1e-12)


def test_without_recurrence_the_contrast_is_backpropagation() -> None:
    """A feed-forward layer: a weak nudge gives autograd's gradient, a strong one does not."""
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(5, 3)), rng.normal(size=5)
    readout = rng.normal(size=(4, 5)), rng.normal(size=4)
    stack = Stack((weight,), (bias,), 1.0, None, readout)
    x, y = rng.normal(size=(6, 3)), rng.integers(0, 4, 6)
    leaves = [torch.tensor(a, requires_grad=True) for a in (weight, bias)]
    hidden = torch.tanh(F.linear(torch.tensor(x), *leaves))
    output = F.linear(hidden, *(torch.tensor(a) for a in readout))
    grads = torch.autograd.grad(F.cross_entropy(output, torch.tensor(y)), leaves)
    exact = dict(zip(("W0", "b0"), (g.numpy() for g in grads), strict=True))
    assert apart(stack.contrast(x, y, 1e-4), exact) < 1e-6
    assert apart(stack.contrast(x, y, 0.5), exact) > 1e-3


def test_slopes_are_those_of_a_parabola_and_leave_it_alone() -> None:
    point = torch.tensor([1.0, -2.0], dtype=torch.float64)
    kept = point.clone()
    direction = torch.tensor([0.0, 1.0], dtype=torch.float64)
    found = slopes(lambda: float((point**2).sum()), [point], [[direction]], 1e-4)
    assert found == pytest.approx([-4.0])
    torch.testing.assert_close(point, kept)


def test_a_strong_nudge_changes_winners_and_a_weak_one_does_not() -> None:
    """Images with flat backgrounds nearly tie: that is where a maximum changes hands."""
    torch.manual_seed(0)
    model = teq.HopfieldConvNet(
        (1, 12, 12), (3, 4), 3, kernel_size=3, pooling=teq.MaxPooling(), on_failure="ignore"
    )
    x = torch.zeros(12, 1, 12, 12)
    x[:, :, 3:7, 4:8] = torch.rand(12, 1, 4, 4)
    strong, weak = kinks.nudged(model, x, torch.arange(12) % 3, (0.3, 1e-5))
    assert strong.windows == weak.windows > 0
    assert weak.changed == 0 < strong.changed
    assert weak.image_cosine > 0.9999
    assert model.gradient == teq.CenteredEP(1e-4)


@pytest.mark.parametrize(
    ("options", "beta"),
    [
        ({"pooling": teq.MaxPooling()}, 1e-4),
        ({"pooling": (teq.MaxPooling(), teq.AveragePooling())}, 0.01),
        ({"pooling": teq.MaxPooling(), "gradient": teq.CenteredEP(0.02)}, 0.02),
    ],
    ids=["kinked", "kinked outside", "asked for"],
)
def test_only_kinks_within_the_relaxation_weaken_the_default_nudge(options, beta) -> None:
    assert teq.HopfieldConvNet((1, 8, 8), (2, 2), 3, **options).gradient == teq.CenteredEP(beta)


def test_routing_reads_attention_that_was_made_by_hand() -> None:
    """Positions decide alone, by a large bias towards the mirrored one; then towards oneself."""
    torch.manual_seed(0)
    model = teq.EquilibriumTransformer(5, 4, width=16, variant="energy", on_failure="ignore")
    tokens = torch.randint(0, 5, (8, 4))
    query, key, bias = model.system_parameters()
    for mirrored, right in ((True, 4), (False, 0)):
        logits = 30 * (torch.eye(4).flip(1) if mirrored else torch.eye(4))
        given = (query, key, logits.expand_as(bias))
        model.system_parameters = lambda given=given: given  # type: ignore[method-assign]
        found = routing(model, tokens)
        assert (found.right, found.length, found.even) == (right, 4, 0.25)
        assert (found.share > 0.99) is mirrored


def test_the_documented_track_passes_and_sees_its_sabotages() -> None:
    (block,) = blocks(Path(ROOT / "docs" / "verification.md"), "python")
    page = types.ModuleType("page")
    exec(compile(block.code, "verification.md", "exec"), vars(page))
    for sabotage in (None, *(s.name for s in page.TRACK.sabotages)):
        record = perform(Job(page.TRACK, QUICK, (42,), sabotage))
        assert record["error"] is None
        expected = Status.PASS if sabotage is None else Status.FAIL
        assert verdict_of(page.TRACK, record).status is expected
