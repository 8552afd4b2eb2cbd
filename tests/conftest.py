"""One thread per test process: the tensors are small and two processes share the machine."""

from __future__ import annotations

import gc
import os

import pytest
import torch

torch.set_num_threads(1)


def pytest_configure(config: pytest.Config) -> None:
    """Compile before the workers start: all of them then run the same machine code."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        from tests import compiling
        from toreqprop.evidence.runner import warm_up

        whole = config.args_source is config.ArgsSource.TESTPATHS
        if whole and config.getoption("numprocesses", None):
            compiling.compile_all()
        warm_up()


def pytest_collection_finish() -> None:
    """What is there by now stays: garbage is looked for in what tests leave behind, which takes a
    hundredth of the time where a library asks for it, as statsmodels does to adjust p-values."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
