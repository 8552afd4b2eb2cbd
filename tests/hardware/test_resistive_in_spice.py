"""Resistive networks in ngspice: PyTorch's voltages, and a gradient from them alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.hardware.circuits import (
    cosine,
    cosines,
    difference,
    finite_differences,
    random_problem,
    small_problem,
)
from toreqprop.errors import InvalidInputError
from toreqprop.hardware import (
    Faults,
    Ngspice,
    ResistiveNetwork,
    nudged_gradients,
    resistive_netlist,
    solve_circuit,
)


@pytest.mark.parametrize("seed", range(100, 124))
def test_pytorch_and_spice_agree(ngspice: Ngspice, seed: int) -> None:
    problem = random_problem(seed)
    found = problem.solve(ngspice.solve, inputs="crossbar" if seed % 3 else "norton")
    assert found.converged
    # reltol = 1e-12 of voltages up to 100 V
    assert difference(problem.solve(solve_circuit), found) < 1e-10


def test_voltages_differ_where_the_temperature_is_wrong_by_one_kelvin(ngspice: Ngspice) -> None:
    network, conductances, x, _ = small_problem()
    found = ngspice.solve(network, conductances, x)
    assert difference(solve_circuit(network, conductances, x), found) < 1e-10
    warmer = replace(network, celsius=network.celsius + 1)
    assert difference(solve_circuit(warmer, conductances, x), found) > 1e-4


def test_norton_equivalent_is_exact(ngspice: Ngspice) -> None:
    problem = random_problem(7)
    crossbar = problem.solve(ngspice.solve, inputs="crossbar")
    norton = problem.solve(ngspice.solve, inputs="norton")
    assert difference(crossbar, norton) < 1e-11


def test_one_sample_is_a_sweep_too(ngspice: Ngspice) -> None:
    network, conductances, x, target = small_problem()
    found = ngspice.solve(network, conductances, x[:1], target[:1], 1e-6)
    assert found.output.shape == (1, 3)
    assert difference(solve_circuit(network, conductances, x[:1], target[:1], 1e-6), found) < 1e-10


@pytest.fixture(scope="module")
def slopes(ngspice: Ngspice) -> tuple[torch.Tensor, ...]:
    return finite_differences(*small_problem(), ngspice.solve)


def test_gradient_from_voltages_is_that_of_the_spice_loss(
    ngspice: Ngspice, slopes: tuple[torch.Tensor, ...]
) -> None:
    found = nudged_gradients(*small_problem(), 1e-6, solve=ngspice.solve)
    assert min(cosines(found, slopes)) > 0.99999999
    for a, b in zip(found, slopes, strict=True):
        assert float((a - b).norm() / b.norm()) < 1e-4


def test_gradient_check_sees_what_is_wrong(
    ngspice: Ngspice, slopes: tuple[torch.Tensor, ...]
) -> None:
    network, conductances, x, target = small_problem()
    beyond = 3 * float(conductances[-1].sum(1).max())
    found = nudged_gradients(network, conductances, x, target, beyond, solve=ngspice.solve)
    assert cosine(found, slopes) < 0.9
    found = nudged_gradients(network, conductances, x, target, 1e-6, solve=ngspice.solve)
    no_gain = (found[0] / network.gain**2, found[1])
    assert cosine(no_gain, slopes) < 0.999


def test_transient_settles_at_the_operating_point(ngspice: Ngspice) -> None:
    network, conductances, x, _ = small_problem()
    expected = solve_circuit(network, conductances, x).output[2]
    settled = []
    unit = resistive_netlist(network, conductances, x).time_constant
    for amplifier_time in (0.0, 3 * unit):
        slower = replace(network, amplifier_time=amplifier_time)
        circuit = resistive_netlist(slower, conductances, x)
        measured = ngspice.transient(circuit, unit / 10, 60 * unit, point=2)
        error = (measured.voltages["nodes2"] - expected).abs().amax(1)
        assert float(error[-1]) < 1e-5
        settled.append(float(measured.axis[error > 1e-3].max()) / unit)
    assert 1 < settled[0] < settled[1] < 40


def test_names_lead_back_to_layer_and_unit() -> None:
    network = ResistiveNetwork((2, 3, 2), inverting=True, upper_bias=True)
    conductances = network.random_conductances(0)
    faults = Faults.draw(network, 0, conductance=0.1, saturation=0.1, up=0.1, offset=0.1)
    circuit = resistive_netlist(network, conductances, torch.ones(2, 2).double(), faults=faults)
    values = {card.split()[0]: card.split() for card in circuit.cards if card}
    actual = faults.conductances(conductances)
    # columns: +x1, +x2, −x1, −x2, then the bias pair
    assert float(values["rh1_2_in1n"][3]) == pytest.approx(1 / float(actual[0][1, 2]))
    assert values["rh1_2_in1n"][1:3] == ["in1n", "h1_2"]
    assert float(values["rout2_dn1_3"][3]) == pytest.approx(1 / float(actual[1][1, 5]))
    assert float(values["rout1_biasn"][3]) == pytest.approx(1 / float(actual[1][0, 7]))
    assert faults.up is not None
    assert float(values["eup1_3"][5]) == pytest.approx(4 * float(faults.up[0][2]))
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


def test_unknown_choice_is_refused() -> None:
    network, conductances, x, _ = small_problem()
    with pytest.raises(InvalidInputError, match="crossbar, norton"):
        resistive_netlist(network, conductances, x, inputs="thevenin")  # type: ignore[arg-type]
