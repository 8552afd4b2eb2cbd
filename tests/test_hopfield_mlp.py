"""Deep Hopfield networks: certified gradients, honest bounds, the same torch module."""

from __future__ import annotations

import copy
import pickle
import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.energies import HardSigmoid, Tanh
from toreqprop.tasks import get
from toreqprop.training import TrainingConfig, accuracy, fit

SIZES = ([12, 16, 5], [12, 16, 14, 5], [12, 10, 9, 8, 7, 5])


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(output, F.one_hot(target, 5).to(output))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("activation", [Tanh(), HardSigmoid()], ids=["tanh", "hard_sigmoid"])
@pytest.mark.parametrize("output", ["readout", "free"])
def test_gradients_are_certified(sizes: list[int], activation: Tanh, output: str) -> None:
    torch.manual_seed(0)
    model = teq.HopfieldMLP(
        sizes,
        activation=activation,
        output=output,  # type: ignore[arg-type]
        # A unit within β of the edge of its box is clipped in one phase alone.
        gradient=teq.CenteredEP(1e-3 if isinstance(activation, Tanh) else 1e-5),
        tol=1e-10,
    ).double()
    x = torch.randn(9, 12, dtype=torch.float64)
    y = torch.randint(0, 5, (9,))
    loss = F.cross_entropy if output == "readout" else squared_error
    certificate = teq.certify(model, x, y, loss=loss)
    assert certificate.ok, certificate.verdict
    assert certificate.min_cosine > 0.9999
    assert certificate.asymmetry < 1e-10


def test_lipschitz_bounds_the_jacobian_and_stays_below_one() -> None:
    torch.manual_seed(0)
    model = teq.HopfieldMLP([12, 10, 9, 8, 5])
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(20)
    x, y = torch.randn(9, 12), torch.randint(0, 5, (9,))
    certificate = teq.certify(model, 0.01 * x, y)
    assert certificate.contraction <= model.lipschitz() <= 0.95 * (1 + 1e-5)
    solution = model.equilibrium(x)
    assert bool(torch.isfinite(solution.error_bound).all())


def test_without_spectral_norm_nothing_is_certified_but_it_settles() -> None:
    torch.manual_seed(0)
    model = teq.HopfieldMLP([12, 30, 30, 5], spectral_norm=False)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(10)
    assert model.lipschitz() > 1
    solution = model.equilibrium(torch.randn(4, 12))
    assert solution.converged
    assert bool(torch.isinf(solution.error_bound).all())


def test_learns_digits() -> None:
    """Held-out accuracy above 93 % for one and two hidden layers; chance is 10 %."""
    data = get("digits").load(42, False)
    x, y, test_x, test_y = (
        torch.from_numpy(a) for a in (data.train_x, data.train_y, data.test_x, data.test_y)
    )
    for sizes in ([64, 64, 10], [64, 64, 64, 10]):
        torch.manual_seed(0)
        model = teq.HopfieldMLP(sizes)
        fit(model, x, y, TrainingConfig(epochs=8, learning_rate=2e-3))
        assert accuracy(model, test_x, test_y) > 0.93


def test_copies_and_classical_cost_nudge() -> None:
    model = teq.HopfieldMLP([12, 10, 8, 5], output="free")
    x = torch.randn(6, 12)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), model(x))

    def cost(output: Tensor, target: Tensor) -> Tensor:
        return 0.5 * (output - target).square().sum(1)

    found = teq.nudged_gradients(model, x, torch.zeros(6, 5), cost=cost)
    assert found.keys() == dict(model.named_parameters()).keys()


@pytest.mark.parametrize("sizes", [[12, 5], [], [12, 0, 5]], ids=str)
def test_bad_sizes(sizes: list[int]) -> None:
    with pytest.raises(teq.InvalidInputError, match="sizes"):
        teq.HopfieldMLP(sizes)


def test_bad_output() -> None:
    with pytest.raises(teq.InvalidInputError, match="output"):
        teq.HopfieldMLP([4, 5, 3], output="other")  # type: ignore[arg-type]


