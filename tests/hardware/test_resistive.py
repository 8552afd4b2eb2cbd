"""Resistive networks in PyTorch: solvers against each other, the energy, finite differences."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.bench.circuits.gradients import (
    conductance_slopes,
    cosine,
    cosines,
    finite_differences,
    slopes,
    small_circuit,
    states_apart,
)
from toreqprop.bench.circuits.random_circuits import TIGHT, difference, random_circuit
from toreqprop.energies import System
from toreqprop.energies.circuits import DiodePair, Faults
from toreqprop.energies.circuits.faults import draw
from toreqprop.energies.devices import Device
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.gradients import ESTIMATORS
from toreqprop.hardware import BlockDescent, ResistiveNetwork
from toreqprop.solvers import FixedPoint, GaussSeidel, Newton


@pytest.mark.parametrize("seed", range(9))
def test_newton_and_block_descent_agree(seed: int) -> None:
    circuit = random_circuit(seed)
    newton = circuit.voltages(TIGHT)
    # Block descent converges linearly: its last move is a fraction of what is left.
    descent = circuit.voltages(BlockDescent(tol=1e-12))
    assert difference(newton, descent) < 1e-9


@pytest.mark.parametrize("solver", [FixedPoint(), GaussSeidel()])
def test_general_methods_find_the_same_voltages(solver: teq.FixedPoint) -> None:
    model, x, _ = small_circuit()
    expected = model.equilibrium(x).state
    model.solver = solver.limited(1e-10, 5000)
    found = model.equilibrium(x)
    assert found.converged
    assert states_apart(expected, found.state) < 1e-8


@pytest.mark.parametrize("inverting", [False, True])
@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_the_map_follows_from_the_energy(inverting: bool, spread: float) -> None:
    """``∂E/∂v = G' − u``, whatever the voltages, also with faults that keep an energy."""
    faults = Device(spread=spread, diode_spread=spread, neuron_offset=0.1 * spread, seed=1)
    model, x, _ = small_circuit(
        (3, 5, 4, 2), faults, inverting=inverting, upper_bias=True, clamp=0.1
    )
    nodes = tuple((0.3 * torch.randn(5, n).double()).requires_grad_() for n in (5, 4, 2))
    params = tuple(p.detach() for p in model.system_parameters())
    energy = model.field.energy(nodes, x, params)
    found = torch.autograd.grad(energy.sum(), nodes)
    system = System.bind(model.field, x, params)
    expected = zip(system.deactivate(nodes), system.preactivation(nodes), strict=True)
    for slope, (inner, u) in zip(found, expected, strict=True):
        torch.testing.assert_close(slope, inner.detach() - u.detach(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "options", [{}, {"inverting": True, "upper_bias": True}, {"clamp": 0.2, "gain": 2.0}]
)
def test_gradient_is_that_of_finite_differences(options: dict) -> None:
    model, x, target = small_circuit((2, 4, 3, 2), **options)
    model.gradient = teq.CenteredEP(1e-4)
    expected = finite_differences(model, x, target)
    found = slopes(model, x, target)
    assert min(cosines(found, expected)) > 0.999999
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-4 * float(b.abs().max()))


def test_both_nudges_give_one_gradient() -> None:
    """Currents from the loss, and a conductance that pulls to the target."""
    model, x, target = small_circuit()
    model.gradient = teq.CenteredEP(1e-4)
    found = conductance_slopes(model, x, target, 1e-4, TIGHT)
    expected = slopes(model, x, target)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(model.unit * a, b, rtol=0, atol=1e-5 * float(b.abs().max()))


@pytest.mark.parametrize("kind", ["spread", "diode_spread", "neuron_gain", "neuron_offset", "wire"])
def test_faults_that_keep_an_energy_keep_the_gradient(kind: str) -> None:
    size = 200.0 if kind == "wire" else 0.3
    model, x, target = small_circuit((3, 4, 2), Device(**{kind: size}, seed=1))
    model.gradient = teq.CenteredEP(1e-4)
    expected = finite_differences(model, x, target)
    # The circuit measures the slope by what is really there: the chain rule back to what is set.
    nominal = tuple(g.detach().requires_grad_() for g in model.conductances())
    actual = model.faults.conductances(nominal)
    chain = torch.autograd.grad([g.sum() for g in actual], nominal)
    found = [a * c for a, c in zip(slopes(model, x, target), chain, strict=True)]
    assert min(cosines(found, expected)) > 0.999999


