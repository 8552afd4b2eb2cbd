"""Resistive networks in ngspice: PyTorch's voltages, and a gradient from them alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

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
from toreqprop.energies.devices import Device
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.hardware import Ngspice, ResistiveNetwork, netlist, resistive_netlist, settle


@pytest.mark.parametrize("seed", [*range(100, 112), 1185])
def test_pytorch_and_spice_agree(ngspice: Ngspice, seed: int) -> None:
    """Free and nudged, with faults where the seed is odd; 1185 has phases far apart."""
    circuit = random_circuit(seed)
    assert difference(circuit.voltages(TIGHT), circuit.voltages(ngspice)) < 1e-10


@pytest.mark.parametrize(
    "kind", ["spread", "diode_spread", "neuron_gain", "up_down", "neuron_offset", "wire"]
)
def test_every_fault_is_the_same_in_both_simulations(ngspice: Ngspice, kind: str) -> None:
    """And it is a fault: the voltages are not those of the circuit as drawn."""
    size = 50.0 if kind == "wire" else 0.3
    model, x, _ = small_circuit(device=Device(**{kind: size}, seed=2))
    expected = model.equilibrium(x).state
    model.solver = ngspice
    assert states_apart(expected, model.equilibrium(x).state) < 1e-10
    drawn, _, _ = small_circuit()
    assert states_apart(expected, drawn.equilibrium(x).state) > 1e-4


def test_voltages_differ_where_the_temperature_is_wrong_by_one_kelvin(ngspice: Ngspice) -> None:
    model, x, _ = small_circuit(celsius=28.0)
    warmer = model.equilibrium(x).state
    model, x, _ = small_circuit(solver=ngspice)
    assert states_apart(warmer, model.equilibrium(x).state) > 1e-4


def test_norton_equivalent_is_exact(ngspice: Ngspice) -> None:
    model, x, _ = small_circuit()
    found = [
        ngspice.operating_points(netlist(model, x, inputs=inputs)).voltages["nodes2"]  # type: ignore[arg-type]
        for inputs in ("crossbar", "norton")
    ]
    assert float((found[0] - found[1]).abs().max()) < 1e-11


def test_measured_rails_are_those_the_rule_uses(ngspice: Ngspice) -> None:
    faults = Device(neuron_gain=0.2, neuron_offset=0.05, seed=1)
    model, x, _ = small_circuit(device=faults, inverting=True, upper_bias=True)
    measured = ngspice.operating_points(netlist(model, x)).voltages
    expected = model.network.rails(x, model.equilibrium(x).state, model.faults)[1].detach()
    assert float((measured["rails2"] - expected).abs().max()) < 1e-10


def test_one_sample_is_a_sweep_too(ngspice: Ngspice) -> None:
    model, x, _ = small_circuit(solver=ngspice)
    assert model(x[:1]).shape == (1, 3)


@pytest.fixture(scope="module")
def spice_slopes(ngspice: Ngspice) -> list[Tensor]:
    model, x, target = small_circuit((2, 3, 2), solver=ngspice)
    return finite_differences(model, x, target)


def test_gradient_from_voltages_is_that_of_the_spice_loss(
    ngspice: Ngspice, spice_slopes: list[Tensor]
) -> None:
    model, x, target = small_circuit((2, 3, 2), solver=ngspice, gradient=teq.CenteredEP(1e-3))
    found = slopes(model, x, target)
    assert min(cosines(found, spice_slopes)) > 0.9999999
    for a, b in zip(found, spice_slopes, strict=True):
        assert float((a - b).norm() / b.norm()) < 1e-4


def test_gradient_check_sees_what_is_wrong(ngspice: Ngspice, spice_slopes: list[Tensor]) -> None:
    model, x, target = small_circuit((2, 3, 2))
    beyond = 3 * float(model.conductances()[-1].detach().sum(1).max()) / model.field.scale
    assert cosine(conductance_slopes(model, x, target, beyond, ngspice), spice_slopes) < 0.9
    found = conductance_slopes(model, x, target, 1e-3, ngspice)
    assert cosine(found, spice_slopes) > 0.999999
    no_gain = [found[0] / model.gain**2, found[1]]
    assert cosine(no_gain, spice_slopes) < 0.999


def test_both_simulators_train_alike(ngspice: Ngspice) -> None:
    """Four steps of ``loss.backward()``: the same conductances, voltage by voltage."""
    trained = []
    for solver in (TIGHT, ngspice):
        model, x, target = small_circuit(solver=solver)
        model.solver = solver
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(4):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), model.output_gain * target).backward()
            optimizer.step()
        trained.append([p.detach().clone() for p in model.parameters()])
    before, _, _ = small_circuit()
    assert states_apart(tuple(trained[0]), tuple(trained[1])) < 1e-7
    assert states_apart(tuple(trained[0]), tuple(before.parameters())) > 1e-2


def test_both_simulations_settle_alike_in_time(ngspice: Ngspice) -> None:
    """With fast and with slow amplifiers, at every moment, and at the operating point in the end;
    a slow amplifier takes longer."""
    settled = []
    model, x, _ = small_circuit()
    unit = netlist(model, x).time_constant
    for slow in (0.0, 3.0):
        model, x, _ = small_circuit(device=Device(amplifier_time=slow * unit))
        measured = ngspice.transient(netlist(model, x[2:3]), unit / 40, 40 * unit)
        mine = settle(model, x[2:3], span=40, step=0.02)
        assert mine.unit == pytest.approx(unit)
        for moment in (0.5, 1.0, 2.0, 5.0):
            there = int((measured.axis - moment * unit).abs().argmin())
            here = int((mine.times - measured.axis[there]).abs().argmin())
            for layer in (1, 2):
                apart = measured.voltages[f"nodes{layer}"][there] - mine.nodes[layer - 1][here, 0]
                # Half a step of 0.02 RC at volts that change by less than 1 V in RC.
                assert float(apart.abs().max()) < 0.01
        expected = model.equilibrium(x[2:3]).state[-1].detach()
        assert float((mine.nodes[-1][-1] - expected).abs().max()) < 1e-5
        error = (measured.voltages["nodes2"] - expected).abs().amax(1)
        assert float(error[-1]) < 1e-5
        settled.append(float(measured.axis[error > 1e-3].max()) / unit)
    assert 1 < settled[0] < settled[1] < 40


def test_names_lead_back_to_layer_and_unit() -> None:
    faults = Device(spread=0.1, diode_spread=0.1, neuron_gain=0.1, neuron_offset=0.1, wire=5.0)
    model, x, _ = small_circuit((2, 3, 2), faults, inverting=True, upper_bias=True)
    circuit = netlist(model, x)
    values = {card.split()[0]: card.split() for card in circuit.cards if card}
    actual = [g.detach() for g in model.faults.conductances(model.conductances())]
    # columns: +x1, +x2, −x1, −x2, then the bias pair
    assert float(values["rh1_2_in1n"][3]) == pytest.approx(1 / float(actual[0][1, 2]))
    assert values["rh1_2_in1n"][1:3] == ["in1n", "h1_2"]
    assert float(values["rout2_dn1_3"][3]) == pytest.approx(1 / float(actual[1][1, 5]))
    assert float(values["rout1_biasn"][3]) == pytest.approx(1 / float(actual[1][0, 7]))
    assert model.faults.up is not None
    assert float(values["eup1_3"][5]) == pytest.approx(4 * float(model.faults.up[0][2]))
    text = circuit.operating_points()
    assert "Units: volts" in text
    assert max(len(line) for line in text.splitlines()) < 200


def test_zero_conductance_is_left_out() -> None:
    network = ResistiveNetwork((2, 2))
    conductances = (torch.tensor([[0.0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]) * 1e-5,)
    circuit = resistive_netlist(network, conductances, torch.ones(1, 2))
    names = [card.split()[0] for card in circuit.cards if card]
    assert "rout1_in1p" not in names
    assert "rout2_in1p" in names


def test_what_has_no_circuit_is_refused(ngspice: Ngspice) -> None:
    model, x, target = small_circuit()
    with pytest.raises(InvalidInputError, match='"crossbar" or "norton"'):
        netlist(model, x, inputs="thevenin")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedModelError, match="no neurons to choose"):
        netlist(model, x, neuron="pair")
    with pytest.raises(UnsupportedModelError, match="no circuit for"):
        netlist(teq.EquilibriumTransformer.example()[0])
    with pytest.raises(InvalidInputError, match="model"):
        netlist(x)  # type: ignore[arg-type]
    model.solver, model.gradient = ngspice, teq.CoupledLearning()
    with pytest.raises(UnsupportedModelError, match="constant currents"):
        slopes(model, x, target)
    model.gradient = teq.VectorFieldEP()
    with pytest.raises(UnsupportedModelError, match="no corrected phases"):
        slopes(model, x, target)
