"""Shifts that move along conjugate directions: sooner there, and by the same measure."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from toreqprop.kernels import compiled_available, get_kernel, reference

BETA, TOL = 0.01, 5e-3


def problem(norm: float, hidden: int = 64, batch: int = 8) -> tuple[np.ndarray, ...]:
    """A symmetric weight of that norm, a drive and a direction."""
    rng = np.random.default_rng(0)
    raw = reference.symmetrise(rng.standard_normal((hidden, hidden)))
    weight = raw * (norm / np.linalg.norm(raw, 2))
    drive, push = rng.standard_normal((2, batch, hidden)) * np.array([[[0.3]], [[BETA]]])
    return weight, drive, push


def pair(norm: float, tol: float, conjugate: bool = True, steps: int = 500) -> reference.Pair:
    weight, drive, push = problem(norm)
    free = reference.relax(weight, drive, tol=1e-14, max_steps=5000)
    return reference.relax_pair(
        weight, drive, push, free.state, free.product, tol=tol, max_steps=steps, conjugate=conjugate
    )


@pytest.mark.parametrize("norm", [0.9, 0.97])
def test_sooner_and_closer_than_plain_iteration(norm: float) -> None:
    exact = pair(norm, 1e-13, conjugate=False, steps=5000).shift
    for tol in (TOL, 1e-3):
        quick, plain = pair(norm, tol), pair(norm, tol, conjugate=False)
        assert quick.converged
        assert plain.converged
        assert quick.steps < plain.steps
        far = [np.linalg.norm(found.shift - exact) for found in (quick, plain)]
        assert far[0] < far[1]


@pytest.mark.parametrize("tol", [TOL, 1e-5, 1e-9])
def test_ends_by_the_nonlinear_equations_of_both_phases(tol: float) -> None:
    weight, drive, push = problem(0.95)
    found = pair(0.95, tol)
    assert found.converged
    ends = []
    for sign in (1, -1):
        state = found.center + sign * found.shift
        ends.append(np.tanh(drive - sign * push + state @ weight) - state)
    odd = reference.norm(0.5 * (ends[0] - ends[1])) / reference.norm(found.shift)
    even = reference.norm(0.5 * (ends[0] + ends[1])) / reference.norm(found.center)
    # What is returned is the image of what was measured: its own residual is at most ‖W‖ of that.
    assert (odd <= reference.NUDGE_SLACK * tol).all()
    assert (even <= tol).all()


def test_no_linear_solution_is_taken_for_the_pair() -> None:
    """At a nudge so strong that both differ by more than the tolerance, the pair is found."""
    weight, drive, push = problem(0.9)
    free = reference.relax(weight, drive, tol=1e-14, max_steps=5000)
    strong = 30 * push
    found = reference.relax_pair(
        weight, drive, strong, free.state, free.product, tol=1e-10, max_steps=500
    )
    slope = 1 - free.image**2
    linear = np.stack(
        [
            np.linalg.solve(np.eye(len(weight)) - d[:, None] * weight, -d * p)
            for d, p in zip(slope, strong, strict=True)
        ]
    )
    up, down = (
        reference.relax(weight, drive - sign * strong, tol=1e-13, max_steps=5000).image
        for sign in (1, -1)
    )
    wanted = 0.5 * (up - down)
    assert found.converged
    assert np.abs(found.shift - wanted).max() < 1e-8 * np.abs(wanted).max()
    assert np.abs(linear - wanted).max() > 1e-3 * np.abs(wanted).max()


@pytest.mark.skipif(not compiled_available(), reason="needs Numba")
@pytest.mark.parametrize("norm", [0.95, 1.6])
def test_compiled_code_does_the_same_where_curvature_is_not_positive(norm: float) -> None:
    weight, drive, push = problem(norm)
    free = reference.relax(weight, drive, tol=1e-9, max_steps=3)
    images: list[tuple[np.ndarray, np.ndarray]] = []
    limits = {"tol": 1e-7, "max_steps": 12, "contraction": None}
    wanted = reference.relax_pair(
        weight, drive, push, free.state, free.product, record=images, **limits
    )
    kernel = get_kernel("numba")
    assert kernel is not None
    seen: list[tuple[torch.Tensor, ...]] = []
    tensors = [torch.from_numpy(a) for a in (weight, drive, push, free.state, free.product)]
    found = kernel.relax_pair(*tensors[:3], (tensors[3], tensors[4]), record=seen, **limits)
    assert found.steps == wanted.steps
    for mine, theirs in zip(seen, images, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a.numpy(), b, atol=1e-11)