def test_an_error_of_the_feedback_gain_bends_the_gradient() -> None:
    measured = []
    for spread in (0.05, 1.0):
        model, x, target = small_circuit((3, 4, 2), Device(up_down=spread, seed=1))
        found = slopes(model, x, target)
        measured.append(cosine(found, finite_differences(model, x, target)))
    assert 1 > measured[0] > 0.999 > 0.9 > measured[1]


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"holomorphic", "unrolled"}))
def test_every_estimator_that_applies_points_downhill(name: str) -> None:
    model, x, target = small_circuit()
    expected = slopes(model, x, target)
    model.tol = 1e-8
    # Continual EP moves the conductances themselves: its rate is in S²/V², not in raw units.
    continual = teq.ContinualEP(rate=1e-3 * model.unit**2)
    model.gradient = continual if name == "continual" else ESTIMATORS[name]().softer(100)
    assert min(cosines(slopes(model, x, target), expected)) > 0.99


def test_complex_nudges_are_refused_in_a_sentence() -> None:
    model, x, target = small_circuit()
    model.gradient = teq.HolomorphicEP()
    with pytest.raises(UnsupportedModelError):
        slopes(model, x, target)


def test_single_precision_agrees() -> None:
    model, x, target = small_circuit()
    exact, expected = model.equilibrium(x).state, slopes(model, x, target)
    model.float()
    model.tol = 1e-5
    assert states_apart(exact, model.equilibrium(x.float()).state) < 1e-5
    found = slopes(model, x.float(), target.float())
    assert min(cosines([g.double() for g in found], expected)) > 0.999999


def test_the_difference_of_diode_currents_is_exact() -> None:
    """In single precision, far below the rounding of the currents themselves."""
    pair = DiodePair(1e-6, 1e-6, 0.0259, 0.0, 0.0)
    v, d = 0.15 * torch.randn(50, 40), 1e-7 * torch.randn(50, 40)
    _, half, slope = pair.difference(v, d)
    (up, _), (down, _) = pair.law(v.double() + d.double()), pair.law(v.double() - d.double())
    torch.testing.assert_close(half.double(), 0.5 * (up - down), rtol=1e-4, atol=1e-18)
    torch.testing.assert_close(half, slope * d, rtol=1e-3, atol=1e-18)


def test_equal_diodes_are_a_case_of_any() -> None:
    same = torch.tensor(1e-6, dtype=torch.float64)
    pair = DiodePair(1e-6, 1e-6, 0.0259, 0.0, 1e-9)
    general = DiodePair(same, same, 0.0259, 0.0, 1e-9)
    v = torch.linspace(-0.3, 0.3, 62, dtype=torch.float64)[None]
    for a, b in zip(pair.law(v), general.law(v), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-20)
    for size in (1e-4, 0.1):  # the latter across the seam of the reverse branch
        found, wanted = (p.difference(v, torch.full_like(v, size)) for p in (pair, general))
        torch.testing.assert_close(found[0], wanted[0], rtol=1e-9, atol=1e-18)
        torch.testing.assert_close(found[1], wanted[1], rtol=1e-9, atol=1e-18)


def test_too_few_steps_is_counted() -> None:
    model, x, _ = small_circuit(solver=BlockDescent(tol=1e-12, max_steps=1))
    with pytest.warns(teq.ConvergenceWarning, match="max_steps"):
        model(x)
    assert [(phase, status) for phase, status, _ in model.failures] == [("free", "MAX_STEPS")]


def test_circuit_solvers_serve_circuits_alone() -> None:
    model = teq.LoopedMLP(3, 4, 2, solver=Newton())
    with pytest.raises(UnsupportedModelError, match="ResistiveMLP"):
        model(torch.zeros(1, 3))


