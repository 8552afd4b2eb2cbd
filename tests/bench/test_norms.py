"""The study of norms: exact at every step, kept between runs; a ball too wide is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from toreqprop.bench import norms
from toreqprop.cli.app import app
from toreqprop.energies import tight_ball
from toreqprop.errors import InvalidInputError

SETUP = norms.Setup(rates=(0.1,), optimizers=("adam",), share=0.02, widest=64)


def test_every_kind_stays_below_and_close_to_its_radius(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "norms.json"
    cells = norms.measure(SETUP, path)
    assert {c.kind for c in cells} == set(norms.PLAN)
    assert all(0.95 <= c.least <= c.worst <= 1 and c.last >= 0.95 and not c.above for c in cells)
    monkeypatch.setattr(norms, "run", lambda *_: pytest.fail("a cell was measured again"))
    assert norms.measure(SETUP, path) == cells
    assert "**all**" in norms.render_markdown(cells)


def test_the_plan_has_its_hundred_thousand_steps() -> None:
    setup = norms.Setup()
    assert sum(setup.steps(kind, width) for kind, width, _, _ in setup.cells()) >= 100_000
    assert {width for _, width, _, _ in setup.cells()} >= {32, 2048}


def test_norms_are_those_of_singular_values() -> None:
    torch.manual_seed(0)
    for kind in norms.PLAN:
        model = norms.build(SETUP, kind, min(norms.PLAN[kind]))
        for module, ball in norms.tight_weights(model):
            if module.raw.dim() == 2:
                weight = module.weight.detach()
                exact = float(torch.linalg.matrix_norm(weight.double(), 2))
                assert norms.true_norm(weight, ball) == pytest.approx(exact, rel=1e-9)
                assert float(torch.linalg.matrix_norm(module.raw.detach(), 2)) > ball.radius


def test_norms_of_large_weights_are_proven_from_above(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    for kind in (norms.LOOPED, norms.ONE_WAY, norms.CONV):
        model = norms.build(SETUP, kind, min(norms.PLAN[kind]))
        for module, ball in norms.tight_weights(model):
            exact = norms.true_norm(module.weight, ball)
            monkeypatch.setattr(norms, "LARGE", 1)
            bound = norms.true_norm(module.weight, ball)
            monkeypatch.undo()
            assert exact < bound < exact * 1.003


def test_a_ball_without_its_margin_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tight_ball, "MARGIN", 0.98)
    options = ["--kind", "looped", "--widest", "32", "--share", "0.002"]
    found = CliRunner().invoke(app, ["norms", *options, "--output", str(tmp_path / "norms.json")])
    assert found.exit_code == 1
    assert "| 64 | 0 |" in found.stdout  # all eight steps of eight trainings


@pytest.mark.parametrize("content", ["", "{", '{"setup": {}, "cells": [{}]}'])
def test_a_damaged_file_is_refused_in_a_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "norms.json"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match="remove it"):
        norms.measure(SETUP, path)
    path.unlink()
    one = norms.Setup(("looped",), (0.1,), ("adam",), share=0.001, widest=32)
    norms.measure(one, path)
    with pytest.raises(InvalidInputError, match="another setup"):
        norms.measure(norms.Setup(("looped",), (0.1,), ("adam",), share=0.002, widest=32), path)
