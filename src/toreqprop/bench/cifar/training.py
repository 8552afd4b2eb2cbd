"""One training: flipped images, a rate that rises and falls, a state kept after every epoch."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.atomic import write_atomically
from toreqprop.bench.cifar.recipe import Recipe, parted
from toreqprop.tasks.cifar10 import DEVIATIONS, MEANS, Images
from toreqprop.training import RelaxationMonitor

EVALUATED = 500
"""Images at once where nothing is trained."""


@dataclass
class Progress:
    """What has been measured so far: by epoch, and what probes found by the epoch before them."""

    epochs: list[dict[str, Any]] = field(default_factory=list)
    probes: dict[str, Any] = field(default_factory=dict)
    cpu_seconds: float = 0.0


Probe = Callable[[nn.Module], Any]


def train(
    model: nn.Module,
    images: Images,
    recipe: Recipe,
    seed: int,
    *,
    report: Callable[[str], None] = lambda news: None,
    kept: Path | None = None,
    probe: Probe | None = None,
    probed: tuple[int, ...] = (),
) -> Progress:
    """Train in place; ``probe`` measures the model after each of the epochs ``probed``.

    The state after every epoch is in the file ``kept``, from which the next call goes on as if
    nothing had happened.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    order, done = torch.Generator().manual_seed(seed), Progress()
    if kept is not None and kept.exists():
        done = _restore(kept, model, optimizer, order)
        report(f"epoch {len(done.epochs)} of {recipe.epochs} was done before")
    x, y = torch.from_numpy(images.x), torch.from_numpy(images.y)
    if probe is not None and 0 in probed and not done.epochs:
        done.probes["0"] = probe(model)
    while len(done.epochs) < recipe.epochs:
        started = time.process_time()
        done.epochs.append(_epoch(model, x, y, recipe, optimizer, order, len(done.epochs)))
        done.cpu_seconds += time.process_time() - started
        number, last = len(done.epochs), done.epochs[-1]
        if probe is not None and number in probed:
            done.probes[str(number)] = probe(model)
        if kept is not None:
            _keep(kept, model, optimizer, order, done)
        report(f"epoch {number} of {recipe.epochs}: loss {last['loss']:.3f}, "
               f"{100 * last['accuracy']:.1f} % of the training images")  # fmt: skip
    return done


def _epoch(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    recipe: Recipe,
    optimizer: torch.optim.Optimizer,
    order: torch.Generator,
    number: int,
) -> dict[str, Any]:
    """All images once; loss and accuracy are those met on the way."""
    model.train()
    monitor = RelaxationMonitor()
    settling = parted(model)
    key = settling[1].register_relaxation_hook(monitor) if settling else None
    batches = torch.randperm(len(x), generator=order).split(recipe.batch)
    losses, right = 0.0, 0
    for step, rows in enumerate(batches):
        share = (number + step / len(batches)) / recipe.epochs
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate_at(share)
        optimizer.zero_grad()
        output = model(flipped(pixels(x[rows]), order))
        value = F.cross_entropy(output, y[rows])
        value.backward()
        optimizer.step()
        losses += float(value.detach()) * len(rows)
        right += int((output.argmax(1) == y[rows]).sum())
    found: dict[str, Any] = {"loss": losses / len(x), "accuracy": right / len(x)}
    if settling and key is not None:
        settling[1].remove_relaxation_hook(key)
        found |= {
            "free_steps": monitor.mean_steps("free"),
            "nudged_steps": monitor.mean_steps("nudged"),
            "worst_residual": monitor.worst_residual,
            "relaxations": sum(map(len, monitor.steps.values())),
            "failures": dict(monitor.failures),
        }
    return found


def pixels(x: Tensor) -> Tensor:
    """Bytes (batch, 3, 32, 32) as numbers, standardised by the published means and deviations."""
    mean = torch.tensor(MEANS).reshape(3, 1, 1)
    deviation = torch.tensor(DEVIATIONS).reshape(3, 1, 1)
    found = (x.float() / 255 - mean) / deviation
    return found.contiguous(memory_format=torch.channels_last)


def flipped(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each image as it is or mirrored, with equal chances."""
    mirrored = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(mirrored[:, None, None, None], x.flip(3), x)


@torch.no_grad()
def correct(model: nn.Module, images: Images) -> np.ndarray:
    """Whether each image is named rightly, (count,) of bool."""
    model.eval()
    x = torch.from_numpy(images.x)
    named = [model(pixels(part)).argmax(1) for part in x.split(EVALUATED)]
    return torch.cat(named).numpy() == images.y


def _keep(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    order: torch.Generator,
    done: Progress,
) -> None:
    content = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "order": order.get_state(),
        "progress": asdict(done),
    }
    stream = io.BytesIO()
    torch.save(content, stream)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, stream.getvalue())


def _restore(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, order: torch.Generator
) -> Progress:
    content = torch.load(path, weights_only=True)
    model.load_state_dict(content["model"])
    optimizer.load_state_dict(content["optimizer"])
    order.set_state(content["order"])
    return Progress(**content["progress"])
