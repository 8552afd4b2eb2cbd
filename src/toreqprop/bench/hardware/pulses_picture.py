"""What pulses do to weights, drawn: five devices of each preset."""

from __future__ import annotations

from typing import Any

import torch

from toreqprop.hardware.presets import PRESETS
from toreqprop.plots.style import BLUE, VERMILION, finish, new_figure, plain_style


@plain_style()
def pulses_figure(pulses: int = 600) -> Any:
    """Weights under so many pulses up, then as many down: devices of one chip."""
    figure, axes = new_figure(len(PRESETS), width=11.0, height=2.6)
    for ax, (name, build) in zip(axes, PRESETS.items(), strict=True):
        device = build()
        devices, others = device.draw((5,)), device.draw((5,), 1)
        noise = torch.Generator().manual_seed(0)
        count = min(pulses, round(2.5 * (device.w_max - device.w_min) / device.step))
        weight, other = torch.zeros(5), torch.zeros(5)
        seen = [weight]
        for pulse in range(2 * count):
            once = torch.ones(5)
            if pulse < count:
                weight = devices.pulsed(weight, once, noise)
            elif device.pair:
                other = others.pulsed(other, once, noise)
            else:
                weight = devices.pulsed(weight, -once, noise)
            seen.append(weight - other)
        lines, at = torch.stack(seen), torch.arange(2 * count + 1)
        thin = max(1, count // 60)
        for part, colour in ((slice(0, count + 1), BLUE), (slice(count, None), VERMILION)):
            ax.plot(at[part][::thin], lines[part][::thin], color=colour, lw=0.8)
        ax.set_title(name)
        finish(ax, "pulses", "weight" if name == next(iter(PRESETS)) else "")
    return figure
