"""Products with wide registers, next to NumPy's in double precision."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from toreqprop.kernels import products, wide_products
from toreqprop.kernels.compiling import compiled

MULTIPLY = compiled(products.multiply)

SHAPES = [
    (1, 1, 1),
    (5, 3, 10),  # fewer columns than a register has, fewer rows than a tile
    (6, 16, 64),
    (13, 50, 70),
    (7, wide_products.DEPTH + 9, 129),  # sums in two parts
    (64, 128, 128),
]


def _wide(dtype: torch.dtype) -> products.Routine:
    """Wide products, on whichever processor: where they are not chosen they are right too."""
    place = wide_products.address(dtype)
    return products.routine(dtype)._replace(wide=place, team=wide_products.team(dtype, True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_product_and_nothing_beside_it(
    dtype: torch.dtype, turned: tuple[bool, bool], shape: tuple[int, int, int]
) -> None:
    rows, inner, columns = shape
    # Rows lie further apart than they are long.
    left = torch.randn(*((inner, rows + 2) if turned[0] else (rows, inner + 2)), dtype=dtype)
    right = torch.randn(*((columns, inner + 3) if turned[1] else (inner, columns + 3)), dtype=dtype)
    out = torch.full((rows, columns + 4), 9.0, dtype=dtype)
    places = left.data_ptr(), right.data_ptr(), out.data_ptr()
    strides = left.shape[1], right.shape[1], out.shape[1]
    MULTIPLY(_wide(dtype), places, shape, strides, turned, 0.5)
    one = left.double().mT[:rows] if turned[0] else left.double()[:, :inner]
    two = right.double().mT[:inner] if turned[1] else right.double()[:, :columns]
    error = (out[:, :columns].double() - 0.5 * one @ two).abs()
    # A sum of n rounded terms is off by n roundings of the sum of their sizes at most.
    allowed = (inner + 1) * torch.finfo(dtype).eps * (0.5 * one.abs() @ two.abs())
    assert (error <= allowed).all()
    assert (out[:, columns:] == 9).all()


@pytest.mark.parametrize("turned", [(False, False), (False, True)])
def test_threads_share_the_columns_of_large_products(turned: tuple[bool, bool]) -> None:
    """And round as one thread does. Two threads, whichever machine this is."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        team = wide_products.team(torch.float32, False)
        if team is None:
            pytest.skip("PyTorch does not show its threads here.")
        rows, inner, columns = 70, 257, 300
        assert rows * inner * columns > wide_products.ALONE
        left = torch.randn(rows, inner)
        right = torch.randn(columns, inner) if turned[1] else torch.randn(inner, columns)
        found = []
        for each in (team, wide_products.team(torch.float32, True)):
            out = torch.empty(rows, columns)
            places = left.data_ptr(), right.data_ptr(), out.data_ptr()
            strides = inner, right.shape[1], columns
            MULTIPLY(_wide(torch.float32)._replace(team=each), places, (rows, inner, columns),
                     strides, turned, 1.0)  # fmt: skip
            found.append(out)
        assert torch.equal(*found)
        assert torch.allclose(found[0], left @ (right.mT if turned[1] else right), atol=1e-3)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_packed_lasts_until_it_is_multiplied(turned: bool) -> None:
    """An array of compiled code ends with the last that is done to it, and an address is nothing.
    Here memory is overwritten when it ends (by the C library of Linux)."""
    program = f"""
import torch
from toreqprop.kernels import products, wide_products
word = wide_products.address(torch.float32), wide_products.team(torch.float32, True)
routine = products.routine(torch.float32)._replace(wide=word[0], team=word[1])
left, right, out = torch.randn(50, 90), torch.randn(90, 90), torch.empty(50, 90)
places = left.data_ptr(), right.data_ptr(), out.data_ptr()
for _ in range(3):
    products.matrix_product(routine, places, (50, 90, 90), (90, 90, 90), (False, {turned}), 1.0)
    assert torch.allclose(out, left @ (right.mT if {turned} else right), atol=1e-3)
"""
    environment = {**os.environ, "MALLOC_PERTURB_": "165"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_a_sum_of_nothing_is_zero() -> None:
    out = np.full((3, 20), 9.0, np.float32)
    places = out.ctypes.data, out.ctypes.data, out.ctypes.data
    MULTIPLY(_wide(torch.float32), places, (3, 0, 20), (20, 20, 20), (False, False), 1.0)
    assert (out == 0).all()


def test_products_can_be_pytorchs() -> None:
    with products.pytorch_products():
        assert products.routine(torch.float32).wide == 0
    assert bool(products.routine(torch.float32).wide) == wide_products.available()


def test_wide_registers_are_used_where_the_library_leaves_them_empty(monkeypatch) -> None:
    """On AMD processors that have them, under MKL; nowhere else."""
    host = wide_products.llvmlite.binding
    for name, wide, mkl, wanted in (
        ("znver5", True, True, True),
        ("znver5", True, False, False),
        ("znver3", False, True, False),
        ("sapphirerapids", True, True, False),
    ):
        monkeypatch.setattr(host, "get_host_cpu_name", lambda name=name: name)
        monkeypatch.setattr(
            host, "get_host_cpu_features", lambda wide=wide: {"avx512f": wide, "fma": True}
        )
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda mkl=mkl: mkl)
        assert wide_products.available.__wrapped__() is wanted
