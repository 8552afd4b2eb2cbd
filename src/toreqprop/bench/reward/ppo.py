"""Proximal policy optimisation with `loss.backward()`, whatever computes the policy's gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.bench.reward.collecting import Collector, Experience, advantages
from toreqprop.training import minibatches


@dataclass(frozen=True)
class Recipe:
    """How a policy is trained, the same for all networks but for ``rate``.

    ``updates`` times ``environments`` times ``length`` steps are played. Both rates fall linearly
    to zero. Rewards are multiplied with ``1 − discount``, so that values lie within ±1 where
    rewards do.
    """

    rate: float
    updates: int
    environments: int = 16
    length: int = 64
    epochs: int = 6
    batch: int = 256
    clip: float = 0.2
    discount: float = 0.99
    trace: float = 0.95
    entropy: float = 0.01
    largest_gradient: float = 0.5
    value_rate: float = 3e-3
    hidden: int = 32
    value_hidden: int = 64

    @property
    def steps(self) -> int:
        """Steps of an environment in one update."""
        return self.environments * self.length


@dataclass(frozen=True)
class Batch:
    """Observations, what was done there, how likely it was, and how much better it went."""

    observation: Tensor
    action: Tensor
    log_probability: Tensor
    advantage: Tensor
    target: Tensor

    def rows(self, chosen: Tensor) -> Batch:
        return Batch(*(part[chosen] for part in vars(self).values()))


def policy_loss(logits: Tensor, batch: Batch, clip: float, entropy: float) -> Tensor:
    """``−mean min(ρA, clip(ρ, 1 ± ε)A) − c·H`` with the ratio ρ of probabilities, now and then."""
    log_all = F.log_softmax(logits, -1)
    ratio = _ratio(log_all, batch)
    bounded = ratio.clamp(1 - clip, 1 + clip)
    gained = torch.minimum(ratio * batch.advantage, bounded * batch.advantage)
    spread = -(log_all.exp() * log_all).sum(-1)
    return -gained.mean() - entropy * spread.mean()


def beyond(logits: Tensor, batch: Batch, clip: float) -> Tensor:
    """Which samples are so far beyond the clip that `policy_loss` has no slope there, (batch,)."""
    ratio = _ratio(F.log_softmax(logits, -1), batch)
    return torch.where(batch.advantage > 0, ratio > 1 + clip, ratio < 1 - clip)


def _ratio(log_all: Tensor, batch: Batch) -> Tensor:
    now = log_all.gather(1, batch.action[:, None])[:, 0]
    return (now - batch.log_probability).exp()


@dataclass(frozen=True)
class Update:
    """Where a training is: steps played, returns of the episodes that ended, the batch learnt
    from. ``before`` says that nothing was learnt from it yet."""

    steps: int
    returns: list[float]
    batch: Batch
    before: bool


def train(
    policy: nn.Module, value: nn.Module, environment: str, scale: Tensor, recipe: Recipe, seed: int
) -> Iterator[Update]:
    """Train both; yields before and after each update."""
    draws = torch.Generator().manual_seed(seed)
    optimizers = [
        torch.optim.Adam(policy.parameters(), lr=recipe.rate),
        torch.optim.Adam(value.parameters(), lr=recipe.value_rate),
    ]
    falling = [
        torch.optim.lr_scheduler.LinearLR(each, 1.0, 0.0, recipe.updates) for each in optimizers
    ]
    collector = Collector(environment, recipe.environments, seed)
    try:
        for update in range(recipe.updates):
            played = collector.collect(acting(policy, scale, draws), recipe.length)
            batch = judged(played, value, scale, recipe)
            steps = (update + 1) * recipe.steps
            yield Update(steps, collector.returns, batch, before=True)
            for _ in range(recipe.epochs):
                for rows in minibatches(len(batch.action), recipe.batch, draws):
                    _learn(policy, value, optimizers, batch.rows(rows), recipe)
            for each in falling:
                each.step()
            yield Update(steps, collector.returns, batch, before=False)
    finally:
        collector.close()


def acting(
    policy: nn.Module, scale: Tensor, draws: torch.Generator
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Actions drawn from a policy, with their log-probabilities."""

    @torch.no_grad()
    def act(observation: Tensor) -> tuple[Tensor, Tensor]:
        log_all = F.log_softmax(policy(observation / scale), -1)
        action = torch.multinomial(log_all.exp(), 1, generator=draws)
        return action[:, 0], log_all.gather(1, action)[:, 0]

    return act


@torch.no_grad()
def judged(played: Experience, value: nn.Module, scale: Tensor, recipe: Recipe) -> Batch:
    """The real steps of a stretch with their advantages, of mean zero and deviation one."""
    scaled = played.observation / scale
    worth = value(scaled.flatten(0, 1)).reshape(scaled.shape[:2])
    reward = (1 - recipe.discount) * played.reward
    better = advantages(
        reward, worth, played.terminated, played.over, recipe.discount, recipe.trace
    )
    real = played.real
    target = (better + worth[:-1])[real]
    own = better[real]
    normalised = (own - own.mean()) / (own.std() + 1e-8)
    return Batch(
        scaled[:-1][real], played.action[real], played.log_probability[real], normalised, target
    )


def _learn(
    policy: nn.Module,
    value: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    batch: Batch,
    recipe: Recipe,
) -> None:
    losses = (
        policy_loss(policy(batch.observation), batch, recipe.clip, recipe.entropy),
        F.mse_loss(value(batch.observation)[:, 0], batch.target),
    )
    for network, optimizer, loss in zip((policy, value), optimizers, losses, strict=True):
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), recipe.largest_gradient)
        optimizer.step()
