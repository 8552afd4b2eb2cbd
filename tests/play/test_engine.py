"""The engine of the page against the library: the same states, energies and gradients."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import toreqprop as teq
from tests.play.browser import Browser, find
from toreqprop import checkpoint, play
from toreqprop.energies import LinearNudge, System
from toreqprop.errors import UnsupportedModelError
from toreqprop.gradients.base import normalise
from toreqprop.models import EquilibriumModel
from toreqprop.play.export import network_data
from toreqprop.play.layout import arranged
from toreqprop.play.maze import SETUP, map_data
from toreqprop.play.page import placed
from toreqprop.play.recipes import FOLDER
from toreqprop.solvers import relax
from toreqprop.tasks import get
from toreqprop.tasks.mazes import mazes

ENGINE = Path(play.__file__).parent / "engine.js"
CASES = Path(__file__).with_name("engine_cases.js")
BETA = 0.3
CLOSE = 1e-5
"""What the page promises; float32 weights leave about 1e-7 of it."""


@cache
def digits() -> tuple[EquilibriumModel, Tensor, Tensor]:
    model = checkpoint.load(FOLDER / "digits").model
    assert isinstance(model, EquilibriumModel)
    data = get("digits").load(42, False)
    return model, torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)


def layered() -> EquilibriumModel:
    return teq.HopfieldMLP(
        [64, 20, 15, 10], feedback=1.0, generator=torch.Generator().manual_seed(3)
    )


def as_data(model: EquilibriumModel) -> dict[str, Any]:
    counts = [layer["count"] for layer in network_data(model)["layers"]]
    return placed(model, [list(range(count)) for count in counts])


def call(model: EquilibriumModel, x: Tensor, target: int) -> str:
    given = (as_data(model), x[0].double().tolist(), target, BETA)
    return f"({CASES.read_text().rstrip().rstrip(';')})(Engine, {json.dumps(given)[1:-1]})"


def in_node(expression: str, folder: Path) -> Any:
    program = folder / "run.js"
    program.write_text(
        f"const Engine = require({json.dumps(str(ENGINE))});\n"
        f"process.stdout.write(JSON.stringify({expression}));\n"
    )
    done = subprocess.run(["node", str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def in_chromium(expression: str, folder: Path) -> Any:
    page = folder / "page.html"
    page.write_text(f"<!doctype html><script>{ENGINE.read_text()}</script>")
    with Browser(str(find()), folder / "profile") as browser:
        browser.show(page.as_uri())
        return browser.run(expression)


RUNNERS = [
    pytest.param(
        in_node, id="node",
        marks=pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here"),
    ),
    pytest.param(
        in_chromium, id="chromium",
        marks=pytest.mark.skipif(find() is None, reason="there is no Chromium here"),
    ),
]  # fmt: skip


def expected(model: EquilibriumModel, x: Tensor, target: int) -> dict[str, Any]:
    """The same by the library, in double precision, from the weights the page is given."""
    solver = teq.FixedPoint(tol=1e-11, max_steps=5000)
    params = tuple(p.detach().double() for p in model.system_parameters())
    system = System.bind(model.field, x.double(), params)
    free = relax(system, solver).state
    leaves = tuple(s.clone().requires_grad_() for s in free)
    readout = model.double().readout_from(leaves)
    loss = F.cross_entropy(readout, torch.tensor([target]))
    cotangent = torch.autograd.grad(loss, leaves, materialize_grads=True, allow_unused=True)
    direction, _ = normalise(cotangent)
    up, down = (
        relax(system.nudged(LinearNudge(direction, b)), solver).state for b in (BETA, -BETA)
    )
    path = teq.Trace(keep_states=True)
    damped = teq.FixedPoint(damping=0.25, tol=1e-11, max_steps=13)
    rest = tuple(torch.zeros_like(s) for s in free)
    relax(system, damped, start=rest, trace=path, kernel="torch")
    return {
        "free": _flat(free), "up": _flat(up), "down": _flat(down), "direction": _flat(direction),
        "outputs": readout.detach().flatten().numpy(), "loss": float(loss.detach()),
        "energy": float(system.energy(free)), "path": [_flat(s) for s in path.states[1:13]],
        "energies": [float(system.energy(s)) for s in path.states[1:13]],
    }  # fmt: skip


def _flat(state: tuple[Tensor, ...]) -> np.ndarray:
    return torch.cat([s.detach().flatten() for s in state]).double().numpy()


@pytest.mark.parametrize("runner", RUNNERS)
def test_states_are_those_of_the_library(runner: Any, tmp_path: Path) -> None:
    model, x, y = digits()
    found = runner(call(model, x[:1], int(y[0])), tmp_path)
    _same_states(found, expected(_copy(model), x[:1], int(y[0])))


def _copy(model: EquilibriumModel) -> EquilibriumModel:
    """`expected` turns it to double precision; the page has the float32 weights."""
    import copy

    return copy.deepcopy(model)


def _same_states(found: dict[str, Any], right: dict[str, Any]) -> None:
    assert found["settled"]
    for name in ("free", "up", "down", "direction", "outputs"):
        np.testing.assert_allclose(found[name], right[name], rtol=0, atol=CLOSE, err_msg=name)
    # The nudge moves it by far more than the tolerance, or the comparison would say nothing.
    assert np.abs(np.subtract(found["up"], found["down"])).max() > 1e3 * CLOSE
    assert found["loss"] == pytest.approx(right["loss"], rel=1e-5)
    assert found["energy"] == pytest.approx(right["energy"], rel=1e-6)
    for step, state, energy in zip(found["path"], right["path"], right["energies"], strict=True):
        np.testing.assert_allclose(step["state"], state, rtol=0, atol=CLOSE)
        assert step["energy"] == pytest.approx(energy, rel=1e-6)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_a_stack_of_layers_settles_alike(tmp_path: Path) -> None:
    model, x = layered(), digits()[1][5:6]
    found = in_node(call(model, x, 4), tmp_path)
    _same_states(found, expected(model, x, 4))


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_gradients_are_those_of_the_library(tmp_path: Path) -> None:
    """EP's and the exact one, on a network that has the effective weights as its own."""
    model, x, y = digits()
    # A sample that the network finds hard: of an easy one the gradient is nearly zero.
    with torch.no_grad():
        worst = int(F.cross_entropy(model(x), y, reduction="none").argmax())
    x, target = x[worst : worst + 1], y[worst : worst + 1]
    found = in_node(call(model, x, int(target)), tmp_path)
    twin = teq.LoopedMLP(64, 144, 10, spectral_norm=False, tol=1e-11, max_steps=5000).double()
    weight, bias, recurrent = (p.detach().double() for p in model.system_parameters())
    with torch.no_grad():
        twin.input.weight.copy_(weight)
        twin.input.bias.copy_(bias)
        twin.recurrent.raw.copy_(0.5 * (recurrent + recurrent.mT))
        twin.readout.load_state_dict(model.readout.state_dict())  # type: ignore[union-attr,operator]
    for name, estimator in (("gradient", teq.CenteredEP(BETA)), ("exact", teq.ImplicitGradient())):
        twin.gradient, twin.on_failure = estimator, "ignore"
        twin.zero_grad()
        F.cross_entropy(twin(x.double()), target).backward()
        tensors = {
            "input": twin.input.weight, "bias": twin.input.bias, "recurrent": twin.recurrent.raw
        }  # fmt: skip
        for tensor, parameter in tensors.items():
            assert parameter.grad is not None
            right = parameter.grad.flatten().numpy()
            apart = np.linalg.norm(np.subtract(found[name][tensor], right))
            assert apart < 1e-5 * np.linalg.norm(right), (name, tensor)
    assert found["norm"] == pytest.approx(model.lipschitz(), rel=1e-3)  # by power iteration
    assert 1e-3 < found["angle"] < 30  # at this beta the two differ, and not by much


