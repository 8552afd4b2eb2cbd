"""Devices in files: what is written is read, and what was measured is found again."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from toreqprop.energies.devices.programming import programmed
from toreqprop.errors import InvalidInputError
from toreqprop.hardware import Converter, Device, Quantised, Ternary
from toreqprop.hardware.device_files import (
    COLUMNS,
    device_from,
    device_text,
    measured_device,
    read_device,
)


@pytest.mark.parametrize(
    "device",
    [
        Device(),
        Device(weights=Quantised(4, 0.5), spread=0.3, states=Converter(6), average=32, seed=7),
        Device(weights=Ternary(), stuck=0.1, stuck_at="either", time_step=0.5),
    ],
)
def test_a_device_survives_its_file(tmp_path: Path, device: Device) -> None:
    path = tmp_path / "chip.toml"
    path.write_text(device_text(device))
    assert read_device(path) == device


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sprad = 0.3", "no 'sprad'"),
        ("spread 0.3", "name = value"),
        ("spread = 0.3\nspread = 0.4", "twice"),
        ("spread = much", "no number"),
        ("spread = -1", "spread must be"),
        ("[weights]\nbits = 4", "kind"),
        ('[weights]\nkind = "quantised"\nlevels = 4', "nothing else"),
        ("[states]\nbits = 99", "bits must be"),
        ("states = 8", "bits, limit"),
    ],
)
def test_a_file_with_a_mistake_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "chip.toml"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=words):
        read_device(path)


def _measure(device: Device, path: Path, weights: int = 400, neurons: int = 200) -> None:
    """What a tester would write down of this chip."""
    torch.manual_seed(0)
    rows: list[tuple[str, str, float, float]] = []
    levels = torch.linspace(-1, 1, 5)
    for level in levels:
        full = torch.full((weights, 1), float(level))
        found = programmed(device, 0, full, written=device.write_noise * torch.randn(weights, 1))[0]
        rows += [("weight", str(i), float(level), float(v)) for i, v in enumerate(found)]
    gain = torch.exp(device.neuron_gain * device.normal("gain", 0, (neurons,)))
    offset = device.neuron_offset * device.normal("offset", 0, (neurons,))
    for level in levels:
        for _ in range(4):
            state = torch.tanh(gain * float(level) + offset)
            read = state + device.read_noise * torch.randn(neurons)
            read = read if device.states is None else device.states(read)
            rows += [("neuron", str(i), float(level), float(v)) for i, v in enumerate(read)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def test_a_table_of_measurements_gives_the_device_back(tmp_path: Path) -> None:
    """A tenth of each figure: 400 weights and 200 neurons know their deviations to 4 and 5 %."""
    device = Device(
        spread=0.2, stuck=0.1, write_noise=0.02, neuron_gain=0.1, neuron_offset=0.2, read_noise=0.03
    )
    path = tmp_path / "measured.csv"
    _measure(device, path)
    found = measured_device(path)
    for name in ("spread", "stuck", "neuron_offset", "read_noise"):
        assert getattr(found, name) == pytest.approx(getattr(device, name), rel=0.1), name
    # Errors of slopes add to the spread of gains, and slopes take a part of the writing's errors.
    assert found.neuron_gain == pytest.approx(0.1, rel=0.2)
    assert found.write_noise == pytest.approx(0.02, rel=0.2)
    assert found.states is None


def test_a_converter_is_seen_in_the_readings(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    _measure(Device(states=Converter(5), read_noise=0.05), path)
    assert measured_device(path).states == Converter(5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "first line"),
        ("kind,unit,applied,measured\nweight,1,x,2\n", "two numbers"),
        ("kind,unit,applied,measured\nsynapse,1,1,2\n", "weight or neuron"),
        ("kind,unit,applied,measured\n", "no row"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "measured.csv"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=words):
        measured_device(path)


def test_settings_are_checked_as_in_python() -> None:
    with pytest.raises(InvalidInputError, match="average"):
        device_from({"average": 0})
