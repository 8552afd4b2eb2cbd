"""Networks for other programs: ONNX and torch give what the library gives, the rest is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import toreqprop as teq
from toreqprop import exporting, hardware
from toreqprop.cli import app
from toreqprop.energies import Linear, Tanh
from toreqprop.errors import InvalidInputError, UnsupportedModelError

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's exporter warns of its own parts

SAME = 1e-5
"""Float32 in another order of sums; a relaxation to 1e-6 leaves about that much."""


def small(kind: str) -> tuple[teq.EquilibriumModel, Tensor]:
    models: dict[str, Any] = {
        "looped": lambda: (teq.LoopedMLP(4, 6, 3, radius=0.8), torch.randn(3, 4)),
        "hopfield": lambda: (teq.HopfieldMLP([4, 5, 5, 3], feedback=0.7), torch.randn(3, 4)),
        "conv": lambda: (
            teq.HopfieldConvNet((1, 6, 6), (2, 3), 3, kernel_size=3), torch.randn(3, 1, 6, 6),
        ),
        "transformer": lambda: (
            teq.EquilibriumTransformer(5, 4, width=8), torch.randint(0, 5, (3, 4)),
        ),
    }  # fmt: skip
    model, x = models[kind]()
    model.tol, model.max_steps = 1e-7, 2000
    return model.eval(), x


def by_onnxruntime(model: Any, x: Tensor) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.SerializeToString())
    return session.run(["output"], {"x": x.numpy()})[0]


@pytest.mark.parametrize("kind", ["looped", "hopfield", "conv", "transformer"])
def test_onnx_settles_where_the_library_does(kind: str) -> None:
    pytest.importorskip("onnxscript")
    model, x = small(kind)
    graph = exporting.to_onnx(exporting.FreePhase(model, x))
    assert [node.op_type for node in graph.graph.node].count("Loop") == 1
    with torch.no_grad():
        wanted = model(x).numpy()
    for rows in (3, 1):  # any batch, not that of the example alone
        assert np.abs(by_onnxruntime(graph, x[:rows]) - wanted[:rows]).max() < SAME


def test_a_fixed_number_of_steps_and_raw_features() -> None:
    pytest.importorskip("onnxscript")
    model, x = small("looped")
    scaling = (torch.full((1, 4), 2.0), torch.full((1, 4), 3.0))
    phase = exporting.FreePhase(model, x, tol=0, max_steps=3)
    drive, state = phase.start(x)
    for _ in range(3):
        state, residual = phase.step(drive, state)
    assert float(residual) > 1e-6  # three steps are not enough, so that a fourth would show
    graph = exporting.to_onnx(exporting.FreePhase(model, x, tol=0, max_steps=3, scaling=scaling))
    found = by_onnxruntime(graph, 3.0 * x + 2.0)
    assert np.abs(found - phase.read(state).detach().numpy()).max() < SAME


def test_a_program_of_torch_alone(tmp_path: Path) -> None:
    model, x = small("hopfield")
    torch.export.save(exporting.to_program(exporting.FreePhase(model, x)), tmp_path / "net.pt2")
    again = torch.export.load(tmp_path / "net.pt2").module()
    with torch.no_grad():
        assert float((again(x[:2]) - model(x[:2])).abs().max()) < SAME


def linear() -> teq.HopfieldMLP:
    return teq.HopfieldMLP([4, 5, 6, 3], activation=Linear(), feedback=0.6).double()


def settle(graph: Any, x: np.ndarray) -> np.ndarray:
    """A simulator of its own: Euler steps of every leaky integrator, by the graph alone."""
    import nir

    integrators = {n: node for n, node in graph.nodes.items() if isinstance(node, nir.LI)}
    rest = {name: np.zeros((len(x), node.tau.size)) for name, node in integrators.items()}

    def value(name: str) -> Any:
        node = graph.nodes[name]
        if isinstance(node, nir.Input):
            return x
        if isinstance(node, nir.LI):
            return rest[name]
        given = sum(value(a) for a, b in graph.edges if b == name)
        if isinstance(node, nir.Affine):
            return given @ node.weight.T + node.bias
        return given @ node.weight.T if isinstance(node, nir.Linear) else given

    for _ in range(400):
        change = {
            name: sum(value(a) for a, b in graph.edges if b == name) - v for name, v in rest.items()
        }
        for name, step in change.items():
            rest[name] = rest[name] + 0.5 * step
    return np.asarray(value("output"))


def test_nir_rests_where_linear_neurons_do(tmp_path: Path) -> None:
    nir = pytest.importorskip("nir")
    model = linear()
    model.tol, model.max_steps = 1e-12, 5000
    x = torch.randn(2, 4, dtype=torch.float64)
    nir.write(tmp_path / "net.nir", exporting.to_nir(model))
    found = settle(nir.read(tmp_path / "net.nir"), x.numpy())
    assert np.abs(found - model(x).detach().numpy()).max() < SAME


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: teq.HopfieldMLP([4, 5, 6, 3]), "saturates as Tanh does"),
        (lambda: teq.LoopedMLP(4, 5, 3), "DenseEnergy has no counterpart"),
        (lambda: teq.HopfieldConvNet((1, 6, 6), (2, 3), 3, kernel_size=3), "has no counterpart"),
        (lambda: teq.ResistiveMLP([4, 5, 3]), "toreqprop circuit export"),
    ],
)
def test_nir_refuses_what_it_cannot_hold(build: Any, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        exporting.to_nir(build())


def test_what_has_no_free_phase_elsewhere_is_refused() -> None:
    x = torch.randn(2, 4)
    chip = hardware.on(hardware.Device(read_noise=0.1), teq.HopfieldMLP([4, 5, 3], output="free"))
    for model, message in (
        (teq.ResistiveMLP([4, 5, 3]), "netlist"),
        (chip, "noise and faults"),
        (teq.BackpropMLP(4, 5, 3), "does not settle"),
    ):
        with pytest.raises(UnsupportedModelError, match=message):
            exporting.FreePhase(model, x)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="two samples or more"):
        exporting.FreePhase(teq.LoopedMLP(4, 5, 3), x[:1])


def test_without_onnx_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toreqprop.exporting.onnx_graph.find_spec", lambda name: None)
    with pytest.raises(InvalidInputError, match=r"toreqprop\[export\]"):
        exporting.to_onnx(exporting.FreePhase(*small("looped")))


def test_the_command_takes_raw_rows_and_checks_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    rows = "".join(f"{k % 7},{k % 5},{'ab'[k % 2]}\n" for k in range(40))
    (tmp_path / "t.csv").write_text("u,v,w\n" + rows)
    train = [
        "train",
        str(tmp_path / "t.csv"),
        "--kernel",
        "torch",
        "--hidden",
        "5",
        "--epochs",
        "2",
    ]
    train += ["--output", str(tmp_path / "run")]
    assert CliRunner().invoke(app, train).exit_code == 0
    command = ["export", str(tmp_path / "run"), "--output", str(tmp_path / "t.onnx"), "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["difference"] < SAME
    assert facts["bytes"] == (tmp_path / "t.onnx").stat().st_size
    import onnxruntime

    from toreqprop.checkpoint import load
    from toreqprop.cli.predictor import restore

    raw = np.array([[3.0, 4.0], [6.0, 0.0]], np.float32)
    session = onnxruntime.InferenceSession(str(tmp_path / "t.onnx"))
    predictor = restore(load(tmp_path / "run"))
    predictor.model.tol = 1e-7
    wanted = predictor.outputs(raw.astype(np.float64)).numpy()
    assert np.abs(session.run(None, {"x": raw})[0] - wanted).max() < SAME

    monkeypatch.setattr("toreqprop.cli.export._run_onnx", lambda path, x: torch.full((4, 2), 9.0))
    assert CliRunner().invoke(app, command).exit_code == 1


def test_an_activation_makes_the_difference() -> None:
    """The refusal looks at the neurons, not at the class of the model."""
    pytest.importorskip("nir")
    assert exporting.to_nir(linear())
    with pytest.raises(UnsupportedModelError):
        exporting.to_nir(teq.HopfieldMLP([4, 5, 6, 3], activation=Tanh()))
