"""One thread per test process: the tensors are small and two processes share the machine."""

from __future__ import annotations

import os

import pytest
import torch

torch.set_num_threads(1)


def pytest_configure(config: pytest.Config) -> None:
    """Compile before the workers start: all of them then run the same machine code."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        from toreqprop.evidence.runner import warm_up

        warm_up()


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
