"""What `torchrun` starts in tests/test_data_parallel.py, in each of two processes."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.cli import main
from toreqprop.data_parallel import Group, joined
from toreqprop.training import TrainingConfig, fit

ROWS = 7
"""Rows of a batch: no multiple of two, so that shares differ in size."""


def networks() -> dict[str, tuple[nn.Module, Tensor, Tensor]]:
    """Networks with batches; relaxed so far that how a batch is split is below what is asked."""
    torch.manual_seed(0)
    y = torch.arange(ROWS) % 3
    looped = teq.LoopedMLP(5, 8, 3, tol=1e-10).double()
    conv = teq.HopfieldConvNet((1, 8, 8), [3, 3], 3, kernel_size=3, tol=1e-10).double()
    return {
        "looped": (looped, torch.randn(ROWS, 5).double(), y),
        "conv": (conv, torch.randn(ROWS, 1, 8, 8).double(), y),
    }


def gradients(model: nn.Module, x: Tensor, y: Tensor, group: Group) -> dict[str, Tensor]:
    """The gradients of a batch, of which each process does its share."""
    rows, part = group.share(torch.arange(len(x)))
    (part * F.cross_entropy(model(x[rows]), y[rows])).backward()
    group.sum_gradients(model)
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def trained(group: Group) -> tuple[dict[str, Tensor], int]:
    """Weights after three epochs in batches of 4 and 3, then of one row, and the epochs done."""
    model, x, y = networks()["looped"]
    # The leading process alone stops, after two of three epochs.
    stop = (lambda epoch: epoch.epoch == 2) if group.leads else None
    config = TrainingConfig(epochs=3, batch_size=6, learning_rate=0.01)
    history = fit(model, x, y, config, on_epoch=stop, group=group)
    return dict(model.state_dict()), len(history.epochs)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    with joined() as group:
        found = {name: gradients(*case, group) for name, case in networks().items()}
        torch.save({"gradients": found, "trained": trained(group)}, folder / f"{group.rank}.pt")
        sys.argv = ["toreqprop", *sys.argv[2:]]
        main()
