"""Looped and layered networks as circuits: the equilibria of the library's equations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from toreqprop.errors import InvalidInputError
from toreqprop.hardware import Ngspice, Noise, layered_netlist, looped_netlist
from toreqprop.hardware.neuron_netlist import Neuron
from toreqprop.hardware.resistive_netlist import Inputs

POINTS = 12
BOUND = 1e-8


def looped_problem(radius: float = 0.9) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """W_in, b, W_rec (symmetric), x, nudge."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    weight = normal(10, 10)
    weight = weight + weight.mT
    weight = radius * weight / torch.linalg.matrix_norm(weight, 2)
    return normal(10, 4), 0.1 * normal(10), weight, normal(POINTS, 4), 0.05 * normal(POINTS, 10)


def looped_equilibrium(
    weight_in: Tensor, bias: Tensor, weight: Tensor, x: Tensor, nudge: Tensor
) -> Tensor:
    state = torch.zeros(len(x), len(bias), dtype=torch.float64)
    for _ in range(2000):
        state = torch.tanh(x @ weight_in.mT + bias + state @ weight.mT + nudge)
    return state


def layered_problem() -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
    generator = torch.Generator().manual_seed(1)
    sizes = [4, 7, 6, 3]
    layers = []
    for below, above in pairwise(sizes):
        weight = torch.randn(above, below, generator=generator, dtype=torch.float64)
        weight = 0.6 * weight / torch.linalg.matrix_norm(weight, 2)  # one equilibrium only
        bias = 0.1 * torch.randn(above, generator=generator, dtype=torch.float64)
        layers.append((weight, bias))
    return layers, torch.randn(POINTS, 4, generator=generator, dtype=torch.float64)


def layered_equilibrium(
    layers: Sequence[tuple[Tensor, Tensor]], x: Tensor, feedback: float
) -> list[Tensor]:
    states = [torch.zeros(len(x), len(bias), dtype=torch.float64) for _, bias in layers]
    for _ in range(2000):
        new = []
        for layer, (weight, bias) in enumerate(layers):
            drive = (states[layer - 1] if layer else x) @ weight.mT + bias
            if layer + 1 < len(layers):
                drive = drive + feedback * states[layer + 1] @ layers[layer + 1][0]
            new.append(torch.tanh(drive))
        states = new
    return states


@pytest.mark.parametrize("inputs", ["crossbar", "norton"])
@pytest.mark.parametrize("neuron", ["behavioural", "pair"])
def test_looped_network_settles_at_the_librarys_state(
    ngspice: Ngspice, neuron: Neuron, inputs: Inputs
) -> None:
    *network, x, nudge = looped_problem()
    measured = ngspice.operating_points(looped_netlist(*network, x, nudge, neuron, inputs))
    assert measured.complete
    expected = looped_equilibrium(*network, x, nudge)
    assert float((measured.voltages["s1"] - expected).abs().max()) < BOUND


@pytest.mark.parametrize("inputs", ["crossbar", "norton"])
@pytest.mark.parametrize("neuron", ["behavioural", "pair"])
def test_layered_network_settles_at_the_librarys_state(
    ngspice: Ngspice, neuron: Neuron, inputs: Inputs
) -> None:
    layers, x = layered_problem()
    circuit = layered_netlist(layers, x, 0.5, neuron=neuron, inputs=inputs)
    measured = ngspice.operating_points(circuit)
    assert measured.complete
    for layer, expected in enumerate(layered_equilibrium(layers, x, 0.5), start=1):
        assert float((measured.voltages[f"s{layer}"] - expected).abs().max()) < BOUND


def test_pairs_are_scaled_for_their_temperature(ngspice: Ngspice) -> None:
    *network, x, nudge = looped_problem()
    circuit = looped_netlist(*network, x, nudge, "pair", celsius=60.0)
    expected = looped_equilibrium(*network, x, nudge)
    measured = ngspice.operating_points(circuit).voltages["s1"]
    assert float((measured - expected).abs().max()) < BOUND


def test_one_flipped_sign_is_seen(ngspice: Ngspice) -> None:
    weight_in, bias, weight, x, nudge = looped_problem()
    expected = looped_equilibrium(weight_in, bias, weight, x, nudge)
    flipped = weight.clone()
    flipped[2, 5] = -flipped[2, 5]
    measured = ngspice.operating_points(looped_netlist(weight_in, bias, flipped, x, nudge))
    assert float((measured.voltages["s1"] - expected).abs().max()) > 1e-3


