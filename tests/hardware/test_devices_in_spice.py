"""The same device in both simulations: a network on a chip in PyTorch, and as a circuit."""

from __future__ import annotations

import pytest
import torch

import toreqprop as teq
from toreqprop.bench.circuits.gradients import states_apart
from toreqprop.errors import UnsupportedModelError
from toreqprop.hardware import Device, Ngspice, Quantised, netlist, on

FAULTS = {
    "spread": Device(spread=0.3, seed=2),
    "stuck": Device(stuck=0.3, stuck_at="either", seed=2),
    "bits": Device(weights=Quantised(3)),
    "gain": Device(neuron_gain=0.3, seed=2),
    "offset": Device(neuron_offset=0.4, seed=2),
    "mismatch": Device(up_down=0.5, seed=2),
}


def model(kind: str) -> teq.EquilibriumModel:
    torch.manual_seed(1)
    if kind == "looped":
        return teq.LoopedMLP(4, 5, 3, radius=0.9, bound="exact").double()
    return teq.HopfieldMLP([4, 5, 3], output="free", bound="exact", feedback=0.7).double()


@pytest.mark.parametrize("kind", ["looped", "layered"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_chip_settles_alike_in_both_simulations(ngspice: Ngspice, kind: str, name: str) -> None:
    """Free states to 1e-9, and they are not those of the network without the fault."""
    plain, x = model(kind), torch.randn(4, 4).double()
    chip = on(FAULTS[name], plain)
    chip.tol, chip.max_steps = 1e-12, 5000
    expected = chip.equilibrium(x).state
    chip.solver = ngspice
    assert states_apart(expected, chip.equilibrium(x).state) < 1e-9
    assert states_apart(expected, plain.equilibrium(x).state) > 1e-4


@pytest.mark.parametrize("neuron", ["behavioural", "pair"])
def test_a_gradient_from_the_circuits_voltages(ngspice: Ngspice, neuron: str) -> None:
    """EP on the chip and EP from SPICE's voltages of the same chip, tensor by tensor."""
    device = Device(spread=0.3, neuron_gain=0.2, neuron_offset=0.3, seed=4)
    chip = on(device, model("layered"), beta=0.01)
    chip.tol, chip.max_steps = 1e-12, 5000
    x, y = torch.randn(4, 4).double(), torch.tensor([0, 1, 2, 0])

    def gradient() -> list[torch.Tensor]:
        loss = torch.nn.functional.cross_entropy(chip(x), y)
        return list(torch.autograd.grad(loss, list(chip.parameters())))

    expected = gradient()
    chip.solver = Ngspice(timeout=ngspice.timeout, neuron=neuron)  # type: ignore[arg-type]
    for a, b in zip(gradient(), expected, strict=True):
        # Differences of voltages that agree to 1e-12 (pairs of transistors: 1e-8), over β.
        scale = 1e-4 if neuron == "pair" else 1e-6
        torch.testing.assert_close(a, b, rtol=scale, atol=scale * float(b.abs().max()))


def test_what_moves_is_no_netlist() -> None:
    chip = on(Device(read_noise=0.1), model("layered"))
    with pytest.raises(UnsupportedModelError, match="at_rest"):
        netlist(chip)
