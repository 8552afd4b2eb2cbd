"""A LoopedMLP is an ordinary torch module: everything torch does with modules works."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn import functional as F

import toreqprop as teq


def model_and_batch(**options: object) -> tuple[teq.LoopedMLP, Tensor, Tensor]:
    torch.manual_seed(3)
    model = teq.LoopedMLP(8, 16, 3, **options)  # type: ignore[arg-type]
    with torch.no_grad():  # recurrence that matters
        model.recurrent.raw.mul_(10)
    return model, torch.randn(12, 8), torch.randint(0, 3, (12,))


def grads(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_optimizer_lowers_the_loss(name: str) -> None:
    model, x, y = model_and_batch()
    optimizer = OPTIMIZERS[name](model.parameters())
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_lbfgs_with_closure() -> None:
    model, x, y = model_and_batch(tol=1e-6)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=10)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    before = float(closure().detach())
    optimizer.step(closure)
    assert float(closure().detach()) < 0.7 * before


def test_state_dict_round_trip_with_weights_only(tmp_path: Path) -> None:
    model, x, _ = model_and_batch()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = teq.LoopedMLP(8, 16, 3)
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert torch.equal(model(x), other(x))


@pytest.mark.parametrize(
    "clone",
    [
        copy.deepcopy,
        lambda m: pickle.loads(pickle.dumps(m)),
        lambda m: torch.load(_saved(m), weights_only=False),
    ],
    ids=["deepcopy", "pickle", "torch.save"],
)
def test_copies_are_equal_and_independent(clone: object) -> None:
    options = {"gradient": teq.OneSidedEP(0.03), "tol": 1e-5, "radius": 0.8}
    model, x, y = model_and_batch(**options)
    model.input.bias.requires_grad_(False)
    model.eval()
    state = torch.get_rng_state()
    other = clone(model)  # type: ignore[operator]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model(x), other(x))
    assert other.gradient == model.gradient
    assert other.tol == model.tol
    assert not other.training
    assert not other.input.bias.requires_grad
    expected = grads(model, x, y)
    for name, gradient in grads(other, x, y).items():
        assert torch.equal(gradient, expected[name])
    with torch.no_grad():
        other.input.weight.zero_()
    assert float(model.input.weight.detach().abs().sum()) > 0


def _saved(model: nn.Module) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return buffer


def test_a_model_inside_a_module_is_copied_too() -> None:
    model, x, _ = model_and_batch()
    whole = nn.Sequential(nn.LayerNorm(8), model)
    assert torch.equal(whole(x), pickle.loads(pickle.dumps(whole))(x))
    assert torch.equal(whole(x), copy.deepcopy(whole)(x))


def test_tied_weights_survive_pickling_together() -> None:
    first, _, _ = model_and_batch()
    second, _, _ = model_and_batch()
    second.readout.weight = first.readout.weight
    a, b = pickle.loads(pickle.dumps((first, second)))
    assert a.readout.weight is b.readout.weight


def test_double() -> None:
    model, x, y = model_and_batch()
    single = grads(model, x, y)
    double = grads(model.double(), x.double(), y)
    for name, gradient in double.items():
        assert gradient.dtype == torch.float64
        # Both relax to a residual of 1e-3 and may stop one step apart.
        assert F.cosine_similarity(gradient.flatten(), single[name].double().flatten(), 0) > 0.9999


def test_eval_and_no_grad_save_nothing() -> None:
    model, x, _ = model_and_batch()
    model.eval()
    with torch.no_grad():
        output = model(x)
    assert output.grad_fn is None
    assert torch.equal(output, model(x).detach())


def test_gradient_accumulation_equals_one_large_batch() -> None:
    model, x, y = model_and_batch()
    whole = grads(model, x, y)
    model.zero_grad()
    for part in (slice(0, 6), slice(6, 12)):
        (0.5 * F.cross_entropy(model(x[part]), y[part])).backward()
    for name, p in model.named_parameters():
        assert torch.allclose(p.grad, whole[name], rtol=1e-4, atol=1e-7), name


def test_frozen_parameters_get_no_gradient() -> None:
    model, x, y = model_and_batch()
    full = grads(copy.deepcopy(model), x, y)  # a backward pass moves the estimate of the norm
    model.recurrent.requires_grad_(False)
    model.input.weight.requires_grad_(False)
    model.zero_grad(set_to_none=True)
    F.cross_entropy(model(x), y).backward()
    assert model.input.weight.grad is None
    assert model.recurrent.raw.grad is None
    # By the general path, whose products may be another routine's, which rounds elsewhere.
    assert torch.allclose(model.input.bias.grad, full["input.bias"], rtol=1e-4, atol=1e-7)


def test_shared_parameters_sum_their_gradients() -> None:
    model, x, y = model_and_batch()
    other = copy.deepcopy(model)
    other.input = model.input
    alone = grads(model, x, y)
    model.zero_grad()
    (F.cross_entropy(model(x), y) + F.cross_entropy(other(x), y)).backward()
    assert torch.allclose(model.input.weight.grad, 2 * alone["input.weight"], rtol=1e-5)


def test_inside_a_deeper_network_the_input_gradient_flows_on() -> None:
    model, x, y = model_and_batch(tol=1e-6, gradient=teq.CenteredEP(0.01))
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), model)
    ep = grads(net, x, y)
    model.gradient = teq.ImplicitGradient()
    for name, exact in grads(net, x, y).items():
        assert F.cosine_similarity(ep[name].flatten(), exact.flatten(), 0) > 0.999, name


def test_backward_twice_with_retain_graph() -> None:
    model, x, y = model_and_batch()
    loss = F.cross_entropy(model(x), y)
    loss.backward(retain_graph=True)
    once = model.input.weight.grad.clone()
    loss.backward()
    assert torch.allclose(model.input.weight.grad, 2 * once)


def test_one_seed_gives_bit_identical_parameters() -> None:
    def run() -> list[Tensor]:
        model, x, y = model_and_batch(gradient=teq.RandomSignEP())
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(15):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(run(), run(), strict=True))


def _ddp_worker(rank: int, store: str, out: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    model, x, y = model_and_batch()
    wrapped = nn.parallel.DistributedDataParallel(model)
    half = slice(0, 6) if rank == 0 else slice(6, 12)
    F.cross_entropy(wrapped(x[half]), y[half]).backward()
    torch.save({n: p.grad for n, p in model.named_parameters()}, f"{out}.{rank}")
    torch.distributed.destroy_process_group()


def test_distributed_data_parallel_on_two_processes(tmp_path: Path) -> None:
    mp.spawn(_ddp_worker, (str(tmp_path / "store"), str(tmp_path / "grads")), nprocs=2)
    model, x, y = model_and_batch()
    expected = grads(model, x, y)
    for rank in (0, 1):
        found = torch.load(tmp_path / f"grads.{rank}", weights_only=True)
        assert found.keys() == expected.keys()
        for name, gradient in found.items():
            assert torch.allclose(gradient, expected[name], rtol=1e-4, atol=1e-7), name
