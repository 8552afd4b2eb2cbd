"""loss.backward() on LoopedMLP against finite differences, the oracles and itself."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import toreqprop as teq
from tests.problems import cosine

WIDTH, HIDDEN, CLASSES, BATCH = 5, 9, 4, 6


def tight_model(gain: float = 30.0, **options: object) -> teq.LoopedMLP:
    """A float64 model whose spectral bound is active, so its gradient goes through it as well."""
    torch.manual_seed(0)
    settings: dict = {"tol": 1e-12, "max_steps": 5000, "radius": 0.95, **options}
    model = teq.LoopedMLP(WIDTH, HIDDEN, CLASSES, **settings).double()
    with torch.no_grad():
        raw(model).mul_(gain)
    return model


def raw(model: teq.LoopedMLP) -> Tensor:
    return model.recurrent.raw


def batch(count: int = BATCH) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, WIDTH, dtype=torch.float64, generator=generator)
    return x, torch.randint(0, CLASSES, (count,), generator=generator)


def gradients(model: teq.LoopedMLP, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Of the mean cross-entropy, for every parameter and the input."""
    model.zero_grad()
    leaf = x.clone().requires_grad_()
    F.cross_entropy(model(leaf), y).backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    return {**found, "input": leaf.grad.clone()}


def finite_differences(model: teq.LoopedMLP, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Central differences with step 1e-5: error about 1e-10 of truncation, 1e-11 of rounding."""
    step = 1e-5

    def loss() -> float:
        with torch.no_grad():
            return float(F.cross_entropy(model(x), y))

    found = {}
    for name, tensor in [*model.named_parameters(), ("input", x)]:
        flat, grad = tensor.data.view(-1), torch.zeros(tensor.numel(), dtype=torch.float64)
        for k in range(tensor.numel()):
            kept = float(flat[k])
            flat[k] = kept + step
            above = loss()
            flat[k] = kept - step
            grad[k] = (above - loss()) / (2 * step)
            flat[k] = kept
        found[name] = grad.view_as(tensor)
    return found


@pytest.mark.parametrize("gain", [1.0, 30.0], ids=["bound_inactive", "bound_active"])
def test_centred_ep_agrees_with_finite_differences_and_implicit(gain: float) -> None:
    model = tight_model(gain, gradient=teq.CenteredEP(1e-3))
    x, y = batch()
    ep = gradients(model, x, y)
    model.gradient = teq.ImplicitGradient()
    for oracle in (gradients(model, x, y), finite_differences(model, x, y)):
        for name, exact in oracle.items():
            assert cosine(ep[name], exact) >= 0.999999, name
            assert float(ep[name].norm() / exact.norm()) == pytest.approx(1, abs=1e-4), name


@pytest.mark.parametrize(
    ("estimator", "order"), [(teq.OneSidedEP, 1), (teq.CenteredEP, 2)], ids=["one", "centred"]
)
def test_bias_slopes(estimator: type, order: int) -> None:
    """float64, tol 1e-12, five betas: the error falls as β and β²."""
    model = tight_model()
    x, y = batch()
    model.gradient = teq.ImplicitGradient()
    exact = gradients(model, x, y)
    points = []
    for beta in (0.01, 0.005, 0.0025, 0.00125, 0.000625):
        model.gradient = estimator(beta)
        found = gradients(model, x, y)
        error = math.sqrt(sum(float((found[n] - exact[n]).norm()) ** 2 for n in exact))
        points.append((math.log(beta), math.log(error)))
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(points)]
    assert sum(slopes) / len(slopes) == pytest.approx(order, abs=0.15), slopes


def test_asymmetric_model_is_trained_exactly_by_the_corrected_vector_field() -> None:
    model = tight_model(symmetric=False)
    x, y = batch()
    model.gradient = teq.ImplicitGradient()
    exact = gradients(model, x, y)
    model.gradient = teq.VectorFieldEP(1e-3)
    corrected = gradients(model, x, y)
    model.gradient = teq.VectorFieldEP(1e-3, correction=False)
    plain = gradients(model, x, y)
    hidden = [n for n in exact if not n.startswith("readout")]
    assert all(cosine(corrected[n], exact[n]) >= 0.999999 for n in hidden)
    assert min(cosine(plain[n], exact[n]) for n in hidden) < 0.99
    weight = model.recurrent.weight
    assert not torch.allclose(weight, weight.mT)


def test_gradcheck_of_inputs_and_parameters() -> None:
    """atol covers the O(β²) bias at β = 1e-3, measured below 1e-6."""
    model = tight_model(gradient=teq.CenteredEP(1e-3))
    x, _ = batch(2)
    names = [name for name, _ in model.named_parameters()]

    def output(inputs: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(
            model, dict(zip(names, parameters, strict=True)), (inputs,)
        )

    leaves = [p.detach().clone().requires_grad_() for p in model.parameters()]
    assert torch.autograd.gradcheck(output, (x.requires_grad_(), *leaves), atol=1e-5, rtol=1e-4)


def test_gradcheck_notices_a_wrong_gradient() -> None:
    model = tight_model(gradient=teq.OneSidedEP(0.5))
    x, _ = batch(2)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(model, (x.requires_grad_(),), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("factor", [1e-6, 1e4])
def test_scale_free_in_float32(factor: float) -> None:
    torch.manual_seed(0)
    model = teq.LoopedMLP(20, 30, 5)
    x, y = torch.randn(16, 20), torch.randint(0, 5, (16,))

    def scaled(scale: float) -> dict[str, Tensor]:
        model.zero_grad()
        (scale * F.cross_entropy(model(x), y)).backward()
        return {n: p.grad / scale for n, p in model.named_parameters()}

    plain = scaled(1.0)
    for name, gradient in scaled(factor).items():
        assert float((gradient - plain[name]).norm() / plain[name].norm()) < 1e-3, name
        assert float(plain[name].norm()) > 0


def test_batch_mean_is_the_mean_of_single_samples() -> None:
    model = tight_model(gradient=teq.CenteredEP(0.1), tol=1e-4)
    x, y = batch(5)
    together = gradients(model, x, y)
    alone = [gradients(model, x[k : k + 1], y[k : k + 1]) for k in range(5)]
    for name in together:
        if name == "input":
            mean = torch.cat([g[name] for g in alone]) / 5
        else:
            mean = torch.stack([g[name] for g in alone]).mean(0)
        # Samples freeze one by one, so only the rounding of sums differs.
        assert torch.allclose(together[name], mean, rtol=1e-9, atol=1e-12), name


def test_a_sum_loss_and_odd_losses_work() -> None:
    """Any loss: here a quantile of the outputs over the batch, which couples samples."""
    model = tight_model(gradient=teq.CenteredEP(1e-3))
    x, _ = batch()

    def loss() -> Tensor:
        return model(x).flatten().sort().values[7:11].square().sum()

    found = torch.autograd.grad(loss(), list(model.parameters()))
    model.gradient = teq.ImplicitGradient()
    for a, b in zip(found, torch.autograd.grad(loss(), list(model.parameters())), strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-7)


def saved_bytes(model: teq.LoopedMLP, x: Tensor) -> int:
    total = 0

    def pack(t: Tensor) -> Tensor:
        nonlocal total
        total += t.numel() * t.element_size()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        model(x).sum()
    return total


def test_memory_for_backward_does_not_depend_on_steps() -> None:
    x, _ = batch()
    sizes = set()
    for max_steps in (10, 1000):
        # A tolerance no one reaches: every step allowed is taken.
        model = tight_model(tol=1e-300, max_steps=max_steps, on_failure="ignore")
        counted: list[int] = []
        model.register_relaxation_hook(lambda phase, s, c=counted: c.append(s.steps))
        sizes.add(saved_bytes(model, x))
        assert counted[0] >= 10
    assert len(sizes) == 1


def test_unrolled_memory_grows_linearly() -> None:
    x, _ = batch()
    model = tight_model()
    sizes = []
    for steps in (10, 110, 210):
        model.gradient = teq.UnrolledGradient(steps)
        sizes.append(saved_bytes(model, x))
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]
    assert sizes[1] > 5 * sizes[0]


def test_unrolled_and_implicit_agree() -> None:
    model = tight_model()
    x, y = batch()
    model.gradient = teq.UnrolledGradient(500)
    unrolled = gradients(model, x, y)
    model.gradient = teq.ImplicitGradient()
    for name, exact in gradients(model, x, y).items():
        assert torch.allclose(unrolled[name], exact, rtol=1e-8, atol=1e-11), name


def test_unrolled_until_each_sample_has_settled() -> None:
    """Samples leave at different times, and come back in their order with their own gradients."""
    model = tight_model()
    x, y = batch()
    x = x * torch.logspace(-6, 1, len(x), dtype=x.dtype).unsqueeze(1)
    model.solver = teq.FixedPoint(tol=model.tol, max_steps=model.max_steps)
    with torch.no_grad():
        steps = {model.equilibrium(row.unsqueeze(0)).steps for row in x}
    assert max(steps) > min(steps) + 20  # more than one look apart
    model.gradient = teq.UnrolledGradient(500, tol=1e-14)
    assert max(steps) / 2 < model.equilibrium(x).steps < 500
    settled = gradients(model, x, y)
    model.gradient = teq.UnrolledGradient(500)
    for name, all_steps in gradients(model, x, y).items():
        assert torch.allclose(settled[name], all_steps, rtol=1e-8, atol=1e-11), name
    model.gradient = teq.UnrolledGradient(7, tol=1e-14)
    assert model.equilibrium(x).steps == 7


def test_ep_does_not_backpropagate_through_the_relaxation() -> None:
    """The graph of a forward has one node for the whole relaxation, however long it was."""
    x, y = batch()
    model = tight_model()
    loss = F.cross_entropy(model(x), y)
    names, stack, seen = [], [loss.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        names.append(node.name())
        stack += [parent for parent, _ in node.next_functions]
    assert names.count("_EquilibriumBackward") + names.count("_StepBackward") == 1
    assert not any("Tanh" in name for name in names)


def test_double_backward_raises_cleanly() -> None:
    model = tight_model()
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    (first,) = torch.autograd.grad(loss, model.input.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.sum().backward()


def test_cost_nudge_gives_the_same_gradient() -> None:
    """The classical two-phase algorithm and the linear nudge have the same limit."""
    model = tight_model(gradient=teq.CenteredEP(1e-3))
    x, y = batch()
    classical = teq.nudged_gradients(model, x, y)
    model.gradient = teq.ImplicitGradient()
    exact = gradients(model, x, y)
    for name, found in classical.items():
        assert cosine(found, exact[name]) >= 0.999999, name
        assert float(found.norm() / exact[name].norm()) == pytest.approx(1, abs=1e-4)


def test_cost_nudge_with_another_cost_and_frozen_parameters() -> None:
    model = tight_model(gradient=teq.CenteredEP(1e-3))
    model.input.bias.requires_grad_(False)
    x, _ = batch()
    target = torch.zeros(BATCH, CLASSES, dtype=torch.float64)

    def squared_error(output: Tensor, wanted: Tensor) -> Tensor:
        return 0.5 * (output - wanted).square().sum(1)

    found = teq.nudged_gradients(model, x, target, cost=squared_error)
    assert "input.bias" not in found
    model.gradient = teq.ImplicitGradient()
    squared_error(model(x), target).mean().backward()
    for name, p in model.named_parameters():
        if name in found:
            assert cosine(found[name], p.grad) >= 0.999999, name


def test_nudged_backward_accumulates() -> None:
    model = tight_model()
    x, y = batch()
    teq.nudged_backward(model, x, y)
    once = model.input.weight.grad.clone()
    teq.nudged_backward(model, x, y)
    assert torch.allclose(model.input.weight.grad, 2 * once)


def test_cost_nudge_refuses_an_oracle() -> None:
    model = tight_model(gradient=teq.ImplicitGradient())
    with pytest.raises(teq.UnsupportedModelError, match="CenteredEP"):
        teq.nudged_gradients(model, *batch())


def test_a_kind_of_unrolled_gradient_goes_through_the_trajectory_too() -> None:
    class Own(teq.UnrolledGradient):
        """The same under another name."""

    torch.manual_seed(0)
    x, model = torch.randn(5, 4), teq.LoopedMLP(4, 8, 3, radius=0.5)
    found = []
    for gradient in (teq.UnrolledGradient(20), Own(20)):
        model.gradient = gradient
        found.append(torch.autograd.grad(model(x).sum(), model.recurrent.raw)[0])
    assert torch.equal(*found)
