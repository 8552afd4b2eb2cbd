"""What the tracks of chips measure with: witnesses that see, and cheats that are seen."""

from __future__ import annotations

import torch

from toreqprop.energies.devices import Converter, Device, Ternary
from toreqprop.hardware import on
from toreqprop.models import HopfieldMLP
from toreqprop.verify.devices import Around, Levels, other_device, other_weights
from toreqprop.verify.tracks.track_16_int8 import Grid


def network() -> tuple[HopfieldMLP, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return HopfieldMLP([6, 8, 4], output="free"), torch.randn(5, 6), torch.randint(0, 4, (5,))


def step(chip: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    torch.nn.functional.cross_entropy(chip(x), y).backward()


def test_weights_that_are_not_ternary_are_seen_in_their_phase() -> None:
    model, x, y = network()
    for cheating in (False, True):
        chip, levels = on(Device(weights=Ternary()), model), Levels()
        chip.solver = Around(inner=chip.solver, seen=levels)
        if cheating:
            chip.solver = Around(inner=chip.solver, change=other_weights(model.system_parameters))
            chip.on_failure = "ignore"  # the two phases are no mirror images about the free one
        step(chip, x, y)
        assert levels.most["free"] == 3
        assert (levels.most["nudged"] == 3) != cheating


def test_readings_off_the_grid_are_seen_in_their_phase() -> None:
    model, x, y = network()
    for cheating in (False, True):
        chip, grid = on(Device(states=Converter(8), settle=5), model), Grid()
        chip.register_relaxation_hook(grid)
        if cheating:
            chip.solver = Around(inner=chip.solver, change=other_device(states=None))
        step(chip, x, y)
        assert grid.free < 1e-3
        assert (grid.nudged < 1e-3) != cheating


def test_a_chip_without_noise_in_the_nudged_phases_repeats_its_gradient() -> None:
    model, x, _ = network()
    found = []
    for change in (None, other_device(read_noise=0.0)):
        chip = on(Device(read_noise=0.1, settle=20), model)
        if change is not None:
            chip.solver = Around(inner=chip.solver, change=change)
        solutions = []
        chip.register_relaxation_hook(
            lambda phase, s, kept=solutions: kept.append(s.shift) if phase == "nudged" else None
        )
        torch.manual_seed(1)
        free = chip.equilibrium(x).state
        cotangent = tuple(torch.ones_like(s) for s in free)
        for _ in range(2):
            torch.autograd.grad(free, list(chip.parameters()), cotangent, retain_graph=True)
        found.append(float((solutions[0][0] - solutions[1][0]).abs().max()))
    assert found[0] > 0.01
    assert found[1] < 1e-5
