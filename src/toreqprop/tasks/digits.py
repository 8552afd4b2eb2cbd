"""Digits 8x8: scikit-learn's bundled scans, a fifth of them for testing."""

from __future__ import annotations

import hashlib

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from toreqprop.tasks.dataset import Dataset, Standardiser, check_seed

CLASSES = 10
TEST_FRACTION = 0.2


def load(seed: int, full: bool = False) -> Dataset:
    """All 1,797 digits, split by seed and stratified; `full` changes nothing here."""
    check_seed(seed)
    pixels, labels = load_digits(return_X_y=True)
    pixels, labels = pixels.astype(np.float32), labels.astype(np.int64)
    train, test, train_y, test_y = train_test_split(
        pixels, labels, test_size=TEST_FRACTION, random_state=seed, stratify=labels
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
