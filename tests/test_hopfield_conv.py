"""Convolutional Hopfield networks: three poolings, certified gradients, honest bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.bench.unnudged import UnnudgedEP
from toreqprop.energies import (
    Energy,
    HardSigmoid,
    Pooling,
    Sigmoid,
    StackEnergy,
    Tanh,
    convolution_bound,
    convolution_norm,
)
from toreqprop.energies.activations import Activation
from toreqprop.energies.pairs import Pair
from toreqprop.solvers import Trace
from toreqprop.tasks import get
from toreqprop.training import TrainingConfig, accuracy, fit

POOLINGS = (teq.AveragePooling(), teq.MaxPooling(), teq.SoftPooling())
NAMES = ["average", "max", "soft"]
pooled = pytest.mark.parametrize("pooling", POOLINGS, ids=NAMES)


def network(
    pooling: Pooling, channels: tuple[int, ...] = (5, 6), **options: object
) -> tuple[teq.HopfieldConvNet, Tensor, Tensor]:
    """A small network with odd map sizes, so that windows do not cover everything."""
    torch.manual_seed(0)
    image = (2, 13, 14)
    options.setdefault("activation", Sigmoid())
    model = teq.HopfieldConvNet(image, channels, 4, kernel_size=3, pooling=pooling, **options)  # type: ignore[arg-type]
    return model, torch.randn(8, *image), torch.randint(0, 4, (8,))


@pooled
@pytest.mark.parametrize("channels", [(5,), (5, 6), (4, 5, 6)], ids=str)
def test_gradients_are_certified_in_float64(pooling: Pooling, channels: tuple[int, ...]) -> None:
    model, x, y = network(
        pooling, channels, gradient=teq.CenteredEP(1e-3), tol=1e-10, max_steps=1000
    )
    certificate = teq.certify(model.double(), x.double(), y)
    assert certificate.ok, certificate.verdict
    assert certificate.min_cosine > 0.9999
    assert certificate.asymmetry < 1e-10


@pooled
def test_default_gradients_are_certified_in_float32(pooling: Pooling) -> None:
    model, x, y = network(pooling)
    certificate = teq.certify(model, x, y)
    assert certificate.ok, certificate.verdict
    assert certificate.min_cosine >= 0.99


@pooled
def test_the_input_gets_the_exact_gradient(pooling: Pooling) -> None:
    model, x, y = network(pooling, gradient=teq.CenteredEP(1e-3), tol=1e-10)
    model.double()
    found = []
    for gradient in (model.gradient, teq.ImplicitGradient()):
        model.gradient = gradient
        leaf = x.double().requires_grad_()
        F.cross_entropy(model(leaf), y).backward()
        assert leaf.grad is not None
        found.append(leaf.grad.flatten())
    assert float(F.cosine_similarity(*found, dim=0)) > 0.9999


@pooled
def test_closed_forms_agree_with_autograd_on_the_interaction(pooling: Pooling) -> None:
    """The preactivation and the Hebbian update against the derivatives of Φ, to rounding."""
    model, x, _ = network(pooling, (4, 5, 6))
    field, x = model.double().field, x.double()
    assert isinstance(field, StackEnergy)
    params = tuple(p.detach() for p in model.system_parameters())
    drive = field.prepare(x, params)
    state = tuple(torch.rand_like(s) for s in field.initial_state(drive, params))
    pairs = tuple(Pair(s, 0.1 * torch.randn_like(s)) for s in state)
    for given in (state, pairs):
        by_autograd = Energy.preactivation(field, given, (x,), params)
        found = field.preactivation(given, drive, params)
        for ours, derived in zip(found, by_autograd, strict=True):
            for part in ("center", "shift") if given is pairs else ("data",):
                assert torch.allclose(getattr(ours, part), getattr(derived, part), atol=1e-12)
    wants = (True,) * (1 + len(params))
    weight = torch.randn(8, dtype=x.dtype)
    ours_all = field.energy_gradients(pairs, weight, x, params, wants)
    derived_all = Energy.energy_gradients(field, pairs, weight, x, params, wants)
    for a, b in zip(ours_all, derived_all, strict=True):
        assert a is not None
        assert b is not None
        assert a.shape == b.shape
        assert torch.allclose(a, b, atol=1e-10)
    nothing = (False,) * len(wants)
    assert field.energy_gradients(pairs, weight, x, params, nothing) == (None,) * len(wants)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("kind", [teq.AveragePooling, teq.MaxPooling, teq.SoftPooling])
def test_poolings_and_their_transposes(kind: type[Pooling], size: int) -> None:
    """``pool`` against torch, ``spread`` against autograd, folding against both."""
    pooling = kind(size)  # type: ignore[call-arg]
    fine = torch.randn(2, 3, 7, 8, dtype=torch.float64, requires_grad=True)
    coarse = pooling.pool(fine)
    if kind is teq.AveragePooling:
        assert torch.allclose(coarse, F.avg_pool2d(fine, size))
    elif kind is teq.MaxPooling:
        assert torch.equal(coarse, F.max_pool2d(fine, size))
    else:
        assert bool((coarse <= F.max_pool2d(fine, size) + 1e-12).all())
        assert bool((coarse >= F.avg_pool2d(fine, size) - 1e-12).all())
        nearly_max = replace(pooling, temperature=1e-3).pool(fine)  # type: ignore[type-var]
        assert torch.allclose(nearly_max, F.max_pool2d(fine, size), atol=1e-2)
    signal = torch.randn_like(coarse)
    (by_autograd,) = torch.autograd.grad(coarse, fine, signal)
    assert torch.allclose(pooling.spread(signal, fine), by_autograd)
    kernel = torch.randn(4, 3, 3, 3, dtype=torch.float64)
    folded = F.conv2d(fine, pooling.fold(kernel), stride=pooling.stride, padding=1)
    direct = pooling.pool(F.conv2d(fine, kernel, padding=1))
    assert torch.allclose(folded if pooling.linear else pooling.pool(folded), direct)


def dense_norm(kernel: Tensor, height: int, width: int) -> float:
    """The norm of the convolution as one matrix."""
    maps = torch.eye(kernel.shape[1] * height * width, dtype=kernel.dtype)
    images = F.conv2d(maps.reshape(-1, kernel.shape[1], height, width), kernel, padding=1)
    return float(torch.linalg.matrix_norm(images.flatten(1), ord=2))


@pytest.mark.parametrize("shape", [(6, 2, 3, 3), (2, 6, 3, 3), (4, 4, 3, 3)], ids=str)
@pytest.mark.parametrize("offset", [0.0, 1.0], ids=["random", "positive"])
def test_norm_bounds_hold(shape: tuple[int, ...], offset: float) -> None:
    torch.manual_seed(0)
    kernel = torch.randn(shape, dtype=torch.float64) + offset
    exact = dense_norm(kernel, 6, 7)
    on_torus = convolution_norm(kernel, 6, 7)
    assert exact <= on_torus <= float(convolution_bound(kernel)) * (1 + 1e-12)
    assert on_torus < 1.3 * exact  # not merely valid


@pytest.mark.parametrize("pooling", [POOLINGS[0], POOLINGS[2]], ids=["average", "soft"])
@pytest.mark.parametrize("activation", [Tanh(), Sigmoid()], ids=["tanh", "sigmoid"])
def test_lipschitz_bounds_the_jacobian_and_stays_below_one(
    pooling: Pooling, activation: Activation
) -> None:
    model, x, y = network(pooling, (5, 6, 7), activation=activation)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(20)
    certificate = teq.certify(model, 0.01 * x, y)
    assert 0 < certificate.contraction <= model.lipschitz() <= 0.95 * (1 + 1e-5)
    assert bool(torch.isfinite(model.equilibrium(x).error_bound).all())


def test_lipschitz_without_a_bound_gives_the_reason() -> None:
    model, x, _ = network(teq.MaxPooling())
    with pytest.raises(teq.UnsupportedModelError, match="max pooling"):
        model.lipschitz()
    assert bool(torch.isinf(model.equilibrium(x).error_bound).all())
    free, _, _ = network(teq.AveragePooling(), spectral_norm=False)
    with torch.no_grad():
        free.layers[1].weight.mul_(10)  # type: ignore[operator]
    assert free.lipschitz() > 1
    assert network(teq.MaxPooling(), (5,))[0].lipschitz() == 0


@pooled
@pytest.mark.parametrize("activation", [Sigmoid(), HardSigmoid()], ids=["smooth", "hard"])
def test_sweeps_never_raise_the_energy(pooling: Pooling, activation: Activation) -> None:
    """Also far from contraction: for states that are not negative each update descends."""
    model, x, _ = network(
        pooling, (4, 5, 6), activation=activation, spectral_norm=False, feedback=1.0
    )
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(4)
    model.double()
    model.solver = teq.GaussSeidel("symmetric", tol=model.tol)
    model.max_steps, model.on_failure = 30, "ignore"
    trace = Trace(keep_energies=True)
    model.equilibrium(x.double(), trace=trace)
    energies = torch.stack(trace.energies)
    assert len(energies) > 3
    assert float((energies[1:] - energies[:-1]).max()) < 1e-9
    assert float((energies[-1] - energies[0]).max()) < -1e-6


def test_flat_inputs_and_images_are_the_same() -> None:
    model, x, _ = network(teq.AveragePooling())
    assert torch.equal(model(x), model(x.flatten(1)))


@pooled
def test_without_feedback_it_is_the_backprop_network(pooling: Pooling) -> None:
    model, x, _ = network(pooling, (5,))
    plain = teq.BackpropConvNet(
        (2, 13, 14), (5,), 4, kernel_size=3, pooling=pooling, activation=Sigmoid()
    )
    plain.load_state_dict(model.state_dict())
    assert torch.allclose(plain(x), model(x), atol=1e-6)
    conv = F.conv2d(x, plain.layers[0].weight, plain.layers[0].bias, padding=1)  # type: ignore[arg-type]
    by_hand = plain.readout(Sigmoid()(pooling.pool(conv)).flatten(1))
    assert torch.allclose(plain(x), by_hand, atol=1e-5)


def test_holomorphic_estimates_need_an_analytic_pooling() -> None:
    model, x, y = network(teq.AveragePooling(), gradient=teq.HolomorphicEP(0.05), tol=1e-9)
    assert teq.certify(model.double(), x.double(), y).min_cosine > 0.999999
    other, x, y = network(teq.MaxPooling(), gradient=teq.HolomorphicEP())
    with pytest.raises(teq.UnsupportedModelError, match="complex"):
        F.cross_entropy(other(x), y).backward()


@pooled
def test_learns_digits(pooling: Pooling) -> None:
    """Held-out accuracy above 88 % and well above a network of which only the readout learns."""
    data = get("digits").load(42, False)
    x, y, test_x, test_y = (
        torch.from_numpy(a) for a in (data.train_x, data.train_y, data.test_x, data.test_y)
    )
    scores = []
    for gradient in (None, UnnudgedEP()):
        torch.manual_seed(0)
        model = teq.HopfieldConvNet(
            (1, 8, 8), (8, 16), 10, kernel_size=3, pooling=pooling, tol=1e-2, gradient=gradient
        )
        fit(model, x, y, TrainingConfig(epochs=4, batch_size=32, learning_rate=2e-2))
        scores.append(accuracy(model, test_x, test_y))
    assert scores[0] > 0.88
    assert scores[0] > scores[1] + 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image": (28, 28)}, "image"),
        ({"channels": ()}, "channels"),
        ({"classes": 0}, "classes"),
        ({"kernel_size": 4}, "kernel_size"),
        ({"channels": (2, 2, 2, 2, 2)}, "fewer layers"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    for kind in (teq.HopfieldConvNet, teq.BackpropConvNet):
        with pytest.raises(teq.InvalidInputError, match=message):
            kind(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf])
def test_bad_poolings(temperature: float) -> None:
    with pytest.raises(teq.InvalidInputError, match="temperature"):
        teq.SoftPooling(temperature=temperature)
    with pytest.raises(teq.InvalidInputError, match="size"):
        teq.MaxPooling(0)


def test_bad_images() -> None:
    model, x, _ = network(teq.AveragePooling())
    with pytest.raises(teq.InvalidInputError, match="shape"):
        model(x[:, :, :5])
