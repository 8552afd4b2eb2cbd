"""The script that measures pulsed devices chooses without test data, and its control is one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("pulsed_devices")


def rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 8, generator=generator)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def test_settings_are_chosen_on_a_part_of_the_training_data(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = rows(50)
    used: list[tuple[torch.Tensor, torch.Tensor]] = []
    monkeypatch.setattr(script, "trained", lambda name, remedy, options, x, y, *_: x)
    monkeypatch.setattr(script, "accuracy", lambda model, x, y: used.append((model, x)) or 0.5)
    found = script.search("EcRam", True, x, y, 1)
    assert len(found) == len(script.RATES) * len(script.TRANSFERS)
    for learned, held_out in used:
        assert torch.equal(torch.cat([learned, held_out]), x)
        assert len(held_out) == 10


@pytest.mark.parametrize("name", ["exact", "exact, lower layer frozen", "EcRam"])
def test_the_control_leaves_its_lower_layer(script: Any, name: str) -> None:
    x, y = rows(64)
    untouched = script.trained(name, False, {"lr": 0.3}, x, y, 3, 0)
    model = script.trained(name, False, {"lr": 0.3}, x, y, 3, 1)
    same = [
        torch.equal(a, b) for a, b in zip(model.parameters(), untouched.parameters(), strict=True)
    ]
    below = len(list(model.layers[0].parameters()))
    assert all(same[:below]) is name.endswith("frozen")
    assert not any(same[below:])


def test_remedies_are_for_devices_with_a_symmetric_point(script: Any) -> None:
    able = {name for name in script.DEVICES if script.has_symmetric_point(name)}
    assert able == {"asymmetric", "ReRamES", "ReRamSB", "EcRam", "Capacitor"}
