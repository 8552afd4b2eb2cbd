"""Digits 8x8: scikit-learn's bundled scans, one third of them, always the same, for testing."""

from __future__ import annotations

import hashlib

import numpy as np

from toreqprop.tasks.dataset import Dataset, Standardiser, check_seed

CLASSES = 10
TEST_FRACTION = 1 / 3
TEST_SPLIT = 17
"""The one split into scans to learn from and scans to be tested on, whatever the seed."""

DRAWN = 1_000


def load(seed: int, full: bool = False) -> Dataset:
    """1,000 scans drawn by seed, of those never tested on; stratified; `full` changes nothing here.

    The 599 test scans are the same for every seed: nothing chosen with any seed has seen one.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    check_seed(seed)
    pixels, labels = load_digits(return_X_y=True)
    pixels, labels = pixels.astype(np.float32), labels.astype(np.int64)
    rest, test, rest_y, test_y = train_test_split(
        pixels, labels, test_size=TEST_FRACTION, random_state=TEST_SPLIT, stratify=labels
    )
    train, _, train_y, _ = train_test_split(
        rest, rest_y, train_size=DRAWN, random_state=seed, stratify=rest_y
    )
    # Pixels run from 0 to 16 and typically deviate by 4 to 6; corner pixels by a hundredth of it.
    standardiser = Standardiser.fit(train, per_feature=True, floor=1.0)
    return Dataset(
        name="digits",
        train_x=standardiser(train),
        train_y=train_y,
        test_x=standardiser(test),
        test_y=test_y,
        classes=CLASSES,
        checksums={"digits": hashlib.sha256(pixels.astype(np.uint8).tobytes()).hexdigest()},
        standardiser=standardiser,
    )
