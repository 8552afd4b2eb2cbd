"""Tiny idx files in place of the real ones, so that no test needs a network."""

from __future__ import annotations

import functools
import gzip
import hashlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from toreqprop.tasks import TASKS, Dataset, files
from toreqprop.tasks.files import Collection, DataFile

TINY_TRAIN, TINY_TEST, SIDE = 6_000, 300, 4


def idx_bytes(array: np.ndarray) -> bytes:
    """An unsigned byte array in idx format, written independently of the parser."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def tiny_contents(seed: int) -> dict[str, bytes]:
    """The four files of an image task, with few and small images."""
    rng = np.random.default_rng(seed)
    contents = {}
    for part, count in (("train", TINY_TRAIN), ("t10k", TINY_TEST)):
        images = rng.integers(0, 256, (count, SIDE, SIDE), np.uint8)
        labels = rng.integers(0, 10, count).astype(np.uint8)
        contents[f"{part}-images-idx3-ubyte"] = idx_bytes(images)
        contents[f"{part}-labels-idx1-ubyte"] = idx_bytes(labels)
    return contents


def tiny_collection(task: str, contents: dict[str, bytes], *sources: files.Source) -> Collection:
    """The file table that belongs to `contents`."""
    table = tuple(
        DataFile(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in contents.items()
    )
    return Collection(task, table, (task, ""), None, sources, "the remedy")


def write_all(folder: Path, contents: dict[str, bytes], compress: bool = False) -> Path:
    """Put the files in a folder, plain or as .gz."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if compress:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
        else:
            (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no data folder in the environment."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(files, "cache_folder", lambda: folder)
    monkeypatch.delenv(files.DATA_VARIABLE, raising=False)
    return folder


@pytest.fixture
def contents() -> dict[str, bytes]:
    return tiny_contents(0)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, int], Dataset]]:
    """`load(name, seed)` for every registered task, over tiny image files, loaded once each."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "cache_folder", lambda: folder)
        patch.delenv(files.DATA_VARIABLE, raising=False)
        for seed, task in enumerate(("mnist", "fashion")):
            made = tiny_contents(seed)
            write_all(folder / task, made)
            patch.setitem(files.COLLECTIONS, task, tiny_collection(task, made))
        yield functools.cache(lambda name, seed: TASKS[name].load(seed, False))
