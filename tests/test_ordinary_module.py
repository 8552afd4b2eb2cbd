"""A model is an ordinary module: copies, transforms, precision and extreme numbers."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune

import toreqprop as teq
from toreqprop.energies import SpectralBall, SymmetricBall, spectral_bound, tight_ball
from toreqprop.models import MODELS

CLONES = {"deepcopy": copy.deepcopy, "pickle": lambda m: pickle.loads(pickle.dumps(m))}


def looped(hidden: int = 16, **options: Any) -> tuple[teq.LoopedMLP, Tensor, Tensor]:
    torch.manual_seed(3)
    model = teq.LoopedMLP(8, hidden, 3, **options)
    with torch.no_grad():
        model.recurrent.raw.mul_(10)
    return model, torch.randn(12, 8), torch.randint(0, 3, (12,))


def grads(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def same_gradients(a: nn.Module, b: nn.Module, x: Tensor, y: Tensor) -> bool:
    one, two = grads(a, x, y), grads(b, x, y)
    return one.keys() == two.keys() and all(torch.equal(one[n], two[n]) for n in one)


SEEN: list[tuple[int, ...]] = []


def note_shape(module: nn.Module, inputs: Any, output: Tensor) -> None:
    SEEN.append(tuple(output.shape))


@pytest.mark.parametrize("clone", CLONES.values(), ids=CLONES)
class TestCopies:
    def test_keep_a_replaced_readout(self, clone: Callable[[Any], Any]) -> None:
        model, x, y = looped()
        model.readout = nn.Sequential(nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3))
        assert same_gradients(model, clone(model), x, y)

    def test_keep_hooks(self, clone: Callable[[Any], Any]) -> None:
        model, x, _ = looped()
        model.register_forward_hook(note_shape)
        model.readout.register_forward_hook(note_shape)
        SEEN.clear()
        clone(model)(x)
        assert SEEN == [(12, 3), (12, 3)]

    @pytest.mark.parametrize("part", ["readout", "input"])
    def test_keep_pruning_through_training(self, clone: Callable[[Any], Any], part: str) -> None:
        model, x, y = looped()
        prune.l1_unstructured(getattr(model, part), "weight", amount=0.5)
        layer = getattr(model, part)
        gone = layer.weight_mask == 0
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(3):
            grads(model, x, y)
            optimizer.step()
        model(x)
        assert bool((layer.weight[gone] == 0).all())
        if clone is copy.deepcopy:
            # torch itself refuses to copy the tensor that pruning computes, with a graph.
            with torch.no_grad():
                model(x)
        else:
            with torch.no_grad():
                model(x)
        twin = clone(model)
        assert same_gradients(model, twin, x, y)
        assert bool((getattr(twin, part).weight[gone] == 0).all())

    def test_keep_the_counts_of_failures(self, clone: Callable[[Any], Any]) -> None:
        model, x, _ = looped(max_steps=1, tol=1e-9)
        with pytest.warns(teq.ConvergenceWarning):
            model(x)
        assert clone(model).failures == model.failures


@pytest.mark.parametrize("name", sorted(MODELS))
def test_config_follows_from_the_signature(name: str) -> None:
    for options in MODELS[name].variants:
        model, _, _ = MODELS[name].example(**options)
        again = type(model)(**model.config())
        assert again.config() == model.config()
        assert set(options) <= set(model.config())


def test_weights_of_version_0_1_load() -> None:
    model, x, _ = looped()
    old = {
        k.replace("recurrent.raw", "recurrent.parametrizations.weight.original"): v
        for k, v in model.state_dict().items()
    }
    other = teq.LoopedMLP(8, 16, 3)
    other.load_state_dict(old)
    assert torch.equal(model(x), other(x))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_autocast_relaxes_in_full_precision(name: str) -> None:
    model, x, y = MODELS[name].example()
    wanted = [s.detach() for s in model.equilibrium(x).state]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        solution = model.equilibrium(x)
        assert solution.converged
        assert all(torch.equal(a, b.detach()) for a, b in zip(wanted, solution.state, strict=True))
        output = model(x)
        loss = F.cross_entropy(output.flatten(0, -2).float(), y.flatten())
    loss.backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters())


def test_autocast_inside_a_larger_network() -> None:
    model, x, y = looped()
    net = nn.Sequential(nn.Linear(8, 8), model)
    plain = grads(net, x, y)
    net.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(net(x).float(), y)
    loss.backward()
    for n, p in net.named_parameters():
        assert F.cosine_similarity(p.grad.flatten(), plain[n].flatten(), 0) > 0.98, n


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_compiled_gives_the_same(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, options = 4, None
    if backend == "inductor":  # writes C++ for every step of the norm: two pairs are exact for two
        hidden = 2
        # Plain loops: compilers read the headers of PyTorch's vectors for half the time.
        options = {"cpp.vec_isa_ok": False}
        monkeypatch.setattr(tight_ball, "SYMMETRIC_STEPS", 2 * hidden)
    model, x, y = looped(hidden)
    wanted = grads(model, x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler's own
        compiled = torch.compile(model, backend=backend, options=options)
        found = grads(compiled, x, y)
    for (_, a), (_, b) in zip(wanted.items(), found.items(), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)


def trace(model: nn.Module, x: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own
        return torch.jit.trace(model, (x,))


def export(model: nn.Module, x: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(model, (x,)).module()


@pytest.mark.parametrize("export", [trace, export])
def test_exports_a_fixed_number_of_steps_and_says_so(export: Callable[..., Any]) -> None:
    model, x, _ = looped(4, radius=0.5, tol=1e-6, max_steps=500)
    model.eval()
    for gradient in (model.gradient, teq.UnrolledGradient(60, tol=1e-6)):
        model.gradient = gradient
        with pytest.raises(Exception, match=r"UnrolledGradient\(steps=30\)"):  # torch wraps it
            export(model, x)
    wanted = model(x).detach()
    model.gradient = teq.UnrolledGradient(steps=20)  # 0.5 to the power of 20 is 1e-6
    exported = export(model, x)
    assert torch.allclose(exported(x), wanted, atol=1e-4)


def test_functional_call_and_grad() -> None:
    model, x, y = looped(tol=1e-6, max_steps=500)
    wanted = grads(model, x, y)
    params = {n: p.detach() for n, p in model.named_parameters()}

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)

    found = torch.func.grad(loss)(params)
    for n, gradient in wanted.items():
        # The kernel there, the general path here: both to 1e-5 of the nudge.
        assert torch.allclose(found[n], gradient, rtol=1e-3, atol=1e-6), n
    value = torch.func.functional_call(model, params, (x,))
    assert torch.allclose(value, model(x))


@pytest.mark.parametrize("size", [1e18, 1e30, 1e37, 1e-30])
@pytest.mark.parametrize("kind", ["symmetric", "compiled", "plain", "exact"])
def test_the_ball_holds_whatever_the_size_of_its_weights(kind: str, size: float) -> None:
    torch.manual_seed(0)
    raw = (torch.randn(24, 24) * size).requires_grad_()
    ball: nn.Module = {
        "symmetric": SymmetricBall(0.3, compiled=False),
        "compiled": SymmetricBall(0.3),
        "plain": SpectralBall(0.3),
        "exact": SpectralBall(0.3, exact=True),
    }[kind]
    weight = ball(raw)
    norm = float(torch.linalg.matrix_norm(weight.detach().double(), 2))
    assert norm <= 0.3 * (1 + 1e-6)
    if size > 1:
        assert norm > 0.01
        assert bool(torch.isfinite(spectral_bound(raw.detach())))
    (weight * torch.randn(24, 24)).sum().backward()
    assert bool(torch.isfinite(raw.grad).all())


@pytest.mark.parametrize("kernel", ["numba", "torch", "numpy"])
def test_a_huge_loss_has_a_finite_gradient(kernel: str) -> None:
    model, x, y = looped(kernel=kernel)
    model.double()
    plain = grads(copy.deepcopy(model), x.double(), y)  # a backward pass moves the estimate
    (F.cross_entropy(model(x.double()), y) * 1e200).backward()
    for n, p in model.named_parameters():
        assert bool(torch.isfinite(p.grad).all()), n
        assert torch.allclose(p.grad / 1e200, plain[n], rtol=1e-6, atol=1e-12), n


@pytest.mark.parametrize("kernel", ["numba", "torch"])
@pytest.mark.parametrize("kind", ["looped", "stack"])
def test_one_over_beta_does_not_leave_the_range_of_floats(kind: str, kernel: str) -> None:
    """A loss near the end of float32: times one over β it would be beyond."""
    torch.manual_seed(0)  # of forty seeds one has a sample whose own gradient is beyond it
    model = teq.LoopedMLP(6, 9, 4) if kind == "looped" else teq.HopfieldMLP([6, 9, 8, 4])
    model.kernel = kernel  # type: ignore[assignment]
    model.tol = 1e-6  # so large a loss takes the general path, where the shift begins elsewhere
    x, y = torch.randn(5, 6), torch.tensor([0, 1, 2, 3, 0])
    plain = grads(copy.deepcopy(model), x, y)  # a backward pass moves the estimate
    (F.cross_entropy(model(x), y) * 1e38).backward()
    for name, p in model.named_parameters():
        assert torch.allclose(p.grad / 1e38, plain[name], rtol=1e-3, atol=1e-6), name


@pytest.mark.parametrize("kernel", ["numba", "torch", "numpy"])
def test_a_loss_that_is_not_finite_has_no_finite_gradient(kernel: str) -> None:
    model, x, y = looped(kernel=kernel)
    (F.cross_entropy(model(x), y) * float("inf")).backward()
    assert not bool(torch.isfinite(model.input.weight.grad).any())


def test_lipschitz_counts_the_slope() -> None:
    class Steep(teq.energies.Tanh):
        slope = 2.0

    model = teq.HopfieldMLP([4, 5, 6, 3])
    plain = model.lipschitz()
    model.field = teq.energies.StackEnergy(model.field.couplings, Steep(), model.feedback)
    assert model.lipschitz() == pytest.approx(2 * plain)
