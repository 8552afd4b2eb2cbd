"""One thread per test process: the tensors are small and two processes share the machine."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)

STARTED = str(Path(__file__).parent / "started")
"""First on the path of every program that tests start: see what is in it."""

LONGEST = (
    "test_compiled_cache", "test_runner", "test_code_blocks", "test_executors",
    "test_ordinary_module", "test_speed", "test_train_command", "test_tight_ball",
)  # fmt: skip
"""Files that take longest come first, so that two workers end together."""


def pytest_configure(config: pytest.Config) -> None:
    """Compile before the workers start: all of them then run the same machine code."""
    gc.set_threshold(*gc.get_threshold()[:2], 100)  # as in the programs that tests start
    if "PYTEST_XDIST_WORKER" not in os.environ:
        path = [STARTED, os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        from tests import compiling
        from toreqprop.evidence.runner import warm_up

        whole = config.args_source is config.ArgsSource.TESTPATHS
        if whole and config.getoption("numprocesses", None):
            compiling.compile_all()
        warm_up()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file belongs to one worker: what its tests share is made once. Files keep their order."""
    from xdist.scheduler import LoadFileScheduling

    if config.getvalue("dist") != "load":
        return None  # what was asked for
    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


@pytest.fixture(autouse=True, scope="module")
def settled() -> None:
    """What is there by now stays: garbage is looked for in what a file leaves behind, which takes
    a hundredth of the time where a library asks for it, as statsmodels does to adjust p-values."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