def test_gradient_of_a_looped_network_from_spice_states(ngspice: Ngspice) -> None:
    """``−(h₊h₊ᵀ − h₋h₋ᵀ)/4β`` against finite differences of ``C = ½‖s − y‖²``."""
    weight_in, bias, weight, x, _ = looped_problem(0.5)
    none = torch.zeros(POINTS, 10, dtype=torch.float64)
    target, beta = 0.3 * torch.ones(POINTS, 10, dtype=torch.float64), 1e-3
    push = beta * (looped_equilibrium(weight_in, bias, weight, x, none) - target)
    twice = torch.cat([x, x])
    circuit = looped_netlist(weight_in, bias, weight, twice, torch.cat([-push, push]), "pair")
    up, down = ngspice.operating_points(circuit).voltages["s1"].split(POINTS)
    found = -(up.mT @ up - down.mT @ down) / (4 * beta)

    def cost(i: int, j: int, step: float) -> float:
        moved = weight.clone()
        moved[i, j] += step
        moved[j, i] += step
        state = looped_equilibrium(weight_in, bias, moved, x, none)
        return float(0.5 * ((state - target) ** 2).sum())

    for i, j in ((0, 1), (3, 7), (4, 9)):
        slope = (cost(i, j, 1e-5) - cost(i, j, -1e-5)) / 2e-5
        # moving (i, j) and (j, i) alike counts the symmetric gradient twice
        assert 2 * float(found[i, j]) == pytest.approx(slope, rel=1e-4)


def test_transient_settles_at_the_operating_point(ngspice: Ngspice) -> None:
    *network, x, nudge = looped_problem(0.3)
    circuit = looped_netlist(*network, x, nudge)
    expected = looped_equilibrium(*network, x, nudge)[3]
    unit = circuit.time_constant
    measured = ngspice.transient(circuit, unit / 20, 25 * unit, point=3)
    assert measured.complete
    error = (measured.voltages["s1"] - expected).abs().amax(1)
    assert float(error[-1]) < 1e-6
    settled = float(measured.axis[error > 1e-3].max()) / unit
    assert 4 < settled < 12
    assert float(measured.voltages["u1"][0].abs().max()) < 0.2


def test_noise_shakes_the_state_about_its_mean(ngspice: Ngspice) -> None:
    *network, x, nudge = looped_problem(0.3)
    circuit = looped_netlist(*network, x, nudge)
    expected = looped_equilibrium(*network, x, nudge)[0]
    unit = circuit.time_constant
    spreads = []
    for seed in (3, 3, None):
        noise = Noise(rms=0.5, interval=unit / 10, seed=seed)
        measured = ngspice.transient(circuit, unit / 10, 60 * unit, noise=noise)
        assert measured.complete
        late = measured.voltages["s1"][measured.axis > 20 * unit]
        assert float((late.mean(0) - expected).abs().max()) < 0.1
        spreads.append(float(late.std(0).mean()))
    assert spreads[0] == spreads[1]
    assert spreads[2] == pytest.approx(spreads[0], rel=0.3)
    assert spreads[0] > 0.01


def test_bad_arguments_are_refused() -> None:
    weight_in, bias, weight, x, nudge = looped_problem()
    with pytest.raises(InvalidInputError, match="square"):
        looped_netlist(weight_in, bias, weight[:3], x)
    with pytest.raises(InvalidInputError, match=r"\(points, 4\)"):
        looped_netlist(weight_in, bias, weight, x[:, :2])
    with pytest.raises(InvalidInputError, match="bias of layer 1"):
        looped_netlist(weight_in, bias[:3], weight, x)
    with pytest.raises(InvalidInputError, match="nudge of layer 1"):
        looped_netlist(weight_in, bias, weight, x, nudge[:2])
    with pytest.raises(InvalidInputError, match='"behavioural" or "pair"'):
        looped_netlist(weight_in, bias, weight, x, neuron="relu")  # type: ignore[arg-type]
    layers, x = layered_problem()
    with pytest.raises(InvalidInputError, match="layer 2 must have 7 columns"):
        layered_netlist([layers[0], layers[2]], x)
    with pytest.raises(InvalidInputError, match="layers must hold 1 or more"):
        layered_netlist([], x)
    circuit = layered_netlist(layers, x)
    with pytest.raises(InvalidInputError, match="stop must be > 1"):
        circuit.transient(1.0, 0.5)
    with pytest.raises(InvalidInputError, match="point"):
        circuit.transient(1e-8, 1e-6, point=POINTS)
    with pytest.raises(InvalidInputError, match="rms"):
        Noise(rms=0.0, interval=1.0)
