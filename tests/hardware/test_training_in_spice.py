"""Networks of the library with ngspice as their solver."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.bench.circuits.iris import TEST, train
from toreqprop.hardware import Ngspice, netlist


def test_iris_is_learnt_from_spice_voltages(ngspice: Ngspice) -> None:
    _, correct = train(ngspice, seed=0, epochs=8)
    assert correct >= 0.85 * TEST


@pytest.mark.parametrize("neuron", ["behavioural", "pair"])
@pytest.mark.parametrize("kind", ["looped", "layered", "free"])
def test_library_networks_get_their_gradient_from_spice(
    ngspice: Ngspice, kind: str, neuron: str
) -> None:
    """States, outputs and EP's gradient of every tensor, as the library computes them."""
    torch.manual_seed(0)
    model: teq.EquilibriumModel = {
        "looped": lambda: teq.LoopedMLP(4, 6, 3, gain=2.0, radius=0.9),
        "layered": lambda: teq.HopfieldMLP([4, 6, 5, 3], feedback=0.7),
        "free": lambda: teq.HopfieldMLP([4, 6, 3], output="free"),
    }[kind]()
    model.double()
    model.tol, model.max_steps = 1e-12, 5000
    x, y = torch.randn(5, 4).double(), torch.randint(0, 3, (5,))

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected, output = gradients(), model(x).detach()
    circuit = netlist(model, x, neuron=neuron)  # type: ignore[arg-type]
    model.solver = Ngspice(neuron=neuron)  # type: ignore[arg-type]
    for a, b in zip(gradients(), expected, strict=True):
        assert float((a - b).norm()) <= 1e-8 * float(b.norm())
    if kind != "free":
        measured = ngspice.operating_points(circuit).voltages["out"]
        assert float((measured - output).abs().max()) < 1e-8


def test_a_checkpoint_names_no_program_to_run(tmp_path: object) -> None:
    """What is loaded from a file must not choose what is executed."""
    from toreqprop import checkpoint

    model = teq.ResistiveMLP([2, 2, 2], solver=Ngspice())
    with pytest.raises(teq.TorEqPropError, match="Ngspice"):
        checkpoint.save(tmp_path, checkpoint.Checkpoint(model))  # type: ignore[arg-type]
