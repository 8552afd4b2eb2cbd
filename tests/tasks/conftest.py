"""Tiny idx files in place of the real ones, so that no test needs a network."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny_files import tiny_collection, tiny_colour_contents, tiny_contents, write_all

from toreqprop.tasks import TASKS, Dataset, files


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
        made = tiny_colour_contents(2)
        write_all(folder / "cifar10", made)
        patch.setitem(files.COLLECTIONS, "cifar10", tiny_collection("cifar10", made))
        yield functools.cache(lambda name, seed: TASKS[name].load(seed, False))
