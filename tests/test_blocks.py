"""Equilibrium blocks inside ordinary networks: one backward pass for both, end to end."""

from __future__ import annotations

import copy
import io
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import toreqprop as teq
from tests.problems import cosine

TIGHT = {"tol": 1e-10, "max_steps": 2000, "gradient": teq.CenteredEP(1e-5)}


def maps(feedback: float = 0.2) -> nn.Sequential:
    """Convolution, batch norm and ReLU by autograd, maps by EP, the readout by autograd."""
    block = teq.Block(
        nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(),
            teq.Residual(nn.Conv2d(4, 4, 3, padding=1)), nn.Tanh(),
            nn.Conv2d(4, 3, 3, stride=2, padding=1), nn.Sigmoid(),
        ),
        feedback=feedback, **TIGHT,
    )  # fmt: skip
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), block,
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 4),
    )  # fmt: skip


def two_blocks() -> nn.Sequential:
    """Blocks on top of each other with autograd between: each has an energy of its own."""
    first = teq.Block(
        nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 3, 3), nn.Tanh()),
        feedback=0.5, **TIGHT,
    )  # fmt: skip
    second = teq.Block(
        nn.Sequential(nn.Linear(12, 6), nn.Softplus(), nn.Linear(6, 5), nn.Tanh()),
        feedback=0.7, **TIGHT,
    )  # fmt: skip
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), first, nn.MaxPool2d(3), nn.GELU(), nn.Flatten(),
        second, nn.LayerNorm(5), nn.Linear(5, 4),
    )  # fmt: skip


NETWORKS: dict[str, Callable[[], nn.Sequential]] = {"maps": maps, "two blocks": two_blocks}
EVERY = pytest.mark.parametrize("name", NETWORKS)


def made(name: str) -> tuple[nn.Sequential, Tensor, Tensor]:
    net = NETWORKS[name]().double()
    x = torch.randn(4, 1, 8, 8, dtype=torch.float64)
    return net, x, torch.randint(0, 4, (4,))


def gradients(net: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    net.zero_grad()
    x = x.clone().requires_grad_()
    F.cross_entropy(net(x), y).backward()
    found = {n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None}
    assert x.grad is not None
    return {**found, "input": x.grad}


@EVERY
def test_the_gradient_is_exact_end_to_end(name: str) -> None:
    """Every tensor, in front of the blocks, inside and behind, against the implicit gradient."""
    net, x, y = made(name)
    exact = copy.deepcopy(net)
    for module in exact:
        if isinstance(module, teq.Block):
            module.gradient = teq.ImplicitGradient()
    found, wanted = gradients(net, x, y), gradients(exact, x, y)
    assert len(found) == len(list(net.parameters())) + 1
    for tensor, gradient in found.items():
        if float(wanted[tensor].norm()) < 1e-12:  # a bias that batch norm takes away again
            continue
        assert cosine(gradient, wanted[tensor]) > 0.9999, tensor
        assert float(gradient.norm() / wanted[tensor].norm()) == pytest.approx(1, abs=1e-3), tensor


@EVERY
def test_the_gradient_is_the_slope_of_the_loss(name: str) -> None:
    """Central differences of the loss itself share no code with either gradient."""
    net, x, y = made(name)
    found = gradients(net, x, y)
    parameters = dict(net.named_parameters())
    for part in ("0.", "1.", *(f"{k}." for k, m in enumerate(net) if isinstance(m, teq.Block))):
        moves = {n: 1e-5 * torch.randn_like(p) for n, p in parameters.items() if n.startswith(part)}
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                for n, move in moves.items():
                    parameters[n].add_(sign * move)
                ends.append(F.cross_entropy(net(x), y).item())
                for n, move in moves.items():
                    parameters[n].sub_(sign * move)
        slope = sum(float((found[n] * move).sum()) for n, move in moves.items())
        # The relaxations stop at 1e-10, a hundred thousand times below the steps.
        assert 0.5 * (ends[0] - ends[1]) == pytest.approx(slope, rel=1e-3, abs=1e-9), part


def test_a_block_returns_the_states_of_its_last_layer() -> None:
    net, x, _ = made("maps")
    states = net[:4](x)
    assert states.shape == (4, 3, 4, 4)
    assert torch.equal(states, net[3].equilibrium(net[:3](x)).state[-1])


def test_networks_with_blocks_are_ordinary_modules() -> None:
    net, x, _ = made("maps")
    net.eval()
    kept = io.BytesIO()
    torch.save(net.state_dict(), kept)
    kept.seek(0)
    other = NETWORKS["maps"]().double().eval()
    other.load_state_dict(torch.load(kept))
    assert torch.equal(other(x), net(x))
    assert torch.equal(copy.deepcopy(net)(x), net(x))
    block = net[3]
    again = teq.Block(**block.config()).double()
    again.load_state_dict(block.state_dict())
    assert torch.equal(again(net[:3](x)), block(net[:3](x)))


def test_a_block_is_certified_on_its_own() -> None:
    net, x, _ = made("maps")
    inner = net[:3](x).detach()
    target = torch.rand(4, 3, 4, 4, dtype=torch.float64)
    certificate = teq.certify(net[3], inner, target, loss=F.mse_loss)
    assert certificate.ok, certificate.verdict
    assert certificate.min_cosine > 0.9999
    assert certificate.backprop_cosine is not None
    assert certificate.backprop_cosine < 0.9999


@pytest.mark.parametrize(
    ("net", "module"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), "Linear (module 2)"),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Tanh()), "Flatten (module 0)"),
    ],
)
def test_a_block_is_neurons_from_end_to_end(net: nn.Sequential, module: str) -> None:
    with pytest.raises(teq.InvalidInputError) as error:
        teq.Block(net)
    assert module in str(error.value)
    assert "before or after the block" in str(error.value)


def test_the_example_learns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    path = Path(__file__).parents[1] / "examples" / "blocks_digits.py"
    monkeypatch.setattr("sys.argv", [str(path), "--fast"])
    outcome = runpy.run_path(str(path))
    printed = capsys.readouterr().out
    assert outcome["right"] > 0.7  # chance is 0.1
    assert "PASS" in printed
