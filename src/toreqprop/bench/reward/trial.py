"""One training from reward as a job: learning curve, evaluation, norm, steps and certificates."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toreqprop.bench.reward.policies import build, greedy, recurrent_norm, value_network
from toreqprop.bench.reward.ppo import Batch, Recipe, Update, beyond, policy_loss, train
from toreqprop.certificate import certify
from toreqprop.errors import InvalidInputError
from toreqprop.models import EquilibriumModel
from toreqprop.tasks.control import rollout
from toreqprop.training import RelaxationMonitor

EPISODES = 100
"""Of an evaluation."""

CERTIFIED = 256
"""Visited states whose gradient is certified."""


@dataclass(frozen=True)
class Environment:
    """A gymnasium environment: roughly how large its observations are, by which they are divided,
    its actions, the return that counts as solved, and the updates of a training."""

    gymnasium_id: str
    scale: tuple[float, ...]
    actions: int
    goal: float
    updates: int


ENVIRONMENTS = {
    "cartpole": Environment("CartPole-v1", (2.4, 2.0, 0.21, 2.0), 2, 475.0, 60),
    "acrobot": Environment("Acrobot-v1", (1.0, 1.0, 1.0, 1.0, 4.0, 9.0), 3, -85.0, 60),
}


def environment(task: str) -> Environment:
    """The environment of that name."""
    if task not in ENVIRONMENTS:
        raise InvalidInputError(f"{task!r} is no task: use one of {', '.join(ENVIRONMENTS)}.")
    return ENVIRONMENTS[task]


def trained(
    task: str,
    method: str,
    seed: int,
    recipe: Iterable[tuple[str, Any]],
    relaxing: Iterable[tuple[str, float]] = (),
) -> dict[str, Any]:
    """Train one policy, then play greedily where training never was; plain data, times apart.

    ``relaxing`` has β and tolerance of a network that settles.
    """
    played, settings = environment(task), Recipe(**dict(recipe))
    scale, inputs = torch.tensor(played.scale), len(played.scale)
    policy = build(method, inputs, settings.hidden, played.actions, seed, **dict(relaxing))
    value = value_network(inputs, settings.value_hidden, seed)
    watched = _Watched(policy, settings)
    norm = recurrent_norm(policy)
    curve: dict[str, list[Any]] = {"steps": [], "episodes": [], "mean_return": []}
    started = time.process_time()
    spent = 0.0
    for update in train(policy, value, played.gymnasium_id, scale, settings, seed):
        spent += time.process_time() - started
        if update.before:
            ended = update.returns
            curve["steps"].append(update.steps)
            curve["episodes"].append(len(ended))
            curve["mean_return"].append(float(np.mean(ended)) if ended else None)
        watched.see(update)
        started = time.process_time()
    returns = played_greedily(policy, played, seed)
    return {
        "task": task,
        "method": method,
        "seed": seed,
        "parameters": sum(p.numel() for p in policy.parameters()),
        "curve": curve,
        "returns": returns,
        "mean_return": float(np.mean(returns)),
        "norm": None if norm is None else [norm, recurrent_norm(policy)],
        **watched.found(),
        "timing": {"cpu_seconds": spent},
    }


def at_random(task: str, seed: int) -> dict[str, Any]:
    """Returns of uniform actions, in the episodes that policies of this seed are evaluated in."""
    played, draws = environment(task), np.random.default_rng(seed)
    returns = rollout(
        lambda seen: draws.integers(0, played.actions, len(seen)),
        played.gymnasium_id, EPISODES, seed,
    )  # fmt: skip
    return {"task": task, "method": "random", "seed": seed, "mean_return": float(returns.mean())}


def played_greedily(policy: nn.Module, where: Environment, seed: int) -> list[float]:
    """Returns of the likeliest actions in a hundred episodes."""
    scale = torch.tensor(where.scale)
    found = rollout(
        lambda seen: greedy(policy, torch.from_numpy(seen) / scale).numpy(),
        where.gymnasium_id, EPISODES, seed,
    )  # fmt: skip
    return [float(each) for each in found]


class _Watched:
    """The relaxations of a policy, and certificates of its gradient: at first, amid, at the end."""

    def __init__(self, policy: nn.Module, recipe: Recipe) -> None:
        self._policy = policy if isinstance(policy, EquilibriumModel) else None
        self._recipe = recipe
        self._last = RelaxationMonitor()
        self._certificates: list[dict[str, Any]] = []
        self._unsettled = self._relaxations = 0
        self._key = 0
        first, half = recipe.steps, max(1, recipe.updates // 2) * recipe.steps
        self._end = recipe.updates * recipe.steps
        self._moments = {(first, True), (half, False), (self._end, False)}

    def see(self, update: Update) -> None:
        model = self._policy
        if model is None:
            return
        last = update.steps == self._end
        if update.before and last:
            self._key = model.register_relaxation_hook(self._last)
        if last and not update.before:
            model.remove_relaxation_hook(self._key)
            self._unsettled = sum(model.failures.values())
            self._relaxations = model.relaxations
        if (update.steps, update.before) in self._moments:
            self._certificates.append(certified(model, update.batch, self._recipe))

    def found(self) -> dict[str, Any]:
        """Steps of the last update's phases, what did not settle in all, certificates."""
        if self._policy is None:
            return {}
        return {
            "steps": {phase: self._last.mean_steps(phase) for phase in self._last.steps},
            "relaxations": self._relaxations,
            "unsettled": self._unsettled,
            "certificates": self._certificates,
        }


def certified(model: EquilibriumModel, batch: Batch, recipe: Recipe) -> dict[str, Any]:
    """The certificate of the policy's own gradient, at its own β, on states it visited: of the loss
    that is learnt from.

    Which samples are beyond the clip is decided once, by the policy as it acts: where a ratio is at
    the clip to the tolerance, the loss has a kink, and the exact gradient would be of its other
    side.
    """
    batch = batch.rows(torch.arange(min(CERTIFIED, len(batch.action))))
    with torch.no_grad():
        within = ~beyond(model(batch.observation), batch, recipe.clip)

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        at = Batch(batch.observation, y[:, 0].long(), y[:, 1], y[:, 2], y[:, 2])
        return policy_loss(logits, at, float("inf"), recipe.entropy)

    counted = within * batch.advantage
    y = torch.stack([batch.action.float(), batch.log_probability, counted], 1)
    found = certify(model, batch.observation, y, loss=loss)
    ratios = [tensor.norm_ratio for tensor in found.tensors]
    return {
        "ok": found.ok,
        "cosine": found.min_cosine,
        "least_ratio": min(ratios),
        "largest_ratio": max(ratios),
        "contraction": found.contraction,
        "reasons": [reason.name for reason in found.reasons],
    }
