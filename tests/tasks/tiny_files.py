"""Small idx files of the image tasks' shape, and the file tables that belong to them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
from pathlib import Path

import numpy as np
from PIL import Image

from toreqprop.tasks import files
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


def tiny_colour_contents(seed: int) -> dict[str, bytes]:
    """The files of a colour image task: pictures with an image in each row, labels as JSON."""
    rng = np.random.default_rng(seed)
    contents = {}
    for part, count in (("data_batch_1", 4_000), ("data_batch_2", 2_000), ("test_batch", 300)):
        pixels = rng.integers(0, 256, (count, SIDE * SIDE, 3), np.uint8)
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "png")
        contents[f"{part}.png"] = stream.getvalue()
    for part, count in (("train", TINY_TRAIN), ("test", TINY_TEST)):
        contents[f"{part}_lables.json"] = json.dumps(rng.integers(0, 10, count).tolist()).encode()
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
