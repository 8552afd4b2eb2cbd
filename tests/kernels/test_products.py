"""Matrix products inside of compiled loops, next to PyTorch's."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("numba")

from toreqprop.kernels import products


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rising", [True, False])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_product_of_some_columns(dtype: torch.dtype, rising: bool, rows: int) -> None:
    weight = torch.randn(7, 4, dtype=dtype)
    left, out = torch.randn(5, 12, dtype=dtype), torch.full((5, 13), 9.0, dtype=dtype)
    inner, outer = (4, 7) if rising else (7, 4)
    places = (3, 2, *weight.shape, rising)
    routine = products.routine(dtype)
    products.product(routine, left.numpy(), weight.data_ptr(), out.numpy(), rows, places)
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