def test_conductances_stay_in_range_and_can_return() -> None:
    model, _, _ = small_circuit(low=0.5, high=1.5)
    raw = next(model.parameters())
    with torch.no_grad():
        raw.copy_(torch.linspace(-1, 3, raw.numel()).reshape(raw.shape))
    found = model.conductances()[0].detach()
    assert float(found.min()) == pytest.approx(0.5 * model.unit)
    assert float(found.max()) == pytest.approx(1.5 * model.unit)
    ends = model.conductances()[0]
    (there,) = torch.autograd.grad(ends, raw, torch.ones_like(raw))
    assert not bool(there[raw <= 0.5].any())  # descent would leave further
    (back,) = torch.autograd.grad(model.conductances()[0], raw, -torch.ones_like(raw))
    assert bool((back[raw <= 0.5] < 0).all())
    assert not bool(back[raw >= 1.5].any())


def test_faults_are_drawn_independently_of_each_other() -> None:
    network = ResistiveNetwork((4, 6, 3))
    alone = draw(Device(diode_spread=0.7, seed=5), network)
    together = draw(Device(spread=0.4, diode_spread=0.7, neuron_gain=0.1, seed=5), network)
    assert alone.saturation is not None
    assert together.saturation is not None
    assert torch.equal(alone.saturation[0], together.saturation[0])
    assert alone.conductance is None


def test_a_mismatched_circuit_is_kept_in_a_checkpoint(tmp_path: object) -> None:
    from toreqprop import checkpoint

    model, x, _ = small_circuit(device=Device(spread=0.4, neuron_offset=0.05, seed=3))
    checkpoint.save(tmp_path, checkpoint.Checkpoint(model))  # type: ignore[arg-type]
    again = checkpoint.load(tmp_path).model  # type: ignore[arg-type]
    assert again.device == model.device
    # Its faults are drawn again, in double precision, where the model's were rounded to single.
    assert states_apart(again.equilibrium(x).state, model.equilibrium(x).state) < 1e-6


def test_a_network_without_hidden_nodes_is_linear() -> None:
    model, x, _ = small_circuit((3, 2))
    both = model(x) + model(-x)
    zero = 2 * model(torch.zeros_like(x))
    torch.testing.assert_close(both, zero, rtol=1e-12, atol=1e-12)


def test_it_learns() -> None:
    torch.manual_seed(0)
    model = teq.ResistiveMLP([2, 8, 2])
    x = torch.randn(200, 2)
    y = (x[:, 0] * x[:, 1] > 0).long()  # not linear
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert teq.training.accuracy(model, x, y) > 0.9


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"sizes": (4,)}, "sizes"),
        ({"sizes": (4, 0, 2)}, "sizes"),
        ({"sizes": (4, 2), "gain": 0.0}, "gain"),
        ({"sizes": (4, 2), "clamp": -0.1}, "clamp"),
        ({"sizes": (4, 2), "celsius": -300.0}, "celsius"),
        ({"sizes": (4, 2), "unit": 0.0}, "unit"),
        ({"sizes": (4, 2), "low": 2.0, "high": 1.0}, "low"),
        ({"sizes": (4, 2), "output_gain": -1.0}, "output_gain"),
    ],
)
def test_bad_networks_are_refused(options: dict, word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        teq.ResistiveMLP(**options)


def test_bad_faults_are_refused() -> None:
    network = ResistiveNetwork((4, 6, 3))
    with pytest.raises(InvalidInputError, match=r"faults\.up"):
        Faults(up=(torch.ones(2),)).check(network)
    with pytest.raises(InvalidInputError, match="neuron_gain"):
        Device(neuron_gain=-0.1)
    with pytest.raises(InvalidInputError, match="wire"):
        Device(wire=-1.0)
    with pytest.raises(InvalidInputError, match="no place for read_noise"):
        teq.hardware.on(Device(read_noise=0.1), teq.ResistiveMLP([4, 6, 3]))


def test_a_circuit_on_a_chip_shares_its_conductances() -> None:
    """As any network on a chip: the optimizer moves what is written."""
    model, x, _ = small_circuit()
    device = Device(spread=0.4, diode_spread=0.7, neuron_offset=0.05, seed=3)
    chip = teq.hardware.on(device, model)
    assert [id(p) for p in chip.parameters()] == [id(p) for p in model.parameters()]
    expected, _, _ = small_circuit(device=device)
    assert states_apart(chip.equilibrium(x).state, expected.equilibrium(x).state) < 1e-6
    assert states_apart(chip.equilibrium(x).state, model.equilibrium(x).state) > 1e-3
