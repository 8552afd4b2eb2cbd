"""What MNIST and Fashion-MNIST share: four idx files, a stratified draw, one global scale."""

from __future__ import annotations

import numpy as np

from toreqprop.tasks.dataset import Dataset, Standardiser, check_seed
from toreqprop.tasks.files import COLLECTIONS, load_contents
from toreqprop.tasks.idx import parse_idx

CLASSES = 10
DRAWN = 5_000


def load_images(task: str, seed: int, full: bool) -> Dataset:
    """5,000 training images drawn by seed and stratified, or all with `full`; the whole test set.

    Pixels are scaled to [0, 1], then standardised by one mean and deviation over all of them.
    """
    check_seed(seed)
    contents = load_contents(task)
    images, labels = _read(contents, "train")
    test_images, test_labels = _read(contents, "t10k")
    if not full and len(labels) > DRAWN:
        from sklearn.model_selection import train_test_split

        rows, _ = train_test_split(
            np.arange(len(labels)), train_size=DRAWN, random_state=seed, stratify=labels
        )
        images, labels = images[rows], labels[rows]
    train, test = images.astype(np.float32) / 255, test_images.astype(np.float32) / 255
    standardiser = Standardiser.fit(train, per_feature=False, floor=1e-3)
    return Dataset(
        name=task,
        train_x=standardiser(train),
        train_y=labels,
        test_x=standardiser(test),
        test_y=test_labels,
        classes=CLASSES,
        checksums={file.name: file.sha256 for file in COLLECTIONS[task].files},
        standardiser=standardiser,
    )


def file_names(task: str) -> tuple[str, ...]:
    """The data files a task needs."""
    return tuple(file.name for file in COLLECTIONS[task].files)


def _read(contents: dict[str, bytes], part: str) -> tuple[np.ndarray, np.ndarray]:
    images, labels = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
    pixels = parse_idx(contents[images], 3, images)
    return pixels.reshape(len(pixels), -1), parse_idx(contents[labels], 1, labels).astype(np.int64)
