"""Models on every kernel: the same gradients as the general path, the same contract."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.kernels import KERNELS

WIDE = {"tol": 1e-10, "max_steps": 400}


def model(kernel, dtype=torch.float64, **options):
    torch.manual_seed(0)
    made = teq.LoopedMLP(6, 20, 3, kernel=kernel, **options).to(dtype)
    with torch.no_grad():
        made.recurrent.raw.mul_(6.0)
    return made


def batch(dtype=torch.float64, size=9):
    torch.manual_seed(1)
    return torch.randn(size, 6, dtype=dtype), torch.randint(0, 3, (size,))


def gradients(made, x, y):
    made.zero_grad()
    F.cross_entropy(made(x), y).backward()
    return {name: p.grad.clone() for name, p in made.named_parameters()}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "estimator",
    [teq.CenteredEP(0.1), teq.OneSidedEP(0.05), teq.OneSidedEP(0.05, negative=True)],
    ids=["centered", "one-sided", "one-sided negative"],
)
@pytest.mark.parametrize("options", [{}, {"spectral_norm": False}], ids=["ball", "free norm"])
def test_gradients_equal_those_of_the_general_path(kernel, estimator, options):
    x, y = batch()
    x.requires_grad_()
    wanted = gradients(model(None, gradient=estimator, **WIDE, **options), x, y)
    wanted["x"], x.grad = x.grad, None
    found = gradients(model(kernel, gradient=estimator, **WIDE, **options), x, y)
    found["x"] = x.grad
    for name, value in wanted.items():
        # Both relax to 1e-10 of the nudge, which β = 0.05 divides by at most 20.
        assert torch.allclose(found[name], value, rtol=1e-7, atol=1e-8), name


@pytest.mark.parametrize("kernel", KERNELS)
def test_float32_at_speed_settings_agrees_with_the_exact_gradient(kernel):
    x, y = batch(torch.float32, 64)
    found = gradients(model(kernel, torch.float32), x, y)
    exact = gradients(model(None, torch.float32, gradient=teq.ImplicitGradient()), x, y)
    for name, value in exact.items():
        cosine = F.cosine_similarity(found[name].flatten(), value.flatten(), dim=0)
        assert float(cosine) >= 0.99, name


@pytest.mark.parametrize("kernel", KERNELS)
def test_reports_are_honest(kernel):
    made = model(kernel)
    seen = []
    made.register_relaxation_hook(lambda phase, solution: seen.append((phase, solution)))
    x, y = batch()
    gradients(made, x, y)
    assert [phase for phase, _ in seen] == ["free", "nudged"]
    weight_in, bias, weight = (p.detach() for p in made.system_parameters())
    state = seen[0][1].state[0]
    again = torch.tanh(F.linear(x, weight_in, bias) + state @ weight)
    measured = (again - state).norm(dim=1) / state.norm(dim=1)
    # What is reported is a proven bound on the residual of what is returned.
    assert bool((measured <= seen[0][1].residual).all())
    for _, solution in seen:
        assert solution.converged
        assert solution.worst_residual <= made.tol
        assert 1 <= solution.steps <= made.max_steps
    exact = model(None, tol=1e-13, max_steps=1000).equilibrium(x).state[0]
    assert bool(((state - exact).norm(dim=1) <= seen[0][1].error_bound).all())


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_relaxation_that_did_not_converge_is_reported(kernel):
    x, _ = batch()
    made = model(kernel, max_steps=1, tol=1e-9, on_failure="raise")
    with pytest.raises(teq.ConvergenceError, match="after 1 steps"):
        made(x)
    made = model(kernel)
    with torch.no_grad():
        made.input.weight[0, 0] = torch.nan
    with pytest.warns(teq.ConvergenceWarning, match="non-finite"):
        made(x)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_sample_does_not_depend_on_its_batch(kernel):
    x, _ = batch()
    made = model(kernel)
    together = made(x)
    alone = torch.cat([made(row[None]) for row in x])
    # Only the rounding of products of different heights differs.
    assert torch.allclose(together, alone, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_sample_without_a_gradient_stops_at_once(kernel):
    x, _ = batch()
    made = model(kernel)
    mask = torch.ones(len(x), 1, dtype=x.dtype)
    mask[3] = 0
    (made(x) * mask).sum().backward()
    first = made.input.weight.grad.clone()
    made = model(kernel)  # anew: a backward pass moves the estimate of the norm
    keep = torch.arange(len(x)) != 3
    made(x[keep]).sum().backward()
    assert torch.allclose(first, made.input.weight.grad, rtol=1e-10, atol=1e-12)
    assert bool(torch.isfinite(first).all())


@pytest.mark.parametrize("kernel", KERNELS)
def test_runs_are_bit_identical(kernel):
    x, y = batch(torch.float32)
    first, second = (gradients(model(kernel, torch.float32), x, y) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("kernel", ["numba", "torch"])
@pytest.mark.parametrize("scale", [1e-30, 1e6])
def test_the_gradient_scales_with_the_loss(kernel, scale):
    x, y = batch(torch.float32)
    made = model(kernel, torch.float32)
    plain = gradients(made, x, y)
    made.zero_grad()
    (F.cross_entropy(made(x), y) * scale).backward()
    found = made.input.weight.grad.double() / scale
    assert torch.allclose(found, plain["input.weight"].double(), rtol=1e-3, atol=1e-6)


def test_what_is_saved_does_not_grow_with_the_steps():
    x, y = batch()
    sizes = []
    for steps in (10, 300):
        made = model("auto", tol=1e-300, max_steps=steps, on_failure="ignore")
        saved = []

        def pack(tensor, saved=saved):
            saved.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            F.cross_entropy(made(x), y)
        sizes.append(sum(saved))
    assert sizes[0] == sizes[1]


def test_other_cases_take_the_general_path():
    x, y = batch()
    for options in (
        {"solver": teq.Anderson()},
        {"gradient": teq.ImplicitGradient()},
        {"solver": teq.FixedPoint(damping=0.5)},
    ):
        assert gradients(model("auto", **options), x, y)
    with torch.no_grad():
        assert model("auto")(x).shape == (9, 3)


def test_a_kernel_survives_pickling_and_a_bad_name_is_refused():
    x, _ = batch()
    made = model("torch")
    twin = pickle.loads(pickle.dumps(made))
    assert twin.kernel == "torch"
    assert torch.equal(made(x), twin(x))
    with pytest.raises(teq.InvalidInputError, match="kernel must be one of"):
        teq.LoopedMLP(2, 3, 1, kernel="fast")


def test_any_two_nudges_are_a_pair():
    class Lopsided(teq.CenteredEP):
        @property
        def betas(self):
            return self.beta, -self.beta / 2

    x, y = batch()
    found = gradients(model("auto", gradient=Lopsided(0.1), **WIDE), x, y)
    wanted = gradients(model("torch", gradient=Lopsided(0.1), **WIDE), x, y)
    for name, value in wanted.items():
        assert torch.allclose(found[name], value, rtol=1e-7, atol=1e-8), name
