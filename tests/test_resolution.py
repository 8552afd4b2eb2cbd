"""No gradient is silently wrong: float32 and default settings against the exact gradient.

`certify` compares every tensor and the input with the implicit gradient of a float64 copy that goes
on from the same equilibrium; it passes at cosine ≥ 0.99 and a norm ratio within 5 %.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.energies import Energy, HardSigmoid, MaxPooling, Params, Tanh
from toreqprop.solution import State, Status
from toreqprop.training import TrainingConfig, fit

Case = tuple[teq.EquilibriumModel, Tensor, Tensor]


def rows(classes: int = 10, features: int = 64, count: int = 32) -> tuple[Tensor, Tensor]:
    return torch.randn(count, features), torch.randint(0, classes, (count,))


def token_loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


def transformer() -> Case:
    tokens = torch.randint(0, 10, (16, 8))
    model = teq.EquilibriumTransformer(10, 8, width=32, variant="energy", layers=6)
    return model, tokens, tokens.flip(1)


def max_pooled() -> Case:
    model = teq.HopfieldConvNet((1, 16, 16), (8, 8, 8, 8), 10, kernel_size=3, pooling=MaxPooling())
    return model, *rows(features=256, count=16)


def looks_at_one_unit_per_class() -> Case:
    model = teq.LoopedMLP(64, 2048, 10)
    with torch.no_grad():
        model.readout.weight.zero_()
        model.readout.weight[torch.arange(10), 100 * torch.arange(10)] = 5.0
    return model, *rows()


CASES: dict[str, Callable[[], Case]] = {
    "six layers": lambda: (teq.HopfieldMLP([64] + [128] * 6 + [10]), *rows()),
    "twelve layers": lambda: (teq.HopfieldMLP([64] + [128] * 12 + [10]), *rows()),
    "six layers of attention": transformer,
    "four max-pooled convolutions": max_pooled,
    "concentrated readout": looks_at_one_unit_per_class,
    "a thousand free outputs": lambda: (
        teq.HopfieldMLP([64, 64, 1000], output="free"),
        *rows(1000),
    ),
    "near the edge of stability": lambda: (teq.HopfieldMLP.deep(64, 32, 4, 10), *rows()),
}


@pytest.mark.parametrize("trained", [False, True], ids=["initial", "trained"])
@pytest.mark.parametrize("name", CASES)
def test_default_gradients_in_float32(name: str, trained: bool) -> None:
    torch.manual_seed(0)
    model, x, y = CASES[name]()
    if trained:
        fit(model, x, y, TrainingConfig(epochs=5, batch_size=8), loss=token_loss)
    certificate = teq.certify(model, x, y, loss=token_loss)
    assert certificate.ok, [t for t in certificate.tensors if not t.ok]
    assert all(p.converged for p in certificate.phases)


def test_a_displacement_of_1e_9_keeps_its_digits() -> None:
    """Twelve layers: at the bottom the phases differ by less than a rounding of their states."""
    torch.manual_seed(0)
    weak = teq.HopfieldMLP([64] + [128] * 12 + [10], bound="proven", feedback=1.0, start="random")
    model, x, y = weak, *rows()
    seen: list[teq.Solution] = []
    model.register_relaxation_hook(lambda phase, solution: seen.append(solution))
    F.cross_entropy(model(x), y).backward()
    pair = seen[-1]
    moved = float(pair.shift[0].abs().max())
    assert 0 < moved < torch.finfo(torch.float32).eps * float(pair.state[0].abs().max())
    assert torch.equal(pair.up[0], pair.down[0])  # subtracting them would give nothing at all


def test_what_cannot_be_right_is_said_aloud() -> None:
    """Units at the edge of a box are clipped in one of the two phases alone."""
    torch.manual_seed(0)
    x, y = rows()
    model = teq.HopfieldMLP(
        [64, 64, 10], output="free", activation=HardSigmoid(), gradient=teq.CenteredEP(0.2),
        bound="proven", feedback=1.0, start="random",
    )  # fmt: skip
    target = F.one_hot(y, 10).float()
    with pytest.warns(teq.ConvergenceWarning, match=r"layer 1: the nudge is too strong"):
        F.mse_loss(model(x), target).backward()
    assert model.failures["nudged", "TOO_STRONG", 1] == 1
    assert not teq.certify(model, x, target, loss=F.mse_loss).ok
    model.gradient = teq.CenteredEP()
    model.failures.clear()
    F.mse_loss(model(x), target).backward()
    assert model.failures or teq.certify(model, x, target, loss=F.mse_loss).ok


@pytest.mark.parametrize(
    "build",
    [
        lambda **o: teq.HopfieldMLP.deep(64, 32, 4, 10, **o),
        lambda **o: teq.LoopedMLP(64, 128, 10, radius=0.9, **o),
    ],
    ids=["deep", "looped"],
)
@pytest.mark.parametrize("beta", [0.05, 0.2])
def test_holomorphic_is_right_or_says_so(build: Callable[..., nn.Module], beta: float) -> None:
    torch.manual_seed(0)
    x, y = rows()
    model = build(on_failure="ignore")
    fit(model, x, y, TrainingConfig(epochs=5, batch_size=8))
    model.gradient = teq.HolomorphicEP(beta)
    F.cross_entropy(model(x), y).backward()
    said = any(status == "TOO_STRONG" for _, status, _ in model.failures)
    assert said or teq.certify(model, x, y).ok


@dataclass(frozen=True)
class Chain(Energy):
    """``Φ = s₁·x + θ·Σ ε·s_l·s_{l−1}``: layers that hardly hear each other, written by a user."""

    activation: Tanh = Tanh()
    weak: float = 1e-5

    def initial_state(self, drive: Params, params: Params) -> State:
        return tuple(torch.zeros_like(drive[0]) for _ in range(4))

    def interaction(self, state: State, x: Tensor, params: Params) -> Tensor:
        total = (state[0] * x).sum(1)
        for below, above in itertools.pairwise(state):
            total = total + self.weak * (params[0] * below * above).sum(1)
        return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_where_a_dtype_cannot_resolve_it_the_layer_is_named(dtype: torch.dtype) -> None:
    """An energy without pairs is differenced in double: 1e-15 of a state is lost in it."""
    from toreqprop.energies import LinearNudge, Opposed, System
    from toreqprop.solvers import FixedPoint, relax, relax_pair

    torch.manual_seed(0)
    x, theta = torch.randn(3, 5, dtype=dtype), torch.ones(5, dtype=dtype)
    system = System.bind(Chain(), x, (theta,))
    solver = FixedPoint(tol=1e-6)
    free = relax(system, solver).state
    direction = (*(torch.zeros_like(s) for s in free[:3]), torch.ones_like(free[3]))
    nudge = Opposed(LinearNudge(direction, 0.1), LinearNudge(direction, -0.1))
    found = relax_pair(system, nudge, solver, free)
    assert found.status is Status.UNRESOLVED
    assert found.layer == 0
    assert not found.converged
    plain = System.bind(Chain(weak=1e-2), x, (theta,))
    assert relax_pair(plain, nudge, solver, relax(plain, solver).state).converged
