"""The study of pulsed devices chooses without test data, and its control is one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from toreqprop.bench.hardware import pulsed, report
from toreqprop.bench.hardware.methods import Split
from toreqprop.bench.hardware.pulsed import DEVICES, PulsedRun, has_symmetric_point, trained


def rows(count: int) -> Split:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 8, generator=generator)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    return Split(x, y, x, y)


def test_settings_are_chosen_on_a_part_of_the_training_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def split(kind: str) -> object:
        return lambda task, seed: asked.append((kind, seed)) or rows(64)

    monkeypatch.setattr(pulsed, "validation_split", split("held out"))
    monkeypatch.setattr(pulsed, "final_split", split("test"))
    found = pulsed.run_pulsed(tmp_path, names=("exact", "EcRam"), seeds=2, epochs=1)
    trials = len(pulsed.RATES) * (2 + len(pulsed.TRANSFERS))
    assert asked[:trials] == [("held out", pulsed.SEARCH_SEED)] * trials
    assert set(asked[trials:]) == {("test", 0), ("test", 1)}
    by_name = {(row["device"], row["remedy"]): row for row in found["rows"]}
    assert set(by_name) == {("exact", False), ("EcRam", False), ("EcRam", True)}
    assert all(row["test"]["n"] == 2 for row in found["rows"])
    best = max(by_name["exact", False]["search"], key=lambda trial: trial["held_out"])
    assert by_name["exact", False]["rate"] == best["rate"]
    assert len(found["keys"]) == trials + 3 * 2
    assert any(line.startswith("| EcRam | ") for line in report.pulsed_lines(found))


@pytest.mark.parametrize("name", ["exact", "exact, lower layer frozen", "EcRam"])
def test_the_control_leaves_its_lower_layer(name: str) -> None:
    data = rows(64)
    untouched = trained(PulsedRun(name, 0.3, None, seed=3, epochs=0), data)
    model = trained(PulsedRun(name, 0.3, None, seed=3, epochs=1), data)
    same = [
        torch.equal(a, b) for a, b in zip(model.parameters(), untouched.parameters(), strict=True)
    ]
    below = len(list(model.layers[0].parameters()))
    assert all(same[:below]) is name.endswith("frozen")
    assert not any(same[below:])


def test_remedies_are_for_devices_with_a_symmetric_point() -> None:
    able = {name for name in DEVICES if has_symmetric_point(name)}
    assert able == {"asymmetric", "ReRamES", "ReRamSB", "EcRam", "Capacitor"}