@pytest.mark.parametrize("feedback", [1.0, 0.5, 0.2])
@pytest.mark.parametrize("activation", [Tanh(), HardSigmoid()], ids=["tanh", "hard_sigmoid"])
def test_weak_feedback_keeps_its_energy_and_exact_gradients(
    feedback: float, activation: Tanh
) -> None:
    torch.manual_seed(0)
    model = teq.HopfieldMLP(
        [12, 10, 9, 8, 5],
        activation=activation,
        feedback=feedback,
        gradient=teq.CenteredEP(1e-3),
        solver=teq.GaussSeidel(
            tol=1e-11, max_steps=200
        ),  # sweeps descend, extrapolated ones need not
    ).double()
    x, y = torch.randn(9, 12, dtype=torch.float64), torch.randint(0, 5, (9,))
    certificate = teq.certify(model, x, y)
    assert certificate.ok, certificate.verdict
    assert certificate.min_cosine > 0.9999
    assert certificate.asymmetry < 1e-10
    trace = teq.Trace(keep_energies=True)
    model.equilibrium(x, trace=trace)
    energies = torch.stack(trace.energies)
    assert bool((energies.diff(dim=0) <= 1e-12 * (1 + energies[1:].abs())).all())


def test_weak_feedback_scales_what_comes_back() -> None:
    model = teq.HopfieldMLP([4, 3, 2, 2], feedback=0.25).double()
    state = (torch.zeros(1, 3).double(), torch.ones(1, 2).double())
    x = torch.zeros(1, 4).double()
    with torch.no_grad():
        for layer in model.layers:
            layer.bias.zero_()
        params = model.system_parameters()
        field = model.field
        (found, _) = field.activate(field.preactivation(state, field.prepare(x, params), params))
        wanted = torch.tanh(0.25 * state[1] @ params[2])
    assert torch.allclose(found, wanted)


@pytest.mark.parametrize("layers", [1, 3, 12])
def test_deep_stacks_carry_the_signal_and_are_certified(layers: int) -> None:
    torch.manual_seed(0)
    model = teq.HopfieldMLP.deep(12, 8, layers, 5).double()
    x, y = torch.randn(9, 12, dtype=torch.float64), torch.randint(0, 5, (9,))
    solution = model.equilibrium(x)
    assert solution.converged
    bottom, top = solution.state[0].detach(), solution.state[-1].detach()
    # Not the exponential decay of a stack with symmetric couplings: below 1e-3 after 12 layers.
    assert float(top.norm() / bottom.norm()) > 0.05
    assert model.lipschitz() <= 0.99 * (1 + 1e-6)
    certificate = teq.certify(model, x, y)
    assert certificate.ok, certificate.verdict
    assert certificate.min_cosine > 0.99


def test_sixty_four_layers_settle_in_both_phases() -> None:
    """Residuals weighed by size and not by temperature take a thousand passes and more."""
    torch.manual_seed(0)
    model = teq.HopfieldMLP.deep(12, 8, 64, 5).double()
    found: dict[str, teq.Solution] = {}
    model.register_relaxation_hook(found.__setitem__)
    x, y = torch.randn(4, 12, dtype=torch.float64), torch.randint(0, 5, (4,))
    torch.nn.functional.cross_entropy(model(x), y).backward()
    assert all(solution.converged and solution.steps <= 150 for solution in found.values())
    assert all(bool(p.grad.any()) for p in model.layers.parameters())


def test_sweeps_do_not_grow_with_depth_where_the_couplings_are_bounded() -> None:
    """Every layer has to settle, the top of a stack too, and a sweep takes news two layers far:
    four times the layers may need some twice the sweeps, not sixteen times as a diffusion would."""
    counts = []
    for layers in (4, 16):
        torch.manual_seed(0)
        model = teq.HopfieldMLP([12, *[8] * layers, 5], start="identity", bound="exact")
        counts.append(model.equilibrium(torch.randn(9, 12)).steps)
    assert counts[1] <= 3 * counts[0]


@pytest.mark.parametrize("options", [{"feedback": 0.0}, {"feedback": 1.5}, {"start": "zero"}])
def test_bad_options(options: dict[str, object]) -> None:
    with pytest.raises(teq.InvalidInputError, match=next(iter(options))):
        teq.HopfieldMLP([4, 5, 3], **options)  # type: ignore[arg-type]


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    path = Path(__file__).parents[1] / "examples" / "layered_digits.py"
    monkeypatch.setattr("sys.argv", [str(path), "--fast"])
    outcome = runpy.run_path(str(path))
    assert outcome["right"] > 0.7
    assert "PASS" in capsys.readouterr().out
