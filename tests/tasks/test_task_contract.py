"""What every registered task promises, and the split that keeps test data out of tuning."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tiny_files import TINY_TEST, TINY_TRAIN

from toreqprop.errors import InvalidInputError
from toreqprop.tasks import TASKS, Dataset, get

Load = Callable[[str, int], Dataset]

every_task = pytest.mark.parametrize("name", list(TASKS))
SIZES = {
    "digits": (1_000, 599, 64, 10),
    "mnist": (5_000, TINY_TEST, 16, 10),
    "fashion": (5_000, TINY_TEST, 16, 10),
    "cifar10": (5_000, TINY_TEST, 48, 10),
    "cartpole": (5_000, 2_000, 4, 2),
    "acrobot": (5_000, 2_000, 6, 3),
}


def rows(x: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in x}


def assert_standardised_by_training_part(data: Dataset) -> None:
    """Mean 0 and deviation 1 over the training part; a floored feature may deviate less."""
    axis = 0 if data.mean.ndim else None
    raw = data.standardiser.invert(data.train_x)
    deviation = raw.std(axis=axis, dtype=np.float64)
    # float32 rounding of features of order 10, averaged over thousands of rows.
    np.testing.assert_allclose(data.train_x.mean(axis=axis, dtype=np.float64), 0, atol=1e-5)
    floored = np.maximum(deviation, data.standardiser.floor)
    np.testing.assert_allclose(data.scale, floored, rtol=1e-4)
    np.testing.assert_allclose(data.mean, raw.mean(axis=axis, dtype=np.float64), atol=1e-4)


@every_task
def test_shapes_types_and_labels(load: Load, name: str) -> None:
    data = load(name, 0)
    train, test, features, classes = SIZES[name]
    assert data.name == name
    assert (data.features, data.classes) == (features, classes)
    for x, y, count in (
        (data.train_x, data.train_y, train),
        (data.test_x, data.test_y, test),
    ):
        assert x.shape == (count, features)
        assert y.shape == (count,)
        assert (x.dtype, y.dtype) == (np.float32, np.int64)
        assert np.isfinite(x).all()
        assert set(y) <= set(range(classes))
    assert set(data.test_y) == set(data.train_y)
    assert data.checksums
    assert all(len(digest) == 64 for digest in data.checksums.values())


@every_task
def test_the_seed_decides(load: Load, name: str) -> None:
    first, again, other = load(name, 0), TASKS[name].load(0, False), load(name, 1)
    for part in ("train_x", "train_y", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(first, part), getattr(again, part))
    assert not np.array_equal(first.train_x, other.train_x)


@every_task
def test_no_training_set_of_any_seed_holds_a_row_of_the_test_set(load: Load, name: str) -> None:
    """Settings are chosen with seeds of their own: what they train on is never tested on."""
    first, other = load(name, 0), load(name, 1)
    tested = first.standardiser.invert(first.test_x), other.standardiser.invert(other.test_x)
    np.testing.assert_allclose(*tested, atol=1e-4)
    np.testing.assert_array_equal(first.test_y, other.test_y)
    seen = other.standardiser.invert(other.train_x).astype(np.float64).round(4)
    assert not rows(seen) & rows(tested[1].astype(np.float64).round(4))


@every_task
def test_train_and_test_are_disjoint(load: Load, name: str) -> None:
    data = load(name, 0)
    assert not rows(data.train_x) & rows(data.test_x)


@every_task
def test_standardised_by_the_training_part_alone(load: Load, name: str) -> None:
    data = load(name, 0)
    assert_standardised_by_training_part(data)
    np.testing.assert_allclose(
        data.normalise(data.standardiser.invert(data.test_x)), data.test_x, atol=1e-5
    )


@every_task
def test_validation_takes_from_the_training_part_alone(load: Load, name: str) -> None:
    data = load(name, 0)
    split = data.validation(0.2, seed=3)
    assert len(split.train_y) + len(split.test_y) == len(data.train_y)
    # Episodes differ in length: a fifth of them is not exactly a fifth of the rows.
    assert len(split.test_y) / len(data.train_y) == pytest.approx(0.2, abs=0.06)
    both = np.concatenate([split.train_x, split.test_x])
    raw, source = split.standardiser.invert(both), data.standardiser.invert(data.train_x)
    # The same rows in another order: their sorted features agree up to float32 rounding.
    np.testing.assert_allclose(np.sort(raw, 0), np.sort(source, 0), atol=1e-4)
    assert_standardised_by_training_part(split)
    again, other = data.validation(0.2, seed=3), data.validation(0.2, seed=4)
    np.testing.assert_array_equal(split.test_x, again.test_x)
    assert not np.array_equal(split.test_y, other.test_y)


@pytest.mark.parametrize("name", ["digits", "mnist", "fashion"])
def test_validation_is_stratified(load: Load, name: str) -> None:
    data = load(name, 0)
    split = data.validation(0.2, seed=0)
    kept = np.bincount(split.test_y, minlength=10)
    np.testing.assert_allclose(kept, 0.2 * np.bincount(data.train_y), atol=1)


def test_the_image_draw_is_stratified_and_full_takes_all(load: Load) -> None:
    drawn, whole = load("mnist", 0), TASKS["mnist"].load(0, True)
    assert len(whole.train_y) == TINY_TRAIN
    np.testing.assert_array_equal(drawn.test_y, whole.test_y)
    expected = np.bincount(whole.train_y) * len(drawn.train_y) / TINY_TRAIN
    np.testing.assert_allclose(np.bincount(drawn.train_y), expected, atol=1)


def test_chance_is_the_majority_rate_of_the_test_labels(load: Load) -> None:
    data = load("cartpole", 0)
    right = np.mean(data.test_y == 1)
    assert data.chance == pytest.approx(max(right, 1 - right))


def test_tiny_deviations_are_not_blown_up(load: Load) -> None:
    """Corner pixels of the digits are almost always 0: without the floor they reach 30 and more."""
    assert np.abs(load("digits", 0).train_x).max() < 16


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 2.0])
def test_a_fraction_that_leaves_nothing_is_refused(load: Load, fraction: float) -> None:
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        load("digits", 0).validation(fraction, seed=0)


@every_task
def test_a_negative_seed_is_refused(load: Load, name: str) -> None:
    with pytest.raises(InvalidInputError, match="seed"):
        TASKS[name].load(-1, False)


def test_an_unknown_task_is_refused_with_the_known_names() -> None:
    with pytest.raises(InvalidInputError, match="digits, mnist, fashion, cifar10, cartpole"):
        get("mnits")


def test_the_registry_names_its_entries() -> None:
    assert list(TASKS) == [task.name for task in TASKS.values()]
    assert [name for name, task in TASKS.items() if task.needs] == ["mnist", "fashion", "cifar10"]
    assert all((task.environment is None) == (task.expert is None) for task in TASKS.values())
