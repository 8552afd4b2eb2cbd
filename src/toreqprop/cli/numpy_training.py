"""``toreqprop train --kernel numpy``: the reference on its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from toreqprop import checks
from toreqprop.cli.samples import Samples
from toreqprop.cli.training_log import TrainingLog
from toreqprop.kernels import reference


def train_reference(
    found: Samples,
    labels: np.ndarray | None,
    hidden: int,
    epochs: int,
    batch_size: int,
    learning_rate: float | None,
    beta: float | None,
    radius: float | None,
    seed: int,
    log: TrainingLog,
) -> dict[str, Any]:
    """Plain gradient descent in NumPy alone; see `kernels.reference`."""
    for name, count in (("hidden", hidden), ("epochs", epochs), ("batch_size", batch_size)):
        checks.whole_number(name, count, 1)
    checks.whole_number("seed", seed, 0)
    for name, value in (("learning_rate", learning_rate), ("beta", beta), ("radius", radius)):
        if value is not None:
            checks.number(name, value, 0, above=True)
    settings = reference.Settings()
    if beta is not None:
        settings = settings._replace(beta=beta)
    if radius is not None:
        settings = settings._replace(radius=radius)
    schedule = reference.Schedule(epochs=epochs, batch=batch_size, seed=seed)
    if learning_rate is not None:
        schedule = replace(schedule, rate=learning_rate)
    (x, y), (test_x, test_y) = (
        (found.scaling(part[0]).astype(np.float32), np.searchsorted(labels, part[1]))  # type: ignore[arg-type]
        for part in (found.train, found.scored)
    )
    last = None
    for last in reference.train(x, y, hidden=hidden, settings=settings, schedule=schedule):
        log.epoch({"epoch": last.number, "loss": last.loss})
    assert last is not None
    right = reference.predict(last.params, test_x, settings) == test_y
    chance = float(np.bincount(test_y).max() / len(test_y))
    return {"accuracy": float(right.mean()), "chance": chance, "loss": last.loss, "epochs": epochs}
