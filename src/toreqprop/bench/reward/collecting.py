"""Environments played side by side: what a policy saw, did and got, and what it was worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toreqprop.errors import DataUnavailableError

TRAINING_STREAM = 4
"""Of the seeds of training's environments: `tasks.control` draws from streams below, those of
evaluations among them, so that no evaluation starts where training did."""


@dataclass(frozen=True)
class Experience:
    """A stretch of every environment, shapes (time, environments).

    ``over`` marks the last step of an episode, ``terminated`` those that ended of their own accord
    and not by the clock. The step after one only resets its environment: ``real`` leaves it out.
    ``observation`` has one time more, the observations after the last step.
    """

    observation: Tensor
    action: Tensor
    log_probability: Tensor
    reward: Tensor
    terminated: Tensor
    over: Tensor
    real: Tensor


def advantages(
    reward: Tensor, value: Tensor, terminated: Tensor, over: Tensor, discount: float, trace: float
) -> Tensor:
    """Generalised advantages ``A_t = δ_t + γλ·A_{t+1}`` within an episode, with
    ``δ_t = r_t + γ·V_{t+1} − V_t``; ``V`` is zero after an episode that ended of its own accord.

    Shapes: ``value`` (time + 1, environments), all others (time, environments).
    """
    surprise = reward + discount * value[1:] * ~terminated - value[:-1]
    kept = discount * trace * ~over
    found = torch.empty_like(reward)
    later = torch.zeros_like(reward[0])
    for time in reversed(range(len(reward))):
        later = surprise[time] + kept[time] * later
        found[time] = later
    return found


def training_seeds(seed: int, count: int) -> list[int]:
    """The seed of every environment of a training."""
    drawn = np.random.SeedSequence((seed, TRAINING_STREAM)).generate_state(count)
    return [int(each) for each in drawn]


@dataclass
class Collector:
    """Plays ``count`` environments side by side, on and on; ``returns`` are those of the episodes
    that ended in the last stretch."""

    environment: str
    count: int
    seed: int
    returns: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._environments = _vectorised(self.environment, self.count)
        observation, _ = self._environments.reset(seed=training_seeds(self.seed, self.count))
        self._observation = torch.from_numpy(observation)
        self._resets = torch.zeros(self.count, dtype=torch.bool)
        self._sums = np.zeros(self.count)

    def collect(self, act: Callable[[Tensor], tuple[Tensor, Tensor]], length: int) -> Experience:
        """The next ``length`` steps; ``act`` gives actions and their log-probabilities."""
        self.returns = []
        seen, rows = [self._observation], []
        for _ in range(length):
            action, log_probability = act(self._observation)
            following, reward, terminated, truncated, _ = self._environments.step(action.numpy())
            real, over = ~self._resets, terminated | truncated
            self._sums += reward * real.numpy()
            self.returns += [float(total) for total in self._sums[over]]
            self._sums[over] = 0.0
            rows.append(
                (action, log_probability, torch.from_numpy(reward).float(),
                 torch.from_numpy(terminated), torch.from_numpy(over), real)
            )  # fmt: skip
            self._observation, self._resets = torch.from_numpy(following), torch.from_numpy(over)
            seen.append(self._observation)
        return Experience(torch.stack(seen), *map(torch.stack, zip(*rows, strict=True)))

    def close(self) -> None:
        self._environments.close()


def _vectorised(environment: str, count: int) -> Any:
    """They reset in the step after an episode's last, so that the observation after that last one
    is the one the value function is asked about."""
    try:
        import gymnasium
        from gymnasium.vector import SyncVectorEnv
    except ImportError as error:
        raise DataUnavailableError(
            'Learning from reward needs gymnasium: run `pip install "toreqprop[bench]"`.'
        ) from error
    return SyncVectorEnv(
        [lambda: gymnasium.make(environment, disable_env_checker=True) for _ in range(count)]
    )
