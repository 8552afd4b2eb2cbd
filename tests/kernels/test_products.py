"""Matrix products inside of compiled loops, next to PyTorch's."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("numba")

from toreqprop.kernels import products
from toreqprop.kernels.compiling import compiled

PRODUCT = compiled(products.product)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rising", [True, False])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_product_of_some_columns(dtype: torch.dtype, rising: bool, rows: int) -> None:
    weight = torch.randn(7, 4, dtype=dtype)
    left, out = torch.randn(5, 12, dtype=dtype), torch.full((5, 13), 9.0, dtype=dtype)
    inner, outer = (4, 7) if rising else (7, 4)
    places = (3, 2, *weight.shape, rising)
    routine = products.routine(dtype)
    PRODUCT(routine, left.numpy(), weight.data_ptr(), out.numpy(), rows, places)
    factor = weight.mT if rising else weight
    wanted = torch.full_like(out, 9.0)
    wanted[:rows, 2 : 2 + outer] = left[:rows, 3 : 3 + inner] @ factor
    # Sums of seven terms, in whichever order; everything else is left as it was.
    assert torch.allclose(out, wanted, rtol=0, atol=50 * torch.finfo(dtype).eps)


def test_scipy_serves_where_torch_does_not_show_its_routine(monkeypatch) -> None:
    def nothing(path: str) -> None:
        raise OSError(path)

    monkeypatch.setattr(products.ctypes, "CDLL", nothing)
    products._address.cache_clear()
    try:
        test_a_product_of_some_columns(torch.float64, True, 5)
        test_a_product_of_some_columns(torch.float32, False, 5)
    finally:
        products._address.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clamped", [True, False])
def test_a_local_gradient_is_that_of_the_difference(dtype: torch.dtype, clamped: bool) -> None:
    """Of ½(p₊q₊ᵀ − p₋q₋ᵀ), formed from the two phases themselves in double precision."""
    from toreqprop.kernels.hebbian import matrix_and_bias

    center, shift = torch.randn(5, 3, dtype=dtype), torch.randn(5, 3, dtype=dtype)
    below, turned = torch.randn(5, 4, dtype=dtype), torch.randn(5, 4, dtype=dtype)
    weight = torch.rand(5, dtype=dtype)
    found = matrix_and_bias((center, shift), (below, None if clamped else turned), weight)
    moved = torch.zeros_like(turned) if clamped else turned
    up, down = (center + shift).double(), (center - shift).double()
    above, under = (below + moved).double(), (below - moved).double()
    heated = weight.double()[:, None]
    wanted = 0.5 * ((heated * up).mT @ above - (heated * down).mT @ under)
    # Sums of five terms of order one, each with a few roundings.
    assert torch.allclose(found[0].double(), wanted, rtol=0, atol=100 * torch.finfo(dtype).eps)
    sums = (heated * shift).sum(0)
    assert torch.allclose(found[1].double(), sums, rtol=0, atol=100 * torch.finfo(dtype).eps)
