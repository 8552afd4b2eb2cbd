"""CIFAR-10: pixels where they belong, a split that is fixed, and the published statistics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from toreqprop.tasks import Dataset, cifar10, files


def test_the_real_images_have_the_published_statistics() -> None:
    # Before the tiny files of the other tests take their place.
    if any(state.state != "present" for state in files.inspect("cifar10")):
        pytest.skip("the files are not on this machine: run `toreqprop data fetch cifar10`")
    train, validation, test = cifar10.fixed_split()
    labels = np.concatenate([train.y, validation.y])
    assert np.array_equal(np.bincount(labels), [5_000] * 10)
    assert np.array_equal(np.bincount(test.y), [1_000] * 10)
    means, deviations = cifar10.channel_statistics(np.concatenate([train.x, validation.x]))
    # Half a unit of the last published digit.
    np.testing.assert_allclose(means, cifar10.MEANS, atol=5e-5)
    np.testing.assert_allclose(deviations, cifar10.DEVIATIONS, atol=5e-5)


def test_pixels_become_channels_and_the_split_is_fixed(load: Callable[[str, int], Dataset]) -> None:
    load("cifar10", 0)  # puts the tiny files in place
    train, validation, test = cifar10.fixed_split()
    assert [len(part.y) for part in (train, validation, test)] == [5_400, 600, 300]
    again = cifar10.fixed_split()
    assert np.array_equal(train.x, again[0].x)
    assert np.array_equal(validation.y, again[1].y)
    pixels = np.random.default_rng(2).integers(0, 256, (4_000, 16, 3), np.uint8)
    # Image 7, pixel in row 1 and column 2, all three colours.
    assert np.array_equal(train.x[7, :, 1, 2], pixels[7, 6])


def test_statistics_are_those_of_the_pixels() -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 3, 4, 4), np.uint8)
    means, deviations = cifar10.channel_statistics(images)
    scaled = images / 255
    np.testing.assert_allclose(means, scaled.mean((0, 2, 3)))
    np.testing.assert_allclose(deviations, scaled.std((0, 2, 3)))
