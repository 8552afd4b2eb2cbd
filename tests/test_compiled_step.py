"""A training step in two compiled calls is the general path, only faster."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import toreqprop as teq
from toreqprop.kernels import compiled_available
from toreqprop.models import base

pytestmark = pytest.mark.skipif(not compiled_available(), reason="needs Numba")

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "two layers": ([12, 16, 14, 5], {}),
    "one layer": ([12, 16, 5], {"feedback": 1.0}),
    "full feedback": ([12, 16, 14, 5], {"feedback": 1.0, "tol": 1e-5}),
    "near backprop": ([12, 16, 14, 5], {"feedback": 0.1, "tol": 0.1}),
    "many layers": ([12, 10, 9, 8, 7, 5], {"feedback": 0.5}),
    "outputs that are neurons": ([12, 16, 14, 5], {"output": "free"}),
    "no bound": ([12, 16, 14, 5], {"spectral_norm": False}),
    "looped": ((12, 16, 5), {}),
    "looped, with a gain": ((12, 16, 5), {"gain": 8.0}),
    "looped, nearly critical": ((12, 16, 5), {"radius": 0.95, "tol": 1e-5}),
}


def network(case: str, dtype: torch.dtype, scale: float = 1.0) -> teq.EquilibriumModel:
    torch.manual_seed(0)
    sizes, options = CASES[case]
    model: teq.EquilibriumModel
    if isinstance(sizes, list):
        model = teq.HopfieldMLP(sizes, **options)
    else:
        model = teq.LoopedMLP(*sizes, **options)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(scale)
    return model.to(dtype)


def batch(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.randn(9, 12, dtype=dtype), torch.randint(0, 5, (9,))


def taken(model: teq.EquilibriumModel, x: Tensor) -> bool:
    """Whether the compiled step serves."""
    return "_Step" in type(model.equilibrium(x).state[-1].grad_fn).__name__


def is_read(model: teq.EquilibriumModel, x: Tensor) -> bool:
    """Whether the readout is a part of it."""
    return "_Step" in type(model(x).grad_fn).__name__


def generally(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(base, "compiled_step", lambda *given: None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", list(CASES))
def test_trains_as_the_general_path_does(
    case: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights three times as large as drawn: they are scaled into their balls. The free phase of a
    stack begins elsewhere than on the general path, so that both agree to the tolerance alone."""
    one = network(case, dtype, 3.0)
    one.tol = 1e-6 if dtype == torch.float32 else 1e-13
    two = copy.deepcopy(one)
    data = [batch(dtype) for _ in range(5)]
    assert taken(one, data[0][0])
    assert is_read(copy.deepcopy(one), data[0][0])
    for number, model in enumerate((one, two)):
        if number:
            generally(monkeypatch)
            assert not taken(model, data[0][0])
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for x, y in data:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    digits = 1e-4 if dtype == torch.float32 else 1e-11
    for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        assert torch.allclose(a, b, rtol=digits, atol=digits)
    assert one.relaxations == two.relaxations


