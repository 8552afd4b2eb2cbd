"""The study of mazes: runs are kept, controls are what they say, validation is not the test."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from toreqprop.bench import maze_study
from toreqprop.bench.mazes import METHODS, SETUPS, Setup, build, split
from toreqprop.cli import mazes as command
from toreqprop.errors import InvalidInputError
from toreqprop.evidence.study import stale
from toreqprop.models import EquilibriumMap
from toreqprop.tasks.mazes import mazes

SMALL = Setup(
    "maze-reach", updates=3, rate=0.02, bias=-0.3, mazes=32, batch=8, max_steps=20,
    sides=(9, 11), counts=(4, 3), others=(("plain-3", 2, 0.01),),
)  # fmt: skip
KEYS = [("maze-reach", method, 42) for method in METHODS]


def test_every_method_runs_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mazes.json"
    found = maze_study.measure({"maze-reach": SMALL}, KEYS, path)
    runs = found.runs
    assert [r.method for r in runs] == list(METHODS)
    assert all(len(r.exact) == len(r.cells) == len(r.steps) == 2 for r in runs)
    by_method = {r.method: r for r in runs}
    assert by_method["ep"].parameters == 230
    assert by_method["uncoupled"].parameters == 230 - 144
    assert by_method["uncoupled"].steps == (2, 2)  # nothing spreads
    assert by_method["ep"].certified is not None
    assert by_method["unrolled"].certified is None
    assert by_method["plain-12"].unsettled is None
    assert (by_method["plain-3"].updates, by_method["plain-3"].rate) == (2, 0.01)
    table = maze_study.render_markdown(found)
    assert "worst of 1 seeds" in maze_study.sentences(found)[0]
    assert table.count("\n") == 1 + len(METHODS)
    assert not stale(json.loads(path.read_text()))
    monkeypatch.setattr(maze_study, "run", lambda *_: pytest.fail("a run was repeated"))
    assert maze_study.measure({"maze-reach": SMALL}, KEYS, path).runs == runs


def test_a_run_is_another_where_its_own_training_is() -> None:
    own = maze_study.measurement(SMALL, "ep", 1)
    faster = replace(SMALL, others=(("plain-3", 3, 0.01),))
    assert maze_study.measurement(faster, "ep", 1).key == own.key
    assert maze_study.measurement(replace(SMALL, updates=4), "ep", 1).key != own.key
    plain = maze_study.measurement(SMALL, "plain-3", 1)
    assert maze_study.measurement(faster, "plain-3", 1).key != plain.key


@pytest.mark.parametrize("content", ["", "[]", '{"setups": {}, "runs": [{}]}'])
def test_a_damaged_file_is_refused_in_a_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mazes.json"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match="remove it"):
        maze_study.load(path)


def test_no_maze_is_in_two_parts() -> None:
    test, held = (split(SMALL, 0, validation=v) for v in (False, True))
    assert torch.equal(torch.from_numpy(test.train.x), torch.from_numpy(held.train.x))
    parts = [test.train, test.scored[0], held.scored[0]]
    walls = [{image[0].tobytes() for image in part.x} for part in parts]
    assert not walls[0] & (walls[1] | walls[2])
    assert walls[1] != walls[2]


def test_the_methods_begin_alike() -> None:
    weights = []
    for method in ("ep", "implicit", "unrolled"):
        model = build(SMALL, method, 0)
        assert isinstance(model, EquilibriumMap)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("task", SETUPS)
def test_lit_cells_do_not_light_walls(task: str) -> None:
    """With every open cell lit, walls stay out; with the drive of earlier trials they did not."""
    found = mazes(task, 9, 20, seed=0)
    x, lit = torch.from_numpy(found.x), torch.from_numpy(found.open).float()
    brightest = []
    for setup in (SETUPS[task], replace(SETUPS[task], wall=-1.5)):
        model = build(setup, "ep", 0)
        assert isinstance(model, EquilibriumMap)
        with torch.no_grad():
            drive, bias, kernel = model.system_parameters()
            fed = F.conv2d(x, drive, bias, padding=1)
            state = lit[:, None].expand(-1, setup.channels, -1, -1)
            image = model.activation(fed + F.conv2d(state, kernel, padding=1))
        brightest.append(float(image.movedim(1, -1)[lit == 0].max()))
    assert brightest[0] < 1e-3
    assert brightest[1] > 0.1


def test_a_search_adds_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETUPS, "maze-reach", SMALL)
    for _ in range(2):
        command.mazes(
            ["maze-reach"], ["uncoupled"], seeds=1, search=tmp_path / "search.jsonl", as_json=True
        )
    lines = (tmp_path / "search.jsonl").read_text().splitlines()
    rates = [json.loads(line)["rate"] for line in lines]
    assert len(maze_study.render_trials([json.loads(line) for line in lines])) == 2 + 6
    assert len(lines) == 6
    assert rates[:3] == rates[3:] == sorted(set(rates))
