"""ngspice's binary raw files."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def read_raw(content: bytes) -> dict[str, np.ndarray]:
    """Vectors of the first plot by name, such as ``v(out1)``; real data, float64.

    Raises ``ValueError`` where the content is not such a file.
    """
    head, mark, data = content.partition(b"Binary:\n")
    if not mark:
        raise ValueError("no binary section")
    fields, names = {}, []
    lines: Iterator[str] = iter(head.decode("utf-8", "replace").splitlines())
    for line in lines:
        key, _, value = line.partition(":")
        fields[key.strip().lower()] = value.strip()
        if key == "Variables":
            names = [next(lines).split()[1].lower() for _ in range(int(fields["no. variables"]))]
    if "real" not in fields.get("flags", ""):
        raise ValueError("the data are not real")
    # A run that was aborted leaves the count at zero, before the points it did finish.
    rows = int(fields["no. points"]) or len(data) // (8 * max(len(names), 1))
    if len(data) < 8 * rows * len(names):
        raise ValueError("the data are cut short")
    values = np.frombuffer(data, np.float64, rows * len(names)).reshape(rows, len(names))
    return {name: values[:, i].copy() for i, name in enumerate(names)}
