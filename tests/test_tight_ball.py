"""The tight ball: just below its radius, exact gradients, pure forward passes, proofs."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.certificate import Reason
from toreqprop.energies import (
    SpectralBall,
    Symmetric,
    TightBall,
    TightConvolutionBall,
    convolution_norm,
)
from toreqprop.energies.gram_block import gram_of, top_of_gram
from toreqprop.energies.singular_block import best_in_block
from toreqprop.energies.tight_ball import MARGIN, PROOF_EVERY, PROOFS, missed, norm_is_below
from toreqprop.kernels import compiled_available

COMPILED = [False, *([True] if compiled_available() else [])]


def norm(weight: Tensor) -> float:
    return float(torch.linalg.matrix_norm(weight.detach().double(), 2))


def settled(ball: TightBall, raw: Tensor) -> None:
    """Backward passes on the same weight: the estimate becomes the norm."""
    ball.margin.fill_(1.0)
    for _ in range(8):
        ball(raw.detach().requires_grad_()).sum().backward()


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("size", [1, 2, 7, 33, 64, 200])
def test_the_first_estimate_is_within_its_margin(
    size: int, symmetric: bool, compiled: bool
) -> None:
    """Of Gaussian matrices, whose largest singular values lie close together."""
    torch.manual_seed(size)
    for _ in range(5):
        raw = 30 * torch.randn(size, size)
        ball = TightBall(0.9, (size, size), symmetric=symmetric, compiled=compiled)
        weight = ball(raw)
        assert 0.9 / MARGIN * 0.999 <= norm(weight) <= 0.9
        if symmetric:
            assert torch.equal(weight, weight.mT)


@pytest.mark.parametrize("shape", [(3, 40), (40, 3), (1, 5), (5, 1)])
@pytest.mark.parametrize("compiled", COMPILED)
def test_any_shape(shape: tuple[int, int], compiled: bool) -> None:
    torch.manual_seed(0)
    weight = TightBall(0.5, shape, compiled=compiled)(torch.randn(shape))
    assert norm(weight) == pytest.approx(0.5 / MARGIN, rel=1e-4)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("symmetric", [True, False])
def test_inside_nothing_changes_and_a_zero_weight_stays_zero(
    symmetric: bool, compiled: bool
) -> None:
    ball = TightBall(0.9, (6, 6), symmetric=symmetric, compiled=compiled)
    raw = 0.01 * torch.randn(6, 6)
    raw = raw + raw.mT
    assert torch.equal(ball(raw), raw)
    assert torch.equal(ball(torch.zeros(6, 6)), torch.zeros(6, 6))


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("scale", [0.01, 3.0], ids=["inside", "outside"])
def test_gradients_are_those_of_the_exact_norm(
    symmetric: bool, compiled: bool, scale: float
) -> None:
    torch.manual_seed(1)
    raw = scale * torch.randn(9, 9, dtype=torch.float64)
    ball = TightBall(0.7, (9, 9), symmetric=symmetric, compiled=compiled).double()
    settled(ball, raw)
    exact = SpectralBall(0.7, exact=True)
    mine, theirs = raw.clone().requires_grad_(), raw.clone().requires_grad_()
    push = torch.randn(9, 9, dtype=torch.float64)
    (ball(mine) * push).sum().backward()
    (exact(Symmetric()(theirs) if symmetric else theirs) * push).sum().backward()
    assert torch.allclose(mine.grad, theirs.grad, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("size", [1e-30, 1e18, 1e37])
def test_nothing_leaves_the_range_of_floats(size: float) -> None:
    torch.manual_seed(0)
    for compiled in COMPILED:
        raw = (torch.randn(16, 16) * size).requires_grad_()
        weight = TightBall(0.4, (16, 16), compiled=compiled)(raw)
        assert norm(weight) <= 0.4
        (weight * torch.randn(16, 16)).sum().backward()
        assert bool(torch.isfinite(raw.grad).all())


def test_a_nan_is_not_hidden() -> None:
    for compiled in COMPILED:
        raw = torch.zeros(4, 4)
        raw[1, 2] = torch.nan
        for symmetric in (True, False):
            ball = TightBall(0.5, (4, 4), symmetric=symmetric, compiled=compiled)
            assert bool(torch.isnan(ball(raw)).any())


def model_and_batch(width: int = 48) -> tuple[teq.LoopedMLP, Tensor, Tensor]:
    torch.manual_seed(0)
    model = teq.LoopedMLP(10, width, 4, radius=0.95, bound="tight")
    x = torch.randn(64, 10)
    return model, x, x[:, :4].argmax(1)


def test_forward_passes_change_nothing() -> None:
    model, x, y = model_and_batch()
    with torch.no_grad():
        model.recurrent.raw.mul_(40)
    before = copy.deepcopy(model.state_dict())
    first = model(x)
    assert torch.equal(model(x), first)
    assert torch.equal(model.eval()(x), first)
    assert torch.equal(copy.deepcopy(model)(x), first)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    F.cross_entropy(model.train()(x), y).backward()
    assert not torch.equal(
        model.recurrent.constraints[0].start, before["recurrent.constraints.0.start"]
    )


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
@pytest.mark.parametrize("rate", [1e-3, 1e-2, 0.1])
@pytest.mark.parametrize(
    "build",
    [
        lambda: teq.LoopedMLP(10, 64, 4, radius=0.95, bound="tight", on_failure="ignore"),
        lambda: teq.LoopedMLP(
            10, 64, 4, radius=0.95, bound="tight", symmetric=False, on_failure="ignore"
        ),
        lambda: teq.HopfieldMLP([10, 48, 40, 4], radius=0.95, bound="tight", on_failure="ignore"),
    ],
    ids=["looped", "asymmetric", "layered"],
)
def test_never_above_while_training(build, rate: float, optimizer) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    model = build()
    x = torch.randn(64, 10)
    y = x[:, :4].argmax(1)
    chosen = optimizer(model.parameters(), lr=rate)
    for _ in range(60):
        chosen.zero_grad()
        F.cross_entropy(model(x), y).backward()
        chosen.step()
        assert model.lipschitz() <= 0.95 * (1 + 1e-6)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(("shape", "size"), [((150, 120), 0.01), ((320, 400), 0.003)])
def test_blocks_follow_what_an_optimizer_adds(
    shape: tuple[int, int], size: float, compiled: bool
) -> None:
    """Steps as Adam takes them first: every entry by the same amount, in a sign pattern of low
    rank and in a random one, next to a matrix whose largest singular values lie close together."""
    torch.manual_seed(0)
    ball = TightBall(0.9, shape, compiled=compiled)
    raw = torch.randn(shape) / max(shape) ** 0.5
    for number in range(8):
        moved = torch.randn(shape[0], 2) @ torch.randn(2, shape[1])
        raw = raw + size * (moved if number % 2 else torch.randn(shape)).sign()
        weight = ball(raw.requires_grad_())
        assert 0.9 / MARGIN * 0.999 <= norm(weight) <= 0.9
        weight.sum().backward()
        raw = raw.detach()


def test_blocks_of_both_kinds_agree() -> None:
    """Compiled and not: the same value and vectors, also of a matrix of rank two."""
    if not compiled_available():
        pytest.skip("Numba is not installed")
    from toreqprop.kernels.compiling import compiled
    from toreqprop.kernels.lanczos import block_norm
    from toreqprop.kernels.products import routine

    compiled_norm = compiled(block_norm)
    torch.manual_seed(0)
    thin = torch.randn(40, 2, dtype=torch.float64) @ torch.randn(2, 30, dtype=torch.float64)
    for weight in (thin, torch.randn(40, 30, dtype=torch.float64)):
        start = torch.randn(8, 30, dtype=torch.float64)
        one = best_in_block(weight, start, 2)
        left, right = torch.empty(1, 40, dtype=torch.float64), torch.empty_like(start)
        arrays = weight.numpy(), start.numpy(), 2, left.numpy(), right.numpy(), np.empty(8)
        two = compiled_norm(routine(weight.dtype), *arrays), left[0], right
        assert float(one[0]) == pytest.approx(two[0], rel=1e-9)
        assert one[0] <= norm(weight) * (1 + 1e-12)
        for a, b in ((one[1], two[1]), (one[2][0], two[2][0])):
            assert abs(float(a @ b)) == pytest.approx(1, rel=1e-6)


def test_tight_after_training() -> None:
    model, x, y = model_and_batch(256)
    chosen = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        chosen.zero_grad()
        F.cross_entropy(model(x), y).backward()
        chosen.step()
    assert 0.95 <= model.lipschitz() / 0.95 <= 1


def test_a_proof_that_fails_raises_the_margin_and_says_so() -> None:
    """A margin below one leaves the norm above the radius: the proof must see it."""
    torch.manual_seed(0)
    ball = TightBall(0.5, (20, 20))
    ball.margin.fill_(0.97)
    ball.steps.fill_(PROOF_EVERY - 2)
    raw = torch.randn(20, 20).requires_grad_()
    ball(raw).sum().backward()
    with pytest.warns(teq.ConvergenceWarning, match="above its radius 0.5 after 200 steps"):
        ball(raw).sum().backward()
    assert float(ball.margin) == pytest.approx(0.97 * 1.02)


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_proof_is_right_at_the_edge(symmetric: bool) -> None:
    torch.manual_seed(0)
    weight = torch.randn(30, 30, dtype=torch.float64)
    weight = weight + weight.mT if symmetric else weight[:, :20]
    size = norm(weight)
    assert norm_is_below(weight, size * (1 + 1e-9), symmetric)
    assert not norm_is_below(weight, size * (1 - 1e-9), symmetric)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions(groups: int) -> None:
    torch.manual_seed(0)
    kernel = torch.randn(6, 4 // groups, 3, 3)
    ball = TightConvolutionBall(0.8, tuple(kernel.shape), (7, 8), groups=groups)
    raw = kernel.requires_grad_()
    for _ in range(10):
        (ball(raw) * torch.randn_like(kernel)).sum().backward()
    weight = ball(raw).detach()
    inputs = torch.eye(4 * 7 * 8).reshape(-1, 4, 7, 8)
    exact = norm(F.conv2d(inputs, weight, None, 1, 2, 1, groups).flatten(1))
    assert 0.8 / MARGIN * 0.995 <= exact <= 0.8
    assert ball.proven(weight)
    on_torus = max(convolution_norm(k, 7, 8) for k in weight.unflatten(0, (groups, -1)))
    assert exact <= on_torus * (1 + 1e-6)


def test_state_dicts_of_version_0_1_have_no_such_buffers() -> None:
    model, x, _ = model_and_batch()
    old = {k: v for k, v in model.state_dict().items() if "constraints" not in k}
    other = teq.LoopedMLP(10, 48, 4, radius=0.95, bound="tight")
    other.load_state_dict(old)
    assert torch.equal(model(x), other(x))


def test_state_dicts_with_one_vector_are_read() -> None:
    ball = TightBall(0.5, (12, 10))
    old = {**ball.state_dict(), "start": torch.ones(10)}
    ball.load_state_dict(old)
    assert torch.equal(ball.start[0], torch.ones(10))
    assert ball.start.shape == (8, 10)


@pytest.mark.parametrize("symmetric", [True, False])
def test_networks_that_really_settle_are_certified(symmetric: bool) -> None:
    """A norm within 3 % of the radius 0.9; and a certificate leaves the buffers alone."""
    torch.manual_seed(0)
    model = teq.LoopedMLP(10, 64, 4, radius=0.9, bound="tight", symmetric=symmetric)
    with torch.no_grad():
        model.recurrent.raw.mul_(40)
    before = copy.deepcopy(model.state_dict())
    certificate = teq.certify(model, torch.randn(16, 10), torch.randint(0, 4, (16,)))
    assert certificate.ok, certificate.verdict
    assert 0.9 / MARGIN * 0.98 <= certificate.lipschitz <= 0.9
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_modules_are_ordinary() -> None:
    ball = TightBall(0.5, (4, 4), symmetric=True)
    assert "radius=0.5" in repr(ball)
    with pytest.raises(teq.InvalidInputError, match="radius must be > 0"):
        TightBall(0.0, (4, 4))
    assert isinstance(copy.deepcopy(ball), nn.Module)


@pytest.mark.parametrize(
    "build",
    [
        lambda: teq.LoopedMLP.example(),
        lambda: teq.HopfieldMLP.example(),
        lambda: teq.HopfieldConvNet.example(),
        lambda: teq.EquilibriumTransformer.example(layers=2),
    ],
    ids=["looped", "stack", "conv", "transformer"],
)
def test_certificates_prove_norms_or_refuse(build) -> None:  # type: ignore[no-untyped-def]
    """By default every norm is kept tightly; a margin below one is seen though gradients agree."""
    torch.manual_seed(0)
    model, x, y = build()
    kept = [m for m in model.modules() if isinstance(m, TightBall)]
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("raw"):
                p.mul_(30)

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output.flatten(0, -2), target.flatten())

    proven = teq.certify(model, x, y, loss=loss).norms
    assert len(proven) == len(kept) > 0
    assert all(norm.proven for norm in proven)
    for ball in kept:
        ball.margin.fill_(0.9)
    refused = teq.certify(model, x, y, loss=loss)
    assert not any(norm.proven for norm in refused.norms)
    assert Reason.NORM in refused.reasons
    assert "above the radius" in refused.verdict


@pytest.mark.parametrize(("shape", "size"), [((6, 4, 3, 3), (9, 9)), ((4, 3, 5, 5), (3, 2))])
def test_the_norm_of_a_convolution_is_that_at_its_size(
    shape: tuple[int, ...], size: tuple[int, int]
) -> None:
    """Above the norm, by a percent at most, where the bound on a torus is off by more."""
    torch.manual_seed(0)
    kernel = torch.randn(shape, dtype=torch.float64)
    pixels = torch.eye(shape[1] * size[0] * size[1], dtype=torch.float64)
    images = pixels.reshape(-1, shape[1], *size)
    exact = norm(F.conv2d(images, kernel, padding=(shape[2] - 1, shape[3] - 1)).flatten(1))
    found = convolution_norm(kernel, *size)
    assert exact * (1 - 1e-9) <= found <= 1.01 * exact
    spectrum = torch.fft.rfft2(kernel, s=(size[0] + shape[2] - 1, size[1] + shape[3] - 1))
    torus = float(torch.linalg.matrix_norm(spectrum.movedim((0, 1), (2, 3)), ord=2).max())
    assert torus > 1.01 * exact


def test_programs_are_traced_with_the_same_weight() -> None:
    """`torch.export` cannot ask how many steps were trained: cold and warm estimates are in it."""
    for symmetric in (True, False):
        torch.manual_seed(0)
        ball = TightBall(0.5, (12, 12), symmetric=symmetric, compiled=False)
        raw = torch.randn(12, 12)
        for _ in range(2):
            program = torch.export.export(ball, (raw,), strict=False).module()
            assert torch.allclose(program(raw), ball(raw), rtol=1e-5)
            ball(raw.clone().requires_grad_()).sum().backward()


def test_a_start_of_one_vector_is_taken_up() -> None:
    """As checkpoints have it from before there were blocks."""
    ball = TightBall(0.5, (12, 10))
    old = ball.state_dict() | {"start": torch.randn(10), "steps": torch.tensor(7)}
    ball.load_state_dict(dict(old))
    assert torch.equal(ball.start[0], old["start"])
    assert norm(ball(torch.randn(12, 10))) <= 0.5


def test_a_convolution_is_found_by_a_block_of_maps() -> None:
    """From below, whatever the rounds; exactly where they fill the space of maps."""
    torch.manual_seed(0)
    kernel = torch.randn(3, 2, 3, 3, dtype=torch.float64)
    pixels = torch.eye(2 * 4 * 3, dtype=torch.float64).reshape(-1, 2, 4, 3)
    exact = norm(F.conv2d(pixels, kernel, None, 1, 2).flatten(1))
    start = torch.randn(5, 2, 4, 3, dtype=torch.float64)
    before = 0.0
    for rounds in (1, 2, 3, 9):
        value, vectors = top_of_gram(gram_of(kernel), start, rounds)
        assert before <= float(value.sqrt()) <= exact * (1 + 1e-12)
        before = float(value.sqrt())
        flat = vectors.flatten(1)
        assert torch.allclose(flat @ flat.mT, torch.eye(5, dtype=torch.float64), atol=1e-9)
        image = F.conv2d(vectors[:1], kernel, None, 1, 2)
        assert float(image.norm()) == pytest.approx(before, rel=1e-9)
    assert before == pytest.approx(exact, rel=1e-12)
    huge, _ = top_of_gram(gram_of(kernel * torch.inf), start, 2)
    assert bool(huge.isnan())


@pytest.mark.parametrize("rate", [1e-3, 3e-3])
def test_kernels_stay_in_their_ball_while_they_learn(rate: float) -> None:
    """Targets that change pull other directions up."""
    torch.manual_seed(0)
    raw = nn.Parameter(1.5 * torch.randn(32, 16, 5, 5) / 20)
    ball = TightConvolutionBall(1.0, (32, 16, 5, 5), (14, 14))
    optimizer = torch.optim.Adam([raw], rate)
    targets, start = torch.randn(2, 32, 16, 5, 5), torch.randn(4, 16, 14, 14)
    for step in range(24):
        weight = ball(raw)
        # What it starts from is no better than what the ball does: this goes further.
        start = start + 0.5 * torch.randn_like(start) / start[0].numel() ** 0.5
        value, start = top_of_gram(gram_of(weight.detach()), start, 10 if step else 20)
        assert 0.99 / MARGIN <= float(value.sqrt()) <= 1.0
        optimizer.zero_grad()
        (weight * (0.3 * targets[step // 12] + 0.5 * torch.randn_like(weight))).sum().backward()
        optimizer.step()


def wave(shape: tuple[int, ...], frequency: tuple[float, float]) -> Tensor:
    """A kernel of rank one that answers to waves of one frequency, of norm about one."""
    out, into, side, _ = shape
    place = torch.arange(side) - side // 2
    ways = [frequency[0] * place[:, None] + frequency[1] * place, place[:, None] ** 2 + place**2]
    taps = ways[0].cos() * (-0.35 * ways[1]).exp()
    left, right = F.normalize(torch.randn(out), dim=0), F.normalize(torch.randn(into), dim=0)
    return left[:, None, None, None] * right[:, None, None] * (taps / taps.abs().sum())


@pytest.mark.parametrize(("seed", "rate"), [(0, 0.1), (1, 0.06), (2, 0.15), (3, 0.06), (3, 0.15)])
def test_a_direction_that_overtakes_another_is_found_in_time(seed: int, rate: float) -> None:
    """Of a wave that grows by so much a step, nothing is in the maps that were found for another:
    with five products, and no more where the last one raised the value, the norm gets above the
    radius."""
    shape, size = (16, 8, 3, 3), (12, 12)
    torch.manual_seed(seed)
    first, second = wave(shape, (0.2, 0.3)), wave(shape, (0.3, 2.4))
    rest = torch.randn(shape) / 25
    pixels = torch.eye(8 * 12 * 12).reshape(-1, 8, *size)
    ball = TightConvolutionBall(0.8, shape, size)
    for step in range(7):
        raw = (first + (0.8 + rate * step) * second + rest).requires_grad_()
        weight = ball(raw)
        rows = F.conv2d(pixels, weight.detach(), None, 1, 2).flatten(1)
        exact = float(torch.linalg.eigvalsh(rows @ rows.mT)[-1]) ** 0.5
        assert 0.8 / MARGIN * 0.999 <= exact <= 0.8
        weight.sum().backward()


def test_a_proof_goes_on_until_it_knows() -> None:
    """A norm half a percent below the radius, which a hundred products cannot tell from one above;
    and one as little above it."""
    torch.manual_seed(0)
    shape, size = (6, 4, 3, 3), (9, 9)
    kernel = torch.randn(shape, dtype=torch.float64)
    pixels = torch.eye(4 * 81, dtype=torch.float64).reshape(-1, 4, *size)
    exact = norm(F.conv2d(pixels, kernel, None, 1, 2).flatten(1))
    assert missed(4 * 81, PROOFS[0]) > 1.005
    for share, below in ((0.995, True), (1.005, False)):
        ball = TightConvolutionBall(exact / share, shape, size)
        assert ball.proven(kernel) is below


def test_state_dicts_with_one_map_are_read() -> None:
    ball = TightConvolutionBall(0.5, (6, 4, 3, 3), (7, 8))
    ball.load_state_dict({**ball.state_dict(), "start": torch.ones(4, 7, 8)})
    assert torch.equal(ball.start[0], torch.ones(4, 7, 8))
    ball.load_state_dict({**ball.state_dict(), "start": torch.zeros(2, 4, 7, 8)})
    assert ball.start.shape == (3, 4, 7, 8)
    assert not ball.start[:2].any()
    assert ball.start[2].any()


def test_the_gram_of_a_convolution_is_a_convolution() -> None:
    """One with the kernel's autocorrelation, where that takes fewer products, against two."""
    torch.manual_seed(0)
    kernel, maps = torch.randn(6, 2, 3, 5).double(), torch.randn(2, 2, 7, 6).double()
    fine = F.conv2d(maps, kernel, None, 1, (2, 4))
    exact = F.conv_transpose2d(fine, kernel, None, 1, (2, 4))
    torch.testing.assert_close(gram_of(kernel, 1, (7, 6))(maps), exact)
    few = kernel[:1]
    fine = F.conv2d(maps, few, None, 1, (2, 4))
    exact = F.conv_transpose2d(fine, few, None, 1, (2, 4))
    torch.testing.assert_close(gram_of(few, 1, (7, 6))(maps), exact)
