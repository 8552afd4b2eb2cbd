"""Behaviour cloning: record an expert in a gymnasium environment, and roll policies out in it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from toreqprop import checks
from toreqprop.errors import DataUnavailableError, InvalidInputError
from toreqprop.tasks.dataset import Dataset, Standardiser, check_seed

Policy = Callable[[np.ndarray], np.ndarray]
"""Maps raw observations (n, d) to actions (n,)."""

TRAIN_PAIRS, TRAIN_EPISODES = 5_000, 100
TEST_PAIRS, TEST_EPISODES = 2_000, 40
TEST_SEED = 17
"""Test episodes are the same for every seed, so that nothing chosen with any seed has seen one."""

# Streams of random numbers that never meet, whatever the seed.
_TRAIN, _TEST, _ROLLOUT, _DRAW = range(4)


@dataclass(frozen=True)
class Disturbance:
    """Random actions taken while recording, so that the expert is also seen recovering.

    Each step starts one with `probability`; its action, drawn uniformly, is held for 1 to
    `longest` steps. What is recorded is always the action the expert would have taken.
    """

    probability: float
    longest: int


_UNDISTURBED = Disturbance(probability=0.0, longest=1)


@dataclass(frozen=True, eq=False)
class Recording:
    """Episodes played in parallel: raw observations (n, d), the policy's actions (n,) and the
    episode of each row (n,); `returns` is the sum of rewards per episode."""

    observations: np.ndarray
    actions: np.ndarray
    episode: np.ndarray
    returns: np.ndarray


def rollout(policy: Policy, environment: str, episodes: int, seed: int) -> np.ndarray:
    """Returns (episodes,) of a policy, played in parallel: it is called once per time step.

    Args:
        policy: maps raw observations (n, d) of the running episodes to actions (n,).
        environment: a gymnasium id.
    """
    checks.function("policy", policy)
    if not isinstance(environment, str):
        raise InvalidInputError(
            f"environment must be a gymnasium id, got {checks.shown(environment)}."
        )
    checks.whole_number("episodes", episodes, 1)
    check_seed(seed)
    _check_environment(environment)

    def checked(observations: np.ndarray) -> np.ndarray:
        actions = np.asarray(policy(observations))
        if actions.shape != (len(observations),) or actions.dtype.kind not in "iu":
            raise InvalidInputError(
                f"policy must return {len(observations)} whole numbers, one for each observation, "
                f"got {actions.dtype} of shape {actions.shape}."
            )
        return actions

    return play(checked, environment, episodes, (seed, _ROLLOUT)).returns


def _check_environment(name: str) -> None:
    try:
        import gymnasium
    except ImportError:
        return  # `play` says what to install
    try:
        gymnasium.spec(name)
    except gymnasium.error.Error:
        raise InvalidInputError(
            f"There is no environment {name!r}: give a gymnasium id such as CartPole-v1."
        ) from None


def load_control(
    name: str, environment: str, expert: Policy, disturbance: Disturbance, seed: int
) -> Dataset:
    """5,000 training pairs of observation and expert action, by seed, and 2,000 test pairs.

    They are drawn from 100 and 40 recorded episodes, so no episode serves both; the test pairs
    depend on no seed. Features are
    standardised one by one with the training pairs' statistics; a label is the action itself.
    """
    train = play(expert, environment, TRAIN_EPISODES, (seed, _TRAIN), disturbance)
    test = play(expert, environment, TEST_EPISODES, (TEST_SEED, _TEST), disturbance)
    kept = _draw(train, TRAIN_PAIRS, seed)
    held = _draw(test, TEST_PAIRS, TEST_SEED)
    raw, raw_test = train.observations[kept], test.observations[held]
    standardiser = Standardiser.fit(raw, per_feature=True, floor=1e-3)
    return Dataset(
        name=name,
        train_x=standardiser(raw),
        train_y=train.actions[kept],
        test_x=standardiser(raw_test),
        test_y=test.actions[held],
        classes=action_count(environment),
        checksums={
            "train": hashlib.sha256(raw.tobytes()).hexdigest(),
            "test": hashlib.sha256(raw_test.tobytes()).hexdigest(),
        },
        standardiser=standardiser,
        train_episode=train.episode[kept],
        test_episode=test.episode[held] + TRAIN_EPISODES,
    )


def _draw(recording: Recording, pairs: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng([seed, _DRAW])
    return generator.choice(len(recording.actions), pairs, replace=False)


def play(
    policy: Policy,
    environment: str,
    episodes: int,
    seed: tuple[int, int],
    disturbance: Disturbance = _UNDISTURBED,
) -> Recording:
    """Play episodes in parallel to their end, each from its own seed of the stream `seed`."""
    check_seed(seed[0])
    if episodes < 1:
        raise InvalidInputError(f"episodes must be at least 1, got {episodes}.")
    starts, noise = np.random.SeedSequence(seed).spawn(2)
    generator = np.random.default_rng(noise)
    environments = [_make(environment) for _ in range(episodes)]
    actions_known = int(environments[0].action_space.n)
    observation = np.stack(
        [
            env.reset(seed=int(start))[0]
            for env, start in zip(environments, starts.generate_state(episodes), strict=True)
        ]
    ).astype(np.float32)
    running = np.arange(episodes)
    returns = np.zeros(episodes)
    held_action = np.zeros(episodes, np.int64)
    held_steps = np.zeros(episodes, np.int64)
    seen, chosen, episode = [], [], []
    while len(running):
        action = np.asarray(policy(observation[running]), np.int64)
        seen.append(observation[running])
        chosen.append(action)
        episode.append(running)
        # Drawn for every episode, so that the end of one does not shift the others' numbers.
        struck = (generator.random(episodes) < disturbance.probability) & (held_steps == 0)
        lengths = generator.integers(1, disturbance.longest + 1, episodes)
        drawn = generator.integers(0, actions_known, episodes)
        held_steps = np.where(struck, lengths, held_steps)
        held_action = np.where(struck, drawn, held_action)
        taken = np.where(held_steps[running] > 0, held_action[running], action)
        held_steps = np.maximum(held_steps - 1, 0)
        over = np.zeros(len(running), bool)
        for place, (index, move) in enumerate(zip(running, taken, strict=True)):
            state, reward, terminated, truncated, _ = environments[index].step(int(move))
            observation[index] = state
            returns[index] += float(reward)
            over[place] = terminated or truncated
        running = running[~over]
    for env in environments:
        env.close()
    return Recording(np.concatenate(seen), np.concatenate(chosen), np.concatenate(episode), returns)


def action_count(environment: str) -> int:
    """Number of discrete actions of an environment."""
    env = _make(environment)
    try:
        return int(env.action_space.n)
    finally:
        env.close()


def _make(environment: str) -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise DataUnavailableError(
            'Control tasks need gymnasium: run `pip install "toreqprop[bench]"`.'
        ) from error
    return gymnasium.make(environment, disable_env_checker=True)
