"""Compiled functions of tensors and pairs, next to PyTorch's in double precision."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

pytest.importorskip("numba")

from toreqprop.energies import Tanh
from toreqprop.energies.attention import softmax, upwards
from toreqprop.energies.pairs import softmax_pair
from toreqprop.kernels import has_wide_products, pairs

EPS = torch.finfo(torch.float32).eps
LARGE = 0.02
"""A phase that is saturated by its shift cancels in float32, by PyTorch's own functions too: such
shifts are no nudges, and have two digits."""

SHAPES = [(3, 2, 8, 8), (1, 5), (7, 33)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1e-6, 0.3, 3.0])
def test_tanh_of_a_pair(shape: tuple[int, ...], size: float) -> None:
    center, shift = 2 * torch.randn(shape), size * torch.randn(shape)
    found = pairs.tanh_pair(center, shift)
    wanted = Tanh().pair(center.double(), shift.double())
    assert found is not None
    # The rational tanh is off by 3e-7; of the half difference that is a share, however small it is.
    allowed = LARGE if size > 1 else 20 * EPS
    assert torch.allclose(found[0].double(), wanted[0], rtol=0, atol=allowed)
    assert ((found[1].double() - wanted[1]).abs() <= allowed * shift.double().abs()).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1e-6, 0.3, 3.0])
def test_softmax_of_one_and_of_a_pair(shape: tuple[int, ...], size: float) -> None:
    logits, move = 3 * torch.randn(shape), size * torch.randn(shape)
    one, both = pairs.softmax(logits), pairs.softmax_pair(logits, move)
    shares = torch.softmax(logits.double(), -1)
    assert one is not None
    assert torch.allclose(one.double(), shares, rtol=0, atol=1e-6)  # shares of one, five roundings
    wanted = softmax_pair(shares, move.double())
    assert both is not None
    allowed = LARGE if size > 1 else 20 * EPS
    assert torch.allclose(both[0].double(), wanted.center, rtol=0, atol=allowed)
    assert torch.allclose(both[1].double(), wanted.shift, rtol=0, atol=allowed * min(size, 1.0))


@pytest.mark.parametrize("rising", [True, False])
def test_rows_times_a_matrix(rising: bool) -> None:
    rows, weight = torch.randn(4, 16, 48), torch.randn(48, 48)
    found = pairs.rows_times(rows, weight, rising=rising)
    assert (found is not None) == has_wide_products()
    if found is not None:
        wanted = rows.double() @ (weight.mT if rising else weight).double()
        # A sum of 48 terms of order one.
        assert torch.allclose(found.double(), wanted, rtol=0, atol=48 * EPS * 10)


def test_what_is_not_plain_numbers_is_pytorchs() -> None:
    plain = torch.randn(64, 64)
    kept = plain.clone().requires_grad_()
    for other in (plain.double(), kept, plain.mT, plain[:0], torch.randn(64, 64, device="meta")):
        assert pairs.tanh_pair(other, other) is None
        assert pairs.softmax(other) is None
        assert pairs.softmax_pair(other, other) is None
        assert pairs.rows_times(other, other, rising=True) is None
    assert pairs.tanh_pair(plain, plain[:1]) is None
    with torch.no_grad():  # nothing is recorded
        assert pairs.softmax(kept) is not None

    def mapped(row: torch.Tensor) -> torch.Tensor:
        assert pairs.tanh_pair(row, row) is None
        return row

    torch.func.vmap(mapped)(plain)
    assert pairs.softmax(torch.tensor(1.0)) is None  # a number has no dimension to share out


def _compiled(tensor: torch.Tensor) -> list[bool]:
    ours = pairs.tanh_pair(tensor, tensor), pairs.softmax(tensor)
    return [found is not None for found in (*ours, pairs.rows_times(tensor, tensor, rising=True))]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # PyTorch's own
def test_whoever_has_to_see_pytorchs_operations_does() -> None:
    plain = torch.randn(64, 64)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(plain, torch.ones_like(plain))
        assert not any(_compiled(dual))
        assert forward_ad.unpack_dual(upwards(dual, plain)).tangent is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not any(_compiled(plain))
    with FlopCounterMode(display=False):
        assert not any(_compiled(plain))
    with FakeTensorMode():
        assert not any(_compiled(torch.randn(64, 64)))

    def inside(tensor: torch.Tensor) -> torch.Tensor:
        assert not any(_compiled(tensor))
        return tensor.clone()

    torch.func.functionalize(inside)(plain)
    traced = torch.compile(lambda t: upwards(softmax(t), plain), backend="eager", fullgraph=True)
    assert torch.allclose(traced(plain), torch.softmax(plain, -1) @ plain.mT, atol=1e-5)


def test_a_masked_position_gets_no_share_at_all() -> None:
    shares = pairs.softmax(torch.tensor([[0.0, 1.0, -torch.inf, -200.0]]))
    assert shares is not None
    assert (shares[0, 2:] == 0).all()


@pytest.mark.parametrize("logits", [[[0.3]], [[0.0, -300.0, -torch.inf]], [[40.0, 0.0, 3.0]]])
def test_a_share_that_is_all_there_is_does_not_move(logits: list[list[float]]) -> None:
    """Not even by a rounding, which certificates of attention to one token would be refused for."""
    given = torch.tensor(logits)
    move = 1e-3 * torch.linspace(1.0, 2.0, given.shape[1]).expand_as(given).contiguous()
    found = pairs.softmax_pair(given, move)
    assert found is not None
    up, down = ((given + s * move).double().softmax(-1) for s in (1, -1))
    assert torch.allclose(found[0].double(), (up + down) / 2, rtol=1e-5, atol=1e-12)
    # The rounding of a move is 1e-10; what is left of a share is less than 1e-15.
    assert float((found[1].double() - (up - down) / 2).abs().max()) < 1e-14
