"""Everything that settles goes through `relax` and `relax_pair`, and means the same by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import toreqprop as teq
from toreqprop import plots
from toreqprop.gradients import ESTIMATORS, base
from toreqprop.kernels import KERNELS


def looped(radius: float = 0.9, **options: Any) -> teq.LoopedMLP:
    torch.manual_seed(0)
    model = teq.LoopedMLP(12, 40, 4, radius=radius, **options)
    with torch.no_grad():
        model.recurrent.raw.mul_(30)
    return model


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(16, 12), torch.randint(0, 4, (16,))


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_equilibrium_is_what_the_output_is_read_from(kernel: str) -> None:
    model, (x, _) = looped(kernel=kernel), batch()
    solution = model.equilibrium(x)
    # Products of compiled code may be another routine's: sums of forty terms round apart.
    assert torch.allclose(model.readout_from(solution.state), model(x), rtol=0, atol=1e-5)
    assert torch.isfinite(solution.error_bound).all()


@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-5])
def test_every_kernel_stops_by_the_same_rule(tol: float) -> None:
    x, y = batch()
    found = []
    for kernel in KERNELS:
        model = looped(kernel=kernel, tol=tol, solver=teq.FixedPoint()).double()
        model.tol = tol
        seen: list[teq.Solution] = []
        model.register_relaxation_hook(lambda phase, solution, seen=seen: seen.append(solution))
        F.cross_entropy(model(x.double()), y).backward()
        found.append(seen)
    for free, pair in found[1:]:
        assert free.steps == found[0][0].steps
        assert torch.allclose(free.residual, found[0][0].residual.double(), rtol=1e-9)
        assert pair.steps == found[0][1].steps
        assert torch.allclose(pair.shift[0], found[0][1].shift[0], rtol=1e-9)
        assert pair.worst_residual <= tol


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_contrast_is_relaxed_as_a_pair(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = base.relax_pair

    def counted(*args: Any, **kwargs: Any) -> teq.Solution:
        calls.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(base, "relax_pair", counted)
    monkeypatch.setattr("toreqprop.models.base.compiled_step", lambda *given: None)
    model, (x, y) = looped(gradient=ESTIMATORS[name](), on_failure="ignore"), batch()
    F.cross_entropy(model(x), y).backward()
    without = {"implicit", "unrolled", "recurrent_backprop", "continual"}
    assert bool(calls) == (name not in without)


def test_the_tolerance_belongs_to_the_solver() -> None:
    model = looped(solver=teq.FixedPoint(tol=1e-5, max_steps=77))
    assert (model.tol, model.max_steps) == (1e-5, 77)
    model.tol = 1e-2
    assert model.solver == teq.FixedPoint(tol=1e-2, max_steps=77)
    assert looped(solver=teq.Anderson(tol=1e-5), tol=1e-4).solver == teq.Anderson(tol=1e-4)


MODELS: dict[str, Callable[[], tuple[teq.EquilibriumModel, Tensor, Tensor]]] = {
    f"{name} {options}": (lambda cls=cls, options=options: cls.example(**options))
    for name, cls in teq.models.MODELS.items()
    for options in cls.variants
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_pictures_of_every_model(name: str) -> None:
    torch.manual_seed(0)
    model, x, y = MODELS[name]()

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output.flatten(0, -2), target.flatten())

    data = plots.relaxation_data(model, x, y, loss=loss)
    assert [p["phase"] for p in data["phases"]] == ["free", "nudged +β", "nudged −β"]
    assert plots.trajectories(model, x, y, loss=loss).axes


def test_a_penalty_on_activity_trains_by_the_same_backward() -> None:
    """``model.equilibrium(x).state`` is differentiable: against the exact gradient."""
    x, _ = batch()
    found = []
    for gradient in (teq.CenteredEP(), teq.ImplicitGradient()):
        model = looped(gradient=gradient, tol=1e-6, max_steps=500)
        model.equilibrium(x).state[0].square().mean().backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert set(found[0]) == {"input.weight", "input.bias", "recurrent.raw"}
    for name, gradient in found[0].items():
        assert F.cosine_similarity(gradient.flatten(), found[1][name].flatten(), 0) > 0.999, name


def test_relaxations_that_fail_are_counted_and_told_at_the_end() -> None:
    x, y = batch()
    model = looped(max_steps=2, tol=1e-9)
    config = teq.training.TrainingConfig(epochs=2, batch_size=8)
    with pytest.warns(teq.ConvergenceWarning) as caught:
        history = teq.training.fit(model, x, y, config)
    messages = [str(w.message) for w in caught]
    assert sum("stopped at max_steps" in m for m in messages) == 1
    assert messages[-1].startswith("8 of 8 relaxations did not converge (")
    assert "free phase, layer 0, MAX_STEPS: 4" in messages[-1]
    assert "nudged phase, layer 0, MAX_STEPS: 4" in messages[-1]
    assert history.epochs[0].failures == {
        "free phase, layer 0, MAX_STEPS": 2,
        "nudged phase, layer 0, MAX_STEPS": 2,
    }
    assert model.failures["free", "MAX_STEPS", 0] == 4
    assert model.relaxations == 8


def test_a_phase_ends_by_the_radius_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is made to find out that the last one was enough; what is left is below ``tol``."""
    torch.manual_seed(0)
    model = teq.LoopedMLP(20, 30, 4, radius=0.3, bound="tight")
    with torch.no_grad():
        model.recurrent.raw.mul_(10)
    x = torch.randn(8, 20)
    found = model.equilibrium(x)
    with torch.no_grad():
        state = found.state[0].detach()
        drive = F.linear(x, model.input.weight, model.input.bias)
        step = torch.tanh(drive + state @ model.recurrent.weight) - state
    assert float((step.norm(dim=1) / state.norm(dim=1)).max()) <= model.tol
    monkeypatch.setattr(model, "residual_factor", lambda: None)
    assert model.equilibrium(x).steps > found.steps
