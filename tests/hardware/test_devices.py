"""Every fault of a device acts where it says it does; without one a chip is the plain model."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import toreqprop as teq
from toreqprop.energies import LinearNudge, System
from toreqprop.energies.devices.programming import programmed
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.gradients import ESTIMATORS
from toreqprop.hardware import (
    Analog,
    Binary,
    Converter,
    Device,
    Quantised,
    Ternary,
    on,
)
from toreqprop.hardware.limits import exact_gradient, flat, gradient
from toreqprop.private_generator import noise_from
from toreqprop.solvers.device_phases import run_phase

STATIC = {
    "spread": Device(spread=0.3, seed=3),
    "stuck": Device(stuck=0.3, seed=3),
    "stuck at a bound": Device(stuck=0.2, stuck_at="either", seed=3),
    "bits": Device(weights=Quantised(3)),
    "ternary": Device(weights=Ternary()),
    "binary": Device(weights=Binary()),
    "range": Device(weights=Analog(0.1)),
    "write noise": Device(write_noise=0.1),
    "gain": Device(neuron_gain=0.3, seed=3),
    "offset": Device(neuron_offset=0.3, seed=3),
    "inputs": Device(inputs=Converter(3, limit=2.0)),
}
MOVING = {
    "read noise": Device(read_noise=0.02, average=8),
    "thermal noise": Device(thermal_noise=0.02, time_step=0.5, average=8),
    "states": Device(states=Converter(6)),
    "phase offset": Device(phase_offset=0.02),
    "drift": Device(drift=0.02),
    "age": Device(drift=0.02, age=100.0),
    "short free phase": Device(settle_free=1),
}


def squared(output: Tensor, target: Tensor) -> Tensor:
    return (output - nn.functional.one_hot(target, output.shape[1]).to(output)).square().mean()


def network(kind: str = "hopfield") -> tuple[teq.EquilibriumModel, Tensor, Tensor]:
    torch.manual_seed(0)
    y = torch.randint(0, 4, (6,))
    if kind == "looped":
        return teq.LoopedMLP(6, 9, 4).double(), torch.randn(6, 6).double(), y
    if kind == "converted":
        net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 4))
        return teq.convert(net).double(), torch.randn(6, 1, 6, 6).double(), y
    if kind == "conv":
        model = teq.HopfieldConvNet((1, 6, 6), [3, 4], 4, kernel_size=3)
        return model.double(), torch.randn(6, 36).double(), y
    return (
        teq.HopfieldMLP([6, 9, 4], output="free").double(),
        torch.randn(6, 6).double(),
        y,
    )


def one_gradient(model: teq.EquilibriumModel, x: Tensor, y: Tensor) -> list[Tensor]:
    loss = squared(model(x), y)
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("kind", ["hopfield", "looped", "converted", "conv"])
def test_without_a_fault_a_chip_is_the_plain_model(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, outputs and gradients, on the path that a chip takes; where a model has a
    shorter one, whose free phase begins elsewhere, to its tolerance."""
    model, x, y = network(kind)
    chip = on(Device(), model)
    assert torch.allclose(chip(x), model(x), rtol=0, atol=model.tol)
    monkeypatch.setattr("toreqprop.models.base.compiled_step", lambda *given: None)
    assert torch.equal(chip(x), model(x))
    for a, b in zip(one_gradient(chip, x, y), one_gradient(model, x, y), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", [*STATIC, *MOVING])
def test_every_fault_acts_in_the_free_phase_or_between_phases(name: str) -> None:
    """A fault that changes nothing would be a lie."""
    model, x, y = network()
    model.tol = 1e-10
    chip = on({**STATIC, **MOVING}[name], model, beta=0.1)
    plain = copy.deepcopy(model)
    plain.gradient = teq.CenteredEP(0.1)
    free_differs = not torch.allclose(chip(x), plain(x), rtol=0, atol=1e-6)
    assert free_differs == (name not in ("phase offset", "drift"))
    pairs = zip(one_gradient(chip, x, y), one_gradient(plain, x, y), strict=True)
    assert any(not torch.allclose(a, b, rtol=1e-4, atol=0) for a, b in pairs)


@pytest.mark.parametrize("name", STATIC)
def test_what_lasts_leaves_the_gradient_exact(name: str) -> None:
    """EP on the chip against the implicit gradient of the same physical network."""
    model, x, y = network()
    chip = on(STATIC[name], model, beta=1e-3)
    chip.tol = 1e-10
    found, exact = flat(gradient(chip, x, y, squared)), flat(exact_gradient(chip, x, y, squared))
    # Centred EP at β = 1e-3 is biased by O(β²) = 1e-6, times the curvature of the network.
    assert float((found - exact).norm() / exact.norm()) < 1e-4


@pytest.mark.parametrize("kind", ["looped", "converted", "conv"])
def test_every_network_learns_exactly_on_a_static_chip(kind: str) -> None:
    model, x, y = network(kind)
    device = Device(weights=Quantised(5), spread=0.3, stuck=0.1, neuron_gain=0.2, neuron_offset=0.2)
    chip = on(device, model)
    chip.tol, chip.max_steps = 1e-10, 5000
    chip.gradient = teq.CenteredEP(1e-4)
    found, exact = flat(gradient(chip, x, y, squared)), flat(exact_gradient(chip, x, y, squared))
    assert float((found - exact).norm() / exact.norm()) < 1e-4


def test_the_exact_gradient_is_that_of_the_physical_network() -> None:
    """Against finite differences of the loss by the weights on the chip, mismatched both ways."""
    model, x, y = network()
    chip = on(Device(up_down=0.5, spread=0.2, neuron_gain=0.2, seed=1), model)
    chip.tol, chip.max_steps = 1e-12, 5000
    exact = exact_gradient(chip, x, y, squared)
    name = "network.layers.0.weight"
    h, at = 1e-5, (2, 3)
    losses = []
    for sign in (1, -1):
        moved = chip.at_rest()
        moved.tol, moved.max_steps = 1e-13, 5000
        params = list(moved.system_parameters())
        # The weight's actual value in the first matrix, which has no way down.
        params[0] = params[0].detach().clone()
        params[0][at] += sign * h
        system = System.bind(moved.field, x, tuple(p.detach() for p in params))
        state = moved.solver.solve(system, system.initial_state()).state
        losses.append(float(squared(moved.readout_from(state), y)))
    slope = (losses[0] - losses[1]) / (2 * h)
    assert float(exact[name][at]) == pytest.approx(slope, rel=1e-4)


def test_mismatch_between_the_ways_biases_the_rule() -> None:
    """The one static fault without an energy: more of it, more bias."""
    model, x, y = network()
    errors = []
    for size in (0.1, 0.5):
        chip = on(Device(up_down=size), model, beta=1e-3)
        chip.tol = 1e-10
        exact = flat(exact_gradient(chip, x, y, squared))
        found = flat(gradient(chip, x, y, squared))
        errors.append(float((found - exact).norm() / exact.norm()))
    assert 0.005 < errors[0] < errors[1]


def test_the_same_seed_is_the_same_chip() -> None:
    model, x, _ = network()
    faults: dict[str, Any] = {"spread": 0.3, "stuck": 0.1, "neuron_offset": 0.2}
    one, again, other = (on(Device(**faults, seed=s), model)(x) for s in (5, 5, 6))
    assert torch.equal(one, again)
    assert not torch.allclose(one, other)
    assert len({d.seed for d in Device(seed=5).chips(20)}) == 20


def test_one_fault_does_not_change_the_others_sample() -> None:
    alone = programmed(Device(spread=0.3, seed=2), 0, torch.ones(5, 4))[0]
    both = programmed(Device(spread=0.3, stuck=0.3, seed=2), 0, torch.ones(5, 4))[0]
    kept = both != 0
    assert 0 < int(kept.sum()) < 20
    assert torch.equal(alone[kept], both[kept])


def test_symmetric_weights_stay_symmetric_but_for_mismatch() -> None:
    weight = torch.randn(6, 6).double()
    weight = weight + weight.mT
    device = Device(spread=0.3, stuck=0.2, stuck_at="either", seed=1)
    up, down = programmed(device, 2, weight, symmetric=True)
    assert torch.equal(up, up.mT)
    assert torch.equal(up, down)
    up, down = programmed(Device(up_down=0.4), 2, weight, symmetric=True)
    assert not torch.allclose(up, up.mT)
    assert torch.allclose(up, down.mT)


def test_stuck_weights_are_stuck_where_they_should_be() -> None:
    weight = torch.randn(40, 50)
    zero = programmed(Device(stuck=0.2), 0, weight)[0]
    assert float((zero == 0).double().mean()) == pytest.approx(0.2, abs=0.03)  # 3.4 deviations
    bound = programmed(Device(stuck=0.2, stuck_at="bound"), 0, weight)[0]
    largest = weight.abs().max()
    assert float((bound.abs() == largest).double().mean()) == pytest.approx(0.2, abs=0.03)
    assert bool((bound == largest).any())
    assert bool((bound == -largest).any())


@pytest.mark.parametrize(("bits", "levels"), [(1, 2), (2, 3), (4, 15), (8, 255)])
def test_bits_are_levels(bits: int, levels: int) -> None:
    values = torch.linspace(-1.5, 1.5, 10_001).double()
    assert len(Converter(bits)(values).unique()) == levels
    assert len(Quantised(bits)(values).unique()) == levels
    if bits > 1:
        inside = values[values.abs() <= 1]
        assert float((Converter(bits)(inside) - inside).abs().max()) <= Converter(bits).step / 2


def test_a_scale_by_the_mean_square_leaves_weights_to_few_bits() -> None:
    """Three values at two bits either way; with the largest as scale most weights are zero."""
    weight = torch.randn(200, 50, generator=torch.Generator().manual_seed(0))
    largest, clipped = Quantised(2)(weight), Quantised(2, clip=1.5)(weight)
    assert len(largest.unique()) == len(clipped.unique()) == 3
    assert float((largest == 0).float().mean()) > 0.9
    size = 1.5 * weight.square().mean().sqrt()
    assert torch.allclose(clipped.abs().max(), size)
    assert torch.equal(clipped == 0, weight.abs() / size < 0.5)
    assert (clipped - weight).norm() < 0.5 * (largest - weight).norm()
    with pytest.raises(InvalidInputError, match="give one"):
        Quantised(2, limit=1.0, clip=1.5)


def test_a_chip_whose_weights_alone_differ_is_the_same_energy() -> None:
    """Kernels serve it, and its states are those of the network at the weights on the chip."""
    model, x, _ = network()
    model.tol = 1e-10
    chip = on(Device(stuck=0.3, spread=0.2, weights=Quantised(4)), model)
    assert chip.field is model.field
    with torch.no_grad():
        written = model.system_parameters()
        placed = chip.system_parameters()
        pairs = [(a, b) for a, b in zip(written, placed, strict=True) if a.dim() > 1]
        assert not any(torch.equal(a, b) for a, b in pairs)
        expected = System.bind(model.field, x, placed)
        found = chip.equilibrium(x).state
        image = expected.activate(expected.preactivation(found))
    for a, b in zip(found, image, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-8)


def test_ternary_and_binary_are_the_closest_of_their_kind() -> None:
    """α of ternary and binary is the least-squares scale of their signs."""
    weight = torch.randn(200).double().reshape(10, 20)
    for store in (Ternary(), Binary()):
        found = store(weight)
        signs = found.sign()
        best = float((weight * signs).sum() / signs.abs().sum())
        assert torch.allclose(found, best * signs)


def test_reading_many_times_averages_noise() -> None:
    """rms about the mean falls as one over the root of the readings."""
    model, x, _ = network()
    spread = {}
    for count in (1, 64):
        chip = on(Device(read_noise=0.05, average=count, settle=10), model)
        with noise_from(torch.Generator().manual_seed(1)), torch.no_grad():
            drawn = torch.stack([chip(x) for _ in range(40)])
        spread[count] = float(drawn.std(0).mean())
    # Noise that has gone through the network is correlated in time: a little more than 1/8 is left.
    assert 1 / 8.5 < spread[64] / spread[1] < 1 / 5


def test_thermal_noise_has_the_rms_it_says() -> None:
    """A neuron without couplings: v fluctuates by exactly this much, whatever the time step."""
    torch.manual_seed(0)
    model = teq.HopfieldMLP([2, 3, 2], output="free", spectral_norm=False).double()
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    for step in (None, 0.2):
        chip = on(Device(thermal_noise=0.1, time_step=step, settle=40), model)
        with noise_from(torch.Generator().manual_seed(0)), torch.no_grad():
            found = torch.atanh(chip.equilibrium(torch.zeros(2000, 2).double()).state[0])
        # 6000 draws: one per cent of the rms is one deviation of its estimate
        assert float(found.std()) == pytest.approx(0.1, rel=0.04)


def test_phases_differ_by_what_the_device_says() -> None:
    model, x, _ = network()
    chip = on(Device(phase_offset=0.03, settle=1), model)
    with torch.no_grad():
        system = System.bind(chip.field, x, chip.system_parameters())
        start = system.initial_state()
        direction = tuple(torch.zeros_like(s) for s in start)
        nudged = system.nudged(LinearNudge(direction, 0.1))
        phases = [run_phase(nudged, start, k).state[0] for k in (0, 1, 2)]
        steps = [torch.atanh(b) - torch.atanh(a) for a, b in itertools.pairwise(phases)]
    expected = 0.03 * chip.device.normal("phase", 0, (9,))
    for step in steps:  # one evaluation from the same start: the offset alone
        assert torch.allclose(step, expected.expand_as(step), atol=1e-12)


def test_swapping_phases_changes_nothing_without_a_fault() -> None:
    model, x, y = network()
    model.tol = 1e-12
    plain = one_gradient(model, x, y)
    model.gradient = teq.CenteredEP(swap=True)
    with noise_from(torch.Generator().manual_seed(0)):
        for _ in range(4):  # both orders are among them
            for a, b in zip(one_gradient(model, x, y), plain, strict=True):
                assert torch.allclose(a, b, rtol=1e-9, atol=1e-15)


def test_swapping_phases_turns_an_offset_into_noise() -> None:
    model, x, y = network()
    chip = on(Device(phase_offset=0.1), model, beta=0.1)
    exact = flat(exact_gradient(chip, x, y, squared))
    error = {}
    for swap in (False, True):
        chip.gradient = teq.CenteredEP(0.1, swap=swap)
        with noise_from(torch.Generator().manual_seed(0)):
            mean = torch.stack([flat(gradient(chip, x, y, squared)) for _ in range(60)]).mean(0)
        error[swap] = float((mean - exact).norm() / exact.norm())
    # 60 draws of ±: the mean of the signs is 0.13 at one deviation.
    assert error[True] < 0.4 * error[False]


def test_programming_noise_lasts_until_the_weights_change() -> None:
    model, x, _ = network()
    chip = on(Device(write_noise=0.1), model)
    before = chip(x)
    assert torch.equal(chip(x), before)
    assert torch.equal(copy.deepcopy(chip)(x), before)
    with torch.no_grad():
        model.layers[0].weight[0, 0] += 1e-3
    assert not torch.allclose(chip(x), before, atol=1e-4)


def test_an_energy_is_found_where_there_is_one() -> None:
    """Gains and offsets leave an energy: its derivative vanishes at the equilibrium."""
    model, x, _ = network()
    chip = on(Device(neuron_gain=0.3, neuron_offset=0.4, seed=2), model)
    chip.tol = 1e-12
    params = chip.system_parameters()
    state = tuple(s.detach().requires_grad_() for s in chip.equilibrium(x).state)
    energy = chip.field.energy(state, x, params).sum()
    for g in torch.autograd.grad(energy, state):
        assert float(g.abs().max()) < 1e-8


@pytest.mark.parametrize(
    ("faults", "word"),
    [
        ({"spread": -0.1}, "spread"),
        ({"stuck": 1.5}, "stuck"),
        ({"stuck_at": "top"}, "stuck_at"),
        ({"states": 8}, "Converter"),
        ({"weights": 4}, "Quantised"),
        ({"average": 0}, "average"),
        ({"seed": -1}, "seed"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(faults: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        Device(**faults)


def test_what_has_no_energy_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="energy"):
        on(Device(), teq.LoopedMLP(3, 4, 2, symmetric=False))
    model, x, y = network()
    chip = on(Device(read_noise=0.1), model)
    chip.gradient = teq.HolomorphicEP()
    with pytest.raises(UnsupportedModelError, match="complex"):
        one_gradient(chip, x, y)


@pytest.mark.parametrize("kind", ["hopfield", "looped", "converted", "conv"])
def test_every_network_runs_the_phases_of_a_chip(kind: str) -> None:
    """All that moves at once, little of it: the gradient is near the exact one."""
    model, x, y = network(kind)
    device = Device(
        states=Converter(16),
        read_noise=1e-5,
        thermal_noise=1e-5,
        time_step=2.0,
        phase_offset=1e-5,
        drift=1e-6,
        average=4,
        settle=60,
    )
    chip = on(device, model, beta=0.02)
    with noise_from(torch.Generator().manual_seed(0)):
        found = flat(gradient(chip, x, y, squared))
    exact = flat(exact_gradient(chip, x, y, squared))
    # Converters of 16 bits have steps of 3e-5, over β of 0.02: some 1e-3 of a state each.
    assert float((found - exact).norm() / exact.norm()) < 0.05


REFUSED = {"holomorphic", "vector_field"}
"""Estimators that ask of a chip what none can do: complex states, a correcting force."""


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - REFUSED))
def test_estimators_serve_a_chip(name: str) -> None:
    model, x, y = network()
    chip = on(Device(read_noise=1e-4, average=8, settle=40), model)
    chip.gradient = name
    with noise_from(torch.Generator().manual_seed(0)):
        found = flat(gradient(chip, x, y, squared))
    exact = flat(exact_gradient(chip, x, y, squared))
    # Weak nudges drown where states are subtracted; the oracles never look at the chip.
    assert float(found @ exact / (found.norm() * exact.norm())) > 0.9


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_no_chip_can_do_is_refused(name: str) -> None:
    model, x, y = network()
    chip = on(Device(read_noise=1e-4), model)
    chip.gradient = name
    with pytest.raises(UnsupportedModelError, match="A chip"):
        gradient(chip, x, y, squared)
