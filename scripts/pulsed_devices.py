"""Train digits on every pulsed device, with and without a remedy, and draw what pulses do.

Learning rates are chosen on a part of the training data; every run of the search is kept. Run it
from the top of the repository; it takes some minutes:

    python scripts/pulsed_devices.py

It writes results/pulsed/digits.json, of which `scripts/update_docs.py` makes the tables of
docs/how-to/pulsed.md, and docs/figures/pulses.svg.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import toreqprop as teq
from toreqprop import tasks
from toreqprop.evidence import environment
from toreqprop.hardware import PRESETS, PulsedDevice, PulsedUpdates, SoftBounds, TikiTaka
from toreqprop.plots import plain_style, save
from toreqprop.plots.style import BLUE, VERMILION, finish, new_figure
from toreqprop.training import minibatches

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "pulsed" / "digits.json"
FIGURE = ROOT / "docs" / "figures" / "pulses.svg"

HIDDEN, BATCH = 32, 32
SHARPNESS = 4.0
"""Outputs are states between −1 and 1; so many times them are the logits."""
RATES = (0.1, 0.3, 1.0)
TRANSFERS = (0.005, 0.05)
HELD_OUT = 0.2


def asymmetric(seed: int = 0) -> PulsedDevice:
    """No published device: asymmetry alone."""
    return PulsedDevice(SoftBounds(), dw_min=0.005, up_down=0.3, up_down_dtod=0.1, seed=seed)


DEVICES: dict[str, Callable[..., PulsedDevice] | None] = {
    "exact": None,
    "exact, lower layer frozen": None,
    "asymmetric": asymmetric,
    **PRESETS,
}


def optimizer(
    name: str, remedy: bool, options: dict[str, float], model: teq.HopfieldMLP, seed: int
) -> torch.optim.Optimizer:
    """Plain gradient descent, or pulses to the seed's own sample of the device."""
    build, lr = DEVICES[name], options["lr"]
    params = list(model.parameters())
    if build is None:
        frozen = model.layers[0].parameters() if name.endswith("frozen") else ()
        left = {id(p) for p in frozen}
        return torch.optim.SGD([p for p in params if id(p) not in left], lr)
    transfer = TikiTaka(rate=options["rate"]) if remedy else None
    return PulsedUpdates(params, build(seed), lr, remedy=transfer, seed=seed)


def trained(
    name: str, remedy: bool, options: dict[str, float], x: Tensor, y: Tensor, seed: int, epochs: int
) -> teq.HopfieldMLP:
    generator = torch.Generator().manual_seed(seed)
    sizes = [x.shape[1], HIDDEN, int(y.max()) + 1]
    model = teq.HopfieldMLP(sizes, output="free", on_failure="ignore", generator=generator)
    descent = optimizer(name, remedy, options, model, seed)
    for _ in range(epochs):
        for batch in minibatches(len(x), BATCH, generator):
            descent.zero_grad()
            F.cross_entropy(SHARPNESS * model(x[batch]), y[batch]).backward()
            descent.step()
    return model


@torch.no_grad()
def accuracy(model: teq.HopfieldMLP, x: Tensor, y: Tensor) -> float:
    return float((model(x).argmax(1) == y).float().mean())


def search(name: str, remedy: bool, x: Tensor, y: Tensor, epochs: int) -> list[dict[str, float]]:
    """Every setting, trained on most of the training data and measured on the rest of it."""
    rows = []
    kept = int((1 - HELD_OUT) * len(x))
    for lr, rate in itertools.product(RATES, TRANSFERS if remedy else (0.0,)):
        options = {"lr": lr, "rate": rate}
        model = trained(name, remedy, options, x[:kept], y[:kept], 0, epochs)
        rows.append({**options, "validation": accuracy(model, x[kept:], y[kept:])})
    return rows


def measure(name: str, remedy: bool, seeds: int, epochs: int) -> dict[str, Any]:
    """The best setting of the search, with so many seeds, devices and splits, on test data."""
    found = tasks.get("digits").load(0, False)
    tried = search(name, remedy, *_tensors(found.train_x, found.train_y), epochs)
    best = max(tried, key=lambda row: row["validation"])
    runs = []
    for seed in range(1, seeds + 1):
        data = tasks.get("digits").load(seed, False)
        model = trained(name, remedy, best, *_tensors(data.train_x, data.train_y), seed, epochs)
        runs.append(accuracy(model, *_tensors(data.test_x, data.test_y)))
    row = {
        "device": name, "remedy": remedy, "lr": best["lr"], "rate": best["rate"], "test": runs,
        "mean": statistics.mean(runs), "std": statistics.stdev(runs) if seeds > 1 else 0.0,
        "search": tried,
    }  # fmt: skip
    print(f"{name}{', Tiki-Taka' if remedy else ''}: {100 * row['mean']:.1f} ± "
          f"{100 * row['std']:.1f} % with lr {best['lr']:g}", flush=True)  # fmt: skip
    return row


def _tensors(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    return torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y, dtype=torch.int64)


def has_symmetric_point(name: str) -> bool:
    build = DEVICES[name]
    if build is None:
        return False
    try:
        build().draw((1,)).symmetric_point()
    except teq.InvalidInputError:
        return False
    return True


def draw(path: Path, pulses: int = 600) -> Path:
    """Weights under so many pulses up, then as many down: devices of one chip."""
    with plain_style():
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
    return save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--figure", action="store_true", help="draw the figure alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(draw(FIGURE))
    if options.figure:
        return
    rows = []
    for name in DEVICES:
        rows += [
            measure(name, remedy, options.seeds, options.epochs)
            for remedy in ((False, True) if has_symmetric_point(name) else (False,))
        ]
    about = {
        "command": "python scripts/pulsed_devices.py",
        "network": f"HopfieldMLP([64, {HIDDEN}, 10], output='free')",
        "epochs": options.epochs, "seeds": options.seeds, "environment": environment(),
    }  # fmt: skip
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({**about, "rows": rows}, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
