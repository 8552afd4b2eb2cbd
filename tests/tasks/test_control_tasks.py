"""Control tasks: the experts are good, and their recordings teach a clone to be as good."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from toreqprop.errors import InvalidInputError
from toreqprop.tasks import Dataset, get, rollout
from toreqprop.tasks.control import Disturbance, play

Load = Callable[[str, int], Dataset]

# The scores the benchmark relies on, and how far below its expert a clone may stay.
EXPERT_SCORE = {"cartpole": 490.0, "acrobot": -90.0}
CLONE_ACCURACY = {"cartpole": 0.995, "acrobot": 0.98}
CLONE_LAG = {"cartpole": 25.0, "acrobot": 10.0}
control_task = pytest.mark.parametrize("name", ["cartpole", "acrobot"])


def terms(name: str, x: np.ndarray) -> np.ndarray:
    """Features in which the expert is linear: for acrobot also cos θ₁ times the others."""
    return np.concatenate([x, x * x[:, :1]], axis=1) if name == "acrobot" else x


@control_task
def test_the_expert_scores(name: str) -> None:
    task = get(name)
    assert task.expert is not None
    assert task.environment is not None
    returns = rollout(task.expert, task.environment, episodes=100, seed=0)
    assert returns.shape == (100,)
    assert returns.mean() >= EXPERT_SCORE[name]


@control_task
def test_a_clone_is_nearly_as_good(load: Load, name: str) -> None:
    task, data = get(name), load(name, 0)
    assert task.expert is not None
    assert task.environment is not None
    model = LogisticRegression(C=1e3, max_iter=10_000, tol=1e-3)
    model.fit(terms(name, data.train_x), data.train_y)
    assert model.score(terms(name, data.test_x), data.test_y) >= CLONE_ACCURACY[name]

    def clone(observations: np.ndarray) -> np.ndarray:
        return model.predict(terms(name, data.normalise(observations)))

    returns = rollout(clone, task.environment, episodes=30, seed=0)
    expert = rollout(task.expert, task.environment, episodes=30, seed=0)
    assert returns.mean() >= expert.mean() - CLONE_LAG[name]


@control_task
def test_labels_are_the_experts_actions(load: Load, name: str) -> None:
    """Also where a disturbance was acting: what is recorded is what the expert would do."""
    task, data = get(name), load(name, 0)
    assert task.expert is not None
    actions = task.expert(data.standardiser.invert(data.train_x))
    # Undoing the standardisation rounds: an observation on the boundary may fall on its other side.
    assert np.mean(actions == data.train_y) > 0.999


@control_task
def test_train_and_test_come_from_different_episodes(load: Load, name: str) -> None:
    data = load(name, 0)
    assert data.train_episode is not None
    assert data.test_episode is not None
    assert len(data.train_episode) == len(data.train_y)
    assert not set(data.train_episode) & set(data.test_episode)
    split = data.validation(0.25, seed=0)
    assert split.train_episode is not None
    assert split.test_episode is not None
    assert not set(split.train_episode) & set(split.test_episode)
    assert set(split.train_episode) | set(split.test_episode) == set(data.train_episode)


def push_right(observations: np.ndarray) -> np.ndarray:
    return np.ones(len(observations), np.int64)


def test_no_two_streams_start_alike() -> None:
    """Equal seeds, other streams: training, test and rollout episodes must not coincide."""
    starts = [
        play(push_right, "CartPole-v1", 20, (0, stream)).observations[:20] for stream in range(3)
    ]
    assert len(np.unique(np.concatenate(starts), axis=0)) == 60


def test_rollouts_are_decided_by_their_seed_and_differ_between_episodes() -> None:
    first = rollout(push_right, "CartPole-v1", 20, seed=1)
    np.testing.assert_array_equal(first, rollout(push_right, "CartPole-v1", 20, seed=1))
    assert len(set(first)) > 1
    assert not np.array_equal(first, rollout(push_right, "CartPole-v1", 20, seed=2))
    assert first.max() < 15, "always pushing right drops the pole within 15 steps"


def test_a_policy_sees_only_the_running_episodes() -> None:
    sizes: list[int] = []

    def policy(observations: np.ndarray) -> np.ndarray:
        sizes.append(len(observations))
        return push_right(observations)

    returns = rollout(policy, "CartPole-v1", 10, seed=0)
    assert sizes[0] == 10
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == returns.sum()


def test_a_disturbance_widens_what_the_expert_is_seen_in() -> None:
    expert = get("cartpole").expert
    assert expert is not None
    calm = play(expert, "CartPole-v1", 5, (0, 0))
    disturbed = play(expert, "CartPole-v1", 5, (0, 0), Disturbance(0.05, 5))
    assert np.abs(disturbed.observations[:, 2]).std() > 3 * np.abs(calm.observations[:, 2]).std()
    np.testing.assert_array_equal(disturbed.actions, expert(disturbed.observations))


def test_no_episodes_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="episodes must be >= 1"):
        rollout(push_right, "CartPole-v1", 0, seed=0)
