"""Every mistake a user can make gets one sentence that says what to do."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import toreqprop as teq

MODEL = teq.LoopedMLP(4, 6, 2)


@pytest.mark.parametrize(
    ("x", "advice"),
    [
        (torch.tensor([[0.0, float("nan"), 0, 0]]), "nan_to_num"),
        (torch.tensor([[0.0, float("inf"), 0, 0]]), "nan_to_num"),
        (torch.zeros(3, 5), "reshape"),
        (torch.zeros(4), "reshape"),
        (torch.zeros(3, 4, dtype=torch.int64), r"x.to\(torch.float32\)"),
        (torch.zeros(3, 4, dtype=torch.float64), r"x.to\(torch.float32\)"),
        (torch.zeros(0, 4), "at least one"),
        (np.zeros((3, 4), dtype="float32"), "as_tensor"),
    ],
    ids=["nan", "inf", "width", "dims", "integer", "double", "empty", "numpy"],
)
@pytest.mark.parametrize("call", ["__call__", "equilibrium", "energy"])
def test_bad_batches(x: torch.Tensor, advice: str, call: str) -> None:
    with pytest.raises(teq.InvalidInputError, match=advice) as caught:
        getattr(MODEL, call)(x)
    assert "\n" not in str(caught.value)


def test_large_finite_inputs_are_not_mistaken_for_infinite() -> None:
    """The quick check sums the batch, and this sum overflows float32."""
    MODEL(torch.full((2, 4), 3e38))


def test_the_baseline_checks_its_input_too() -> None:
    with pytest.raises(teq.InvalidInputError, match="reshape"):
        teq.BackpropMLP(4, 6, 2)(torch.zeros(3, 5))


@pytest.mark.parametrize(
    ("build", "advice"),
    [
        (lambda: teq.CenteredEP(beta=-1), r"beta must be > 0, got -1\. Typical"),
        (lambda: teq.CenteredEP(beta=0), "beta must be > 0"),
        (lambda: teq.OneSidedEP(beta=float("nan")), "beta must be > 0"),
        (lambda: teq.RandomSignEP(beta=-0.1), "beta must be > 0"),
        (lambda: teq.HolomorphicEP(points=3), "even"),
        (lambda: teq.VectorFieldEP(beta=0), "beta must be > 0"),
        (lambda: teq.ContinualEP(rate=-1), "rate must be >= 0"),
        (lambda: teq.CoupledLearning(eta=0), "eta must be > 0"),
        (lambda: teq.UnrolledGradient(0), "steps must be >= 1"),
        (lambda: teq.UnrolledGradient(5, tol=0), "tol must be > 0"),
        (lambda: teq.LoopedMLP(4, 6, 2, max_steps=0), "max_steps must be >= 1"),
        (lambda: teq.LoopedMLP(4, 6, 2, tol=0), "tol must be > 0"),
        (lambda: teq.LoopedMLP(4, 6, 2, tol=-1e-3), "tol must be > 0"),
        (lambda: teq.LoopedMLP(4, 0, 2), "hidden_features must be >= 1"),
        (lambda: teq.LoopedMLP(4, 6, 2, radius=0), "radius must be > 0"),
        (lambda: teq.LoopedMLP(4, 6, 2, on_failure="hope"), "on_failure"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings(build: Callable[[], object], advice: str) -> None:
    with pytest.raises(teq.InvalidInputError, match=advice):
        build()


def unsettled(on_failure: str) -> teq.LoopedMLP:
    torch.manual_seed(0)
    return teq.LoopedMLP(4, 6, 2, max_steps=2, tol=1e-9, on_failure=on_failure)  # type: ignore[arg-type]


def test_no_convergence_warns_once_per_model_with_figures_and_remedy() -> None:
    x = torch.randn(5, 4)
    for _ in range(2):  # each model gets its own warning
        model = unsettled("warn")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            F.cross_entropy(model(x), torch.zeros(5, dtype=torch.long)).backward()
            model(x)
        assert [w.category for w in caught] == [teq.ConvergenceWarning]
        text = str(caught[0].message)
        assert "residual" in text
        assert "raise max_steps" in text
        assert "e-" in text  # the worst residual, as a number


def test_no_convergence_raises_if_asked() -> None:
    with pytest.raises(teq.ConvergenceError, match="max_steps=2"):
        unsettled("raise")(torch.randn(5, 4))


def test_a_nudged_phase_that_fails_is_not_silent() -> None:
    """The free phase is easy (no input, settled at once); only the nudged ones run out of steps."""
    torch.manual_seed(0)
    model = teq.LoopedMLP(4, 6, 2, max_steps=2, tol=1e-6, on_failure="raise")
    with torch.no_grad():
        model.input.bias.zero_()
        model.recurrent.raw.mul_(10)
    loss = model(torch.zeros(3, 4)).square().sum() + model(torch.zeros(3, 4)).sum()
    with pytest.raises(teq.ConvergenceError, match="nudged phase"):
        loss.backward()


def test_ignore_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unsettled("ignore")(torch.randn(5, 4))


def test_a_model_without_energy_says_so() -> None:
    model = teq.LoopedMLP(4, 6, 2, symmetric=False)
    with pytest.raises(teq.UnsupportedModelError, match="symmetric"):
        model.energy(torch.zeros(2, 4))