MAP_CASES = """(Maps, data, x, side, steps, bytes) => {
  const net = Maps.network(data, bytes);
  const drives = Maps.drive(net, Float64Array.from(x), side);
  let state = Maps.start(net, side);
  const energies = [];
  const path = [];
  for (let k = 0; k < steps; k++) {
    state = Maps.step(net, drives, state, side).state;
    energies.push(Maps.energy(net, drives, state, side));
    if (k < 8) path.push(Array.from(state));
  }
  const chances = Array.from(Maps.readout(net, state, side));
  return { state: Array.from(state), path, energies, chances };
}"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_a_map_settles_in_a_maze_as_the_library_s_does(tmp_path: Path) -> None:
    model = checkpoint.load(FOLDER / "maze").model
    assert isinstance(model, teq.EquilibriumMap)
    x = torch.from_numpy(mazes("maze-path", 9, 1, 7).x)
    steps = 300
    given = (map_data(model), x.flatten().double().tolist(), 9, steps)
    program = f"""(() => {{
      const Maps = require({json.dumps(str(ENGINE.with_name("maps.js")))});
      return ({MAP_CASES})(Maps, {json.dumps(given)[1:-1]}, Engine.bytes);
    }})()"""
    found = in_node(program, tmp_path)
    params = tuple(p.detach().double() for p in model.system_parameters())
    system = System.bind(model.field, x.double(), params)
    state, states = system.initial_state(), []
    for _ in range(steps):
        state = system.map(state)
        states.append(state)
    chances = model.double().readout_from(state).softmax(-1)[..., 1]
    for ours, theirs in zip([*found["path"], found["state"]], [*states[:8], state], strict=True):
        np.testing.assert_allclose(ours, _flat(theirs), rtol=0, atol=CLOSE)
    np.testing.assert_allclose(found["chances"], chances.detach().flatten(), rtol=0, atol=CLOSE)
    right = [float(system.energy(s)) for s in states]
    np.testing.assert_allclose(found["energies"], right, rtol=1e-6)
    # The start is all active: were nothing to happen, the comparison would say nothing.
    assert 0.02 < float(state[0].mean()) < 0.5


def test_what_the_page_cannot_relax_is_refused_in_a_sentence() -> None:
    for model in (
        teq.LoopedMLP(64, 9, 10, symmetric=False),
        teq.HopfieldMLP([64, 9, 10], feedback=0.5),
        teq.HopfieldMLP([64, 9, 10], output="free", feedback=1.0),
        teq.LoopedMLP(64, 1400, 10),
    ):
        with pytest.raises(UnsupportedModelError, match=r"^The [^.]*\.?.*: (use|train) .*\.$"):
            network_data(model)


def test_neurons_that_go_together_are_drawn_side_by_side() -> None:
    """Two groups that are active in turn: on the grid most neighbours are of one group."""
    generator = np.random.default_rng(0)
    group = np.arange(36) % 2
    states = generator.normal(size=(200, 2))[:, group] + 0.3 * generator.normal(size=(200, 36))

    def like(order: list[int]) -> float:
        grid = group[np.array(order)].reshape(6, 6)
        return float(np.mean([*(grid[1:] == grid[:-1]).flat, *(grid[:, 1:] == grid[:, :-1]).flat]))

    order = arranged(states, 6)
    assert sorted(order) == list(range(36))
    assert like(order) > 0.85 > like(list(range(36)))


def test_the_page_s_map_is_one_of_the_study_s_and_solves_what_it_is_asked() -> None:
    record = checkpoint.load(FOLDER / "maze").about["play"]
    assert record["recipe"] == json.loads(json.dumps(asdict(SETUP)))
    assert record["certificate"]["ok"]
    assert min(record["exact"]) >= 99