@pytest.mark.parametrize("case", ["two layers", "looped"])
def test_reports_what_the_general_path_does(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the gradient of the input."""
    x, y = batch(torch.float64)
    seen: list[Any] = []
    slopes = []
    for number in range(2):
        if number:
            generally(monkeypatch)
        model = network(case, torch.float64, 3.0)
        model.tol = 1e-12  # the free phase of a stack begins elsewhere
        model.register_relaxation_hook(lambda phase, found: seen.append((phase, found)))
        given = x.clone().requires_grad_()
        F.cross_entropy(model(given), y).backward()
        assert given.grad is not None
        slopes.append(given.grad)
    assert torch.allclose(*slopes, rtol=1e-10, atol=1e-14)
    for (phase, one), (other, two) in zip(seen[:2], seen[2:], strict=True):
        assert (phase, one.status) == (other, two.status)
        assert abs(one.steps - two.steps) <= (case == "two layers" and phase == "free")
        assert float(one.residual.max()) <= model.tol
        assert torch.allclose(one.error_bound, two.error_bound, rtol=1e-3, atol=1e-11)
        for a, b in zip((*one.state, *one.shift), (*two.state, *two.shift), strict=True):
            assert torch.allclose(a, b, rtol=1e-10, atol=1e-14)


def gradients(model: teq.EquilibriumModel, loss: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("case", ["two layers", "looped"])
def test_what_asks_for_more_gets_it(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A penalty on activity below, a β for which the center has to move, weights beyond squares."""
    x, y = batch(torch.float64)

    def penalty(model: teq.EquilibriumModel) -> Tensor:
        state = model.equilibrium(x).state
        return F.cross_entropy(model.readout_from(state), y) + state[0].square().mean()

    def strong(model: teq.EquilibriumModel) -> Tensor:
        model.gradient, model.tol = teq.CenteredEP(0.5), 1e-9
        return F.cross_entropy(model(x), y)

    def huge(model: teq.EquilibriumModel) -> Tensor:
        part = model.recurrent if case == "looped" else model.layers[1]
        with torch.no_grad():
            part.raw.mul_(1e30)  # type: ignore[operator, union-attr]
        return F.cross_entropy(model(x), y)

    for loss in (penalty, strong, huge):
        one, two = network(case, torch.float64), network(case, torch.float64)
        one.tol = two.tol = 1e-9  # the free phase of a stack begins elsewhere
        found = gradients(one, loss(one))
        with monkeypatch.context() as patch:
            generally(patch)
            asked = gradients(two, loss(two))
        for a, b in zip(found, asked, strict=True):
            assert torch.allclose(a, b, rtol=1e-6, atol=1e-12), loss.__name__


def test_a_loss_that_is_not_finite_has_such_gradients() -> None:
    model = network("two layers", torch.float32)
    x, y = batch(torch.float32)
    assert taken(model, x)
    (F.cross_entropy(model(x), y) * torch.inf).backward()
    assert all(bool(p.grad.isnan().all()) for p in model.layers.parameters() if p.grad is not None)


@pytest.mark.parametrize("case", ["two layers", "looped"])
def test_certificates_are_of_the_step_itself(case: str) -> None:
    """A fault of the compiled code alone is refused."""
    from toreqprop.verify.mutations.kernels import MUTATIONS

    x, y = batch(torch.float32)
    assert teq.certify(network(case, torch.float32, 3.0), x, y).ok
    faults = [m for m in MUTATIONS if m.name.startswith("compiled step")]
    with faults[case == "looped"].plant():
        assert not teq.certify(network(case, torch.float32, 3.0), x, y).ok


def test_everything_unusual_takes_the_general_path() -> None:
    x, _ = batch(torch.float32)
    model = network("two layers", torch.float32)
    assert taken(model, x)
    model.gradient = teq.OneSidedEP()
    assert not taken(model, x)
    model.gradient = teq.CenteredEP(swap=True)
    assert not taken(model, x)
    model.gradient = teq.CenteredEP()
    model.kernel = "torch"
    assert not taken(model, x)
    model.kernel = "auto"
    model.layers[0].weight.requires_grad_(False)  # type: ignore[union-attr, operator]
    assert not taken(model, x)

    class Doubled(teq.HopfieldMLP):
        def system_parameters(self) -> tuple[Tensor, ...]:
            return tuple(2 * p for p in super().system_parameters())

    assert not taken(Doubled([12, 16, 14, 5], spectral_norm=False), x)


def test_what_changes_between_steps_is_seen() -> None:
    """Tolerance, radius and number type: nothing of an earlier step stays."""
    x, _ = batch(torch.float32)
    model = network("full feedback", torch.float32, 3.0)
    before = model.equilibrium(x)
    model.tol = 1e-2
    assert model.equilibrium(x).steps < before.steps
    model.layers[1].constraints[0].radius = 0.1  # type: ignore[union-attr, index]
    assert model.lipschitz() < 0.2
    assert not torch.equal(model.equilibrium(x).state[0], before.state[0])
    assert taken(model.double(), x.double())


@pytest.mark.parametrize("case", ["two layers", "looped"])
def test_a_readout_that_is_watched_or_frozen_is_called(case: str) -> None:
    x, y = batch(torch.float32)
    model = network(case, torch.float32)
    assert is_read(model, x)
    readout: Any = model.readout
    seen: list[Tensor] = []
    hook = readout.register_forward_hook(lambda layer, given, said: seen.append(said))
    assert not is_read(model, x)
    assert len(seen) == 1
    hook.remove()
    readout.bias.requires_grad_(False)
    F.cross_entropy(model(x), y).backward()
    assert readout.bias.grad is None
    assert readout.weight.grad is not None


@pytest.mark.parametrize("case", ["two layers", "looped"])
def test_gradients_are_of_the_parameters_that_were_saved(case: str) -> None:
    """Where autograd allows to change what it has saved, it keeps a copy."""
    model, (x, y) = network(case, torch.float64), batch(torch.float64)
    model.tol = 1e-12
    params = list(model.parameters())
    wanted = torch.autograd.grad(F.cross_entropy(model(x), y), params)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        loss = F.cross_entropy(model(x), y)
        with torch.no_grad():
            for p in params:
                p.mul_(-2)
        found = torch.autograd.grad(loss, params)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("case", ["two layers", "looped"])
def test_hooks_in_a_new_table_are_called(case: str) -> None:
    model, (x, _) = network(case, torch.float32), batch(torch.float32)
    assert is_read(model, x)
    called: list[str] = []
    model.readout._forward_hooks = OrderedDict()
    model.readout.register_forward_hook(lambda *given: called.append("after"))
    model(x)
    assert called == ["after"]


@pytest.mark.parametrize("case", ["two layers", "looped"])
def test_what_a_hook_is_given_can_be_kept(case: str) -> None:
    model, (x, y) = network(case, torch.float32), batch(torch.float32)
    kept: list[tuple[Any, Any]] = []
    model.register_relaxation_hook(
        lambda phase, found: kept.append((found, pickle.loads(pickle.dumps(found))))
    )
    F.cross_entropy(model(x), y).backward()
    assert len(kept) == 2
    for found, copied in kept:
        assert torch.equal(found.residual, copied.residual)
        assert all(map(torch.equal, found.state + found.shift, copied.state + copied.shift))


@pytest.mark.parametrize("case", ["two layers", "looped"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_are_refused(case: str, value: float) -> None:
    """They are found in the drive, which is what an infinite input makes of it too."""
    x, _ = batch(torch.float32)
    x[3, 2] = value
    with pytest.raises(teq.InvalidInputError, match="NaN or infinite"):
        network(case, torch.float32)(x)


def test_phases_that_begin_ahead_take_fewer_passes() -> None:
    """Of a stack near the edge of stability, whose couplings training has made large in few
    directions; and what they end with is no farther from the equilibrium."""
    torch.manual_seed(0)
    model = teq.HopfieldMLP([8, 64, 64, 4], feedback=1.0, radius=0.95, tol=5e-3)
    x = torch.randn(48, 8)
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    with torch.no_grad():
        for layer in model.layers[1:]:
            layer.raw *= 4
    chosen = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(40):
        chosen.zero_grad()
        F.cross_entropy(model(x), y).backward()
        chosen.step()
    found = {}
    for kernel in ("auto", "torch"):
        steps: list[int] = []
        model.kernel = kernel
        key = model.register_relaxation_hook(lambda _, ended, seen=steps: seen.append(ended.steps))
        F.cross_entropy(model(x), y).backward()
        model.remove_relaxation_hook(key)
        found[kernel] = steps
    model.kernel = "auto"
    assert found["auto"][0] < found["torch"][0]
    assert teq.certify(model, x, y).ok


@pytest.mark.parametrize("width", [16, 24])
def test_couplings_that_are_alike_in_all_directions(width: int) -> None:
    """Orthogonal ones, of which the estimate of the norm finds half a block: the others count."""
    torch.manual_seed(0)
    model = teq.HopfieldMLP([12, width, width, 5], feedback=0.1, radius=0.97, tol=0.1)
    x, y = batch(torch.float32)
    seen: list[int] = []
    model.register_relaxation_hook(lambda _, ended: seen.append(ended.steps))
    F.cross_entropy(model(x), y).backward()
    assert seen == [1, 1]
    assert teq.certify(model, x, y).ok


@pytest.mark.parametrize("case", ["two layers", "looped"])
@pytest.mark.parametrize("bias", [5, 3])
def test_a_readout_that_does_not_fit_is_refused(case: str, bias: int) -> None:
    """By torch, whose products check shapes; compiled code would read and write beyond."""
    model, (x, _) = network(case, torch.float32), batch(torch.float32)
    top = model.readout.in_features  # type: ignore[union-attr, operator]
    model.readout = torch.nn.Linear(top - 4 if bias == 5 else top, 5)  # type: ignore[operator]
    model.readout.bias = torch.nn.Parameter(torch.zeros(bias))
    with pytest.raises(RuntimeError):
        model(x)


@pytest.mark.parametrize("case", ["two layers", "looped"])
def test_a_first_layer_that_was_replaced_is_refused(case: str) -> None:
    model, (x, _) = network(case, torch.float32), batch(torch.float32)
    if case == "looped":
        model.input = torch.nn.Linear(20, 16)
    else:
        model.layers[0] = torch.nn.Linear(20, 16)  # type: ignore[operator]
    with pytest.raises((RuntimeError, teq.errors.InvalidInputError)):
        model.equilibrium(x)


class Labelled(Tensor):
    """Numbers with something beside them."""


@pytest.mark.parametrize("case", ["two layers", "looped"])
def test_inputs_that_are_not_plain_rows_take_the_general_path(case: str) -> None:
    model, (x, _) = network(case, torch.float32), batch(torch.float32)
    expected = model(x)
    for other in (x.as_subclass(Labelled), torch._neg_view(-x)):
        assert not taken(model, other)
        assert torch.allclose(model(other).as_subclass(Tensor), expected, atol=1e-3)
    zeros = torch._efficientzerotensor(tuple(x.shape))
    assert torch.allclose(model(zeros), model(torch.zeros_like(x)), atol=1e-3)
    model.zero_grad()
    model(x).backward(torch._efficientzerotensor(tuple(expected.shape)))
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)
    with FlopCounterMode(display=False) as counter:
        model(x)
    assert counter.get_total_flops() > 0


@pytest.mark.parametrize("case", ["two layers", "looped"])
def test_what_is_saved_may_come_back_elsewhere(case: str) -> None:
    """Somebody keeps saved tensors in a pool: they are views at an offset then."""

    def pooled(tensor: Tensor) -> Tensor:
        pool = torch.full((tensor.numel() + 7,), 1e3, dtype=tensor.dtype)
        view = pool[7:].view(tensor.shape)
        view.copy_(tensor.detach())
        return view

    model, (x, y) = network(case, torch.float64), batch(torch.float64)
    model.tol = 1e-10
    expected = gradients(model, F.cross_entropy(model(x), y))
    with torch.autograd.graph.saved_tensors_hooks(pooled, lambda tensor: tensor):
        loss = F.cross_entropy(model(x), y)
    for one, two in zip(gradients(model, loss), expected, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("case", ["two layers", "looped"])
def test_hooks_of_all_modules_and_methods_of_one_model_are_called(case: str) -> None:
    model, (x, _) = network(case, torch.float32), batch(torch.float32)
    expected = model(x)

    def doubled(module: torch.nn.Module, given: Any, output: Any) -> Any:
        return 2 * output if module is model.readout else None

    handle = torch.nn.modules.module.register_module_forward_hook(doubled)
    assert torch.allclose(model(x), 2 * expected, atol=1e-2)  # it begins elsewhere
    handle.remove()
    assert torch.equal(model(x), expected)
    for name in ("readout_from", "field_input", "check_input"):
        own = mock.Mock(wraps=getattr(model, name))
        setattr(model, name, own)
        model(x)
        assert own.called, name
        delattr(model, name)


def test_a_sample_thrown_far_off_comes_back() -> None:
    """Through a layer of one neuron, energy along the last passes may say go far, where there is
    nothing: a sample whose residual doubles goes on from its image."""
    failed = 0
    for seed in range(12):
        torch.manual_seed(seed)
        model = teq.HopfieldMLP(
            [17, 1, 33, 64, 17, 10], feedback=0.5, spectral_norm=False, tol=1e-4,
            on_failure="ignore",
        )  # fmt: skip
        found = model.equilibrium(torch.randn(100, 17))
        failed += found.status is not teq.Status.CONVERGED
    assert failed == 0
