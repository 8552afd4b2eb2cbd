"""CIFAR-10: colour photographs of ten kinds, 32x32 (Krizhevsky 2009)."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass

import numpy as np

from toreqprop.errors import DataUnavailableError
from toreqprop.tasks.dataset import Dataset, Standardiser, check_seed
from toreqprop.tasks.files import COLLECTIONS, load_contents
from toreqprop.tasks.images import CLASSES, DRAWN

CHANNELS = 3
HELD = 0.1
"""Share of the training images, the last of them, that `fixed_split` keeps for validation."""
MEANS = (0.4914, 0.4822, 0.4465)
DEVIATIONS = (0.2470, 0.2435, 0.2616)
"""Of the training images by channel, in units of 255, as published."""


@dataclass(frozen=True)
class Images:
    """Bytes (count, 3, height, width) and labels (count,) of one part."""

    x: np.ndarray
    y: np.ndarray


def fixed_split() -> tuple[Images, Images, Images]:
    """Training, validation and test images: 45,000, 5,000 and 10,000, the same for everyone."""
    train, test = _read()
    kept = len(train.y) - round(HELD * len(train.y))
    return Images(train.x[:kept], train.y[:kept]), Images(train.x[kept:], train.y[kept:]), test


def load(seed: int, full: bool = False) -> Dataset:
    """5,000 training images drawn by seed, or all 50,000 with `full`; all 10,000 test images.

    A row holds the red, the green and the blue pixels of an image, scaled to [0, 1] and
    standardised by one mean and deviation over all of them.
    """
    check_seed(seed)
    train, test = _read()
    x, y = train.x, train.y
    if not full and len(y) > DRAWN:
        from sklearn.model_selection import train_test_split

        rows, _ = train_test_split(
            np.arange(len(y)), train_size=DRAWN, random_state=seed, stratify=y
        )
        x, y = x[rows], y[rows]
    scaled = _rows(x)
    standardiser = Standardiser.fit(scaled, per_feature=False, floor=1e-3)
    return Dataset(
        name="cifar10",
        train_x=standardiser(scaled),
        train_y=y,
        test_x=standardiser(_rows(test.x)),
        test_y=test.y,
        classes=CLASSES,
        checksums={file.name: file.sha256 for file in COLLECTIONS["cifar10"].files},
        standardiser=standardiser,
    )


def channel_statistics(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each channel of bytes (count, 3, height, width), in units of 255.

    From the counts of the 256 values, so that nothing of the size of the images is computed with.
    """
    values = np.arange(256) / 255
    counts = np.stack([np.bincount(images[:, c].ravel(), minlength=256) for c in range(CHANNELS)])
    shares = counts / counts.sum(1, keepdims=True)
    means = shares @ values
    return means, np.sqrt(shares @ values**2 - means**2)


def _rows(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1).astype(np.float32) / 255


def _read() -> tuple[Images, Images]:
    contents = load_contents("cifar10")
    parts = [contents[name] for name in sorted(contents) if name.startswith("data_batch")]
    train = np.concatenate([_pixels(content) for content in parts])
    return (
        Images(train, _labels(contents["train_lables.json"])),
        Images(_pixels(contents["test_batch.png"]), _labels(contents["test_lables.json"])),
    )


def _pixels(content: bytes) -> np.ndarray:
    """An RGB picture with an image in each row, pixel after pixel, as (count, 3, side, side)."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataUnavailableError(
            'CIFAR-10 needs pillow: run `pip install "toreqprop[bench]"`.'
        ) from error
    picture = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    side = round(picture.shape[1] ** 0.5)
    return np.ascontiguousarray(picture.reshape(-1, side, side, CHANNELS).transpose(0, 3, 1, 2))


def _labels(content: bytes) -> np.ndarray:
    return np.asarray(json.loads(content), np.int64)
