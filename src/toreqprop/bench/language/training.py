"""Training on windows of text, and bits per character of text that is held out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Recipe:
    """A training: ``updates`` of ``batch`` windows, Adam with a rate that rises to ``rate`` over
    the first ``warm`` of them and falls to zero on a cosine, gradients limited to a norm of
    ``clip``; the same for every network but for the rate."""

    rate: float
    updates: int
    batch: int = 32
    warm: float = 0.05
    clip: float = 1.0

    def tokens(self, context: int) -> int:
        """Characters trained on."""
        return self.updates * self.batch * context


@dataclass(frozen=True)
class Windows:
    """Where held-out text is looked at: windows of one context, evenly spread, of which the second
    half is scored, so that each scored character has half a context before it at the least."""

    text: np.ndarray
    starts: np.ndarray
    context: int

    @staticmethod
    def spread(text: np.ndarray, context: int, characters: int) -> Windows:
        """As many windows as score ``characters``, or all of the text where it has fewer."""
        half = context // 2
        most = (len(text) - context - 1) // half + 1
        count = min(-(-characters // half), most)
        starts = np.linspace(0, most - 1, count).astype(np.int64) * half
        return Windows(text, starts, context)

    @property
    def scored(self) -> np.ndarray:
        """Indices of the scored characters in the text."""
        half = self.context // 2
        return (self.starts[:, None] + 1 + np.arange(half, self.context)).ravel()

    def batches(self, size: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
        """Characters and those that follow, (windows, context)."""
        for first in range(0, len(self.starts), size):
            yield rows(self.text, self.starts[first : first + size], self.context)


def rows(text: np.ndarray, starts: np.ndarray, context: int) -> tuple[Tensor, Tensor]:
    """The windows that begin there, and the same one character later, int64 (windows, context)."""
    found = torch.from_numpy(text[starts[:, None] + np.arange(context + 1)].astype(np.int64))
    return found[:, :-1].contiguous(), found[:, 1:].contiguous()


def bits(model: nn.Module, windows: Windows) -> float:
    """Mean bits per scored character."""
    total, count, half = 0.0, 0, windows.context // 2
    with torch.no_grad():
        for x, y in windows.batches():
            logits, target = model(x)[:, half:], y[:, half:]
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum")
            total, count = total + float(loss), count + target.numel()
    return total / count / math.log(2)


def token_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy over windows and positions, in nats."""
    return F.cross_entropy(logits.flatten(0, -2), target.flatten())


def train(
    model: nn.Module, text: np.ndarray, context: int, recipe: Recipe, seed: int
) -> Iterator[tuple[int, float, Tensor, Tensor]]:
    """Update by update: how many were done, the loss before the last, and its batch.

    The windows depend on the seed alone, so that every network sees the same ones.
    """
    draws = np.random.default_rng(np.random.SeedSequence((seed, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate, betas=(0.9, 0.99))
    for update in range(recipe.updates):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * _share(update, recipe)
        x, y = rows(text, draws.integers(0, len(text) - context, recipe.batch), context)
        optimizer.zero_grad()
        loss = token_loss(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        yield update + 1, float(loss.detach()), x, y


def _share(update: int, recipe: Recipe) -> float:
    """Of the largest rate, at one update."""
    warm = max(1, round(recipe.warm * recipe.updates))
    if update < warm:
        return (update + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (update - warm) / max(1, recipe.updates - warm)))


def sample(
    model: nn.Module, prompt: np.ndarray, length: int, context: int, temperature: float, seed: int
) -> list[int]:
    """``length`` characters after a prompt, each drawn from ``softmax(logits/temperature)``; at
    most one context of what was written is looked at."""
    written = [int(symbol) for symbol in prompt]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _ in range(length):
            x = torch.tensor([written[-context:]])
            shares = torch.softmax(model(x)[0, -1] / temperature, 0)
            written.append(int(torch.multinomial(shares, 1, generator=generator)))
    return written[len(prompt) :]
