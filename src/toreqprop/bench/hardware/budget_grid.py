"""The budget's predictions against measured gradient errors, over a grid of devices."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from toreqprop.bench.hardware.methods import BUDGET_SAMPLES, RECIPES, final_split
from toreqprop.energies.devices import Converter, Device
from toreqprop.gradients import CenteredEP
from toreqprop.hardware.budget import budget
from toreqprop.hardware.limits import exact_gradient, flat, gradient
from toreqprop.models import on
from toreqprop.private_generator import noise_from

DRAWS = 20
"""Gradients at each β."""

FACTORS = (1 / 3, 1.0, 3.0)
"""Nudges, in units of the best."""


def _devices() -> dict[str, Device]:
    found = {}
    for rms, bits, average in itertools.product((0.0, 0.01, 0.1), (None, 8, 5), (1, 16)):
        if rms == 0 and (bits is None or average > 1):
            continue
        states = None if bits is None else Converter(bits)
        resolution = "analog" if bits is None else f"{bits} bit"
        name = f"noise {rms:g}, {resolution}, {average} reading(s)"
        found[name] = Device(read_noise=rms, states=states, average=average, settle=15)
    for offset in (0.01, 0.05):
        found[f"phase offset {offset:g}"] = Device(phase_offset=offset, settle=15)
    found["thermal noise 0.1, 16 readings"] = Device(
        thermal_noise=0.1, time_step=0.7, average=16, settle=20
    )
    found["up/down 30 %, noise 0.01"] = Device(up_down=0.3, read_noise=0.01, settle=15)
    found["drift 0.02"] = Device(drift=0.02, settle=15)
    return found


DEVICES = _devices()


def measure(name: str, seed: int = 0) -> dict[str, Any]:
    """Predicted and measured error of an untrained digits network at three nudges."""
    recipe, data = RECIPES["digits"], final_split("digits", seed)
    x, y = data.x[:BUDGET_SAMPLES], data.y[:BUDGET_SAMPLES]
    chip = on(DEVICES[name], recipe.network(seed))
    expected = budget(chip, x, y, loss=recipe.loss)
    exact = flat(exact_gradient(chip, x, y, recipe.loss))
    points = []
    for factor in FACTORS:
        beta = factor * expected.beta
        chip.gradient = CenteredEP(beta)
        with noise_from(torch.Generator().manual_seed(seed)):
            drawn = torch.stack([flat(gradient(chip, x, y, recipe.loss)) for _ in range(DRAWS)])
        error = float((drawn - exact).square().sum(1).mean().sqrt() / exact.norm())
        points.append({"beta": beta, "predicted": expected.at(beta).error, "measured": error})
    return {"device": name, "limit": expected.limit.name, "points": points}
