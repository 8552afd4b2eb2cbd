"""Where phases of stacks begin: what comes back to a layer, summed to its end."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from toreqprop.kernels.chain_ahead import LEAST, SINGULAR, settle_ahead, shift_ahead
from toreqprop.kernels.compiling import compiled
from toreqprop.kernels.products import routine

GAMMA, ROWS, BELOW, ABOVE = 0.5, 4, 12, 9


def _coupling(values: list[float], rest: float) -> tuple[torch.Tensor, np.ndarray, torch.Tensor]:
    """A matrix with these singular values and all others ``rest``; what is known of it, and both
    kinds of vectors, those above first."""
    torch.manual_seed(0)
    above, _ = torch.linalg.qr(torch.randn(ABOVE, ABOVE, dtype=torch.float64))
    below, _ = torch.linalg.qr(torch.randn(BELOW, ABOVE, dtype=torch.float64))
    singular = torch.tensor(values + [rest] * (ABOVE - len(values)), dtype=torch.float64)
    slow = np.zeros(SINGULAR + len(values))
    slow[:SINGULAR] = len(values), rest**2 * (ABOVE - len(values))
    slow[SINGULAR:] = values
    return (above * singular) @ below.mT, slow, above[:, : len(values)].mT.contiguous(), below


def _layers() -> np.ndarray:
    return np.zeros((ROWS, BELOW + ABOVE))


@pytest.mark.parametrize("size", [1e-4, 0.3])
def test_a_layer_begins_where_it_will_be(size: float) -> None:
    """Exactly, where neurons are linear and all of the coupling is known; near it, where not."""
    weight, slow, _, below = _coupling([1.1, 1.0, 0.7], 0.0)
    right = below[:, :3].mT.contiguous()
    drive = size * torch.randn(ROWS, BELOW, dtype=torch.float64)
    up, down, out = _layers(), _layers(), _layers()
    up[:, :BELOW] = drive.numpy()
    compiled(settle_ahead)(
        routine(drive.dtype), up, np.zeros(BELOW), (0, BELOW, BELOW + ABOVE), slow,
        right.data_ptr(), GAMMA, ROWS, down, out,
    )  # fmt: skip
    exact = torch.tanh(drive)
    for _ in range(400):
        exact = torch.tanh(drive + GAMMA * torch.tanh(exact @ weight.mT) @ weight)
    error = (torch.from_numpy(out[:, :BELOW]) - exact).norm() / exact.norm()
    plain = (torch.tanh(drive) - exact).norm() / exact.norm()
    # Of slopes taken from tanh(u) an error of the order of u² is left.
    assert error < (1e-6 if size < 0.01 else 0.3 * plain)


@pytest.mark.parametrize("rest", [0.0, 0.6])
def test_the_top_of_a_shift_begins_with_what_comes_back(rest: float) -> None:
    """Exactly, where all slopes are one and what is not known of the coupling is all alike."""
    weight, slow, left, _ = _coupling([1.1, 0.9], rest)
    begun = torch.randn(ROWS, ABOVE, dtype=torch.float64)
    shift, down = _layers(), _layers()
    shift[:, BELOW:] = begun.numpy()
    compiled(shift_ahead)(
        routine(begun.dtype), _layers(), (0, BELOW, BELOW + ABOVE), slow, left.data_ptr(), GAMMA,
        ROWS, shift, down,
    )  # fmt: skip
    around = GAMMA * weight @ weight.mT
    exact = begun @ torch.linalg.inv(torch.eye(ABOVE, dtype=torch.float64) - around)
    found = torch.from_numpy(down[:, BELOW:])
    assert torch.allclose(found, exact - begun, rtol=1e-10, atol=1e-12)


def test_next_to_a_bifurcation_it_is_no_guess() -> None:
    """A loop that would not end is summed as far as `LEAST` says."""
    _, slow, left, _ = _coupling([1.6], 0.0)
    shift, down = _layers(), _layers()
    shift[:, BELOW:] = left.numpy()
    compiled(shift_ahead)(
        routine(left.dtype), _layers(), (0, BELOW, BELOW + ABOVE), slow, left.data_ptr(), GAMMA,
        ROWS, shift, down,
    )  # fmt: skip
    assert np.allclose(down[:, BELOW:], GAMMA * 1.6**2 / LEAST * left.numpy())
