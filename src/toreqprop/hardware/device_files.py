"""Devices as files: a chip in TOML, and what was measured of one as a table.

A file of a device has its settings by name, those of converters and of the store of weights as
tables of their own::

    spread = 0.3
    read_noise = 0.05
    average = 32

    [weights]
    kind = "quantised"
    bits = 4

    [states]
    bits = 8
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from toreqprop.energies.devices import STORES, Converter, Device, Store
from toreqprop.errors import InvalidInputError
from toreqprop.reading import read_regular

LIMIT = 2**24
"""Bytes of a file that are read."""


def read_device(path: Path) -> Device:
    """The device that a TOML file describes.

    Raises:
        InvalidInputError: it is no such file, or has a setting that no device has.
    """
    return device_from(_parse(read_regular(path, LIMIT).decode("utf-8", errors="replace"), path))


def device_from(settings: dict[str, Any]) -> Device:
    """The device of plain settings, as in a file."""
    known = {f.name for f in fields(Device)}
    for name in settings:
        if name not in known:
            raise InvalidInputError(
                f"A device has no {name!r}: choose from {', '.join(sorted(known))}."
            )
    given = dict(settings)
    for name in ("states", "inputs"):
        if name in given:
            given[name] = _built(name, Converter, given[name])
    if "weights" in given:
        table = dict(given["weights"]) if isinstance(given["weights"], dict) else {}
        kind = table.pop("kind", None)
        if kind not in STORES:
            raise InvalidInputError(
                f"[weights] needs kind = one of {', '.join(STORES)}, got {kind!r}."
            )
        given["weights"] = _built("weights", STORES[kind], table)
    return Device(**given)


def _built(name: str, kind: type, table: Any) -> Any:
    known = {f.name for f in fields(kind)}
    if not isinstance(table, dict) or not set(table) <= known:
        raise InvalidInputError(f"[{name}] has {', '.join(sorted(known))} and nothing else.")
    return kind(**table)


def device_text(device: Device) -> str:
    """The device as TOML, what is not ideal alone; `read_device` reads it back."""
    ideal, lines, tables = Device(), [], []
    for name, value in vars(device).items():
        if value == getattr(ideal, name):
            continue
        if isinstance(value, Store | Converter):
            rows = [f"{f.name} = {_plain(getattr(value, f.name))}" for f in fields(value)  # type: ignore[arg-type]
                    if getattr(value, f.name) is not None]  # fmt: skip
            if isinstance(value, Store):
                kind = next(k for k, cls in STORES.items() if type(value) is cls)
                rows.insert(0, f'kind = "{kind}"')
            tables += ["", f"[{name}]", *rows]
        else:
            lines.append(f"{name} = {_plain(value)}")
    return "\n".join([*lines, *tables]).strip() + "\n"


def _plain(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _parse(text: str, path: Path) -> dict[str, Any]:
    """The part of TOML that devices need: names, numbers, words, and one level of tables."""
    found: dict[str, Any] = {}
    table = found
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#", 1)[0].strip()
        if not words:
            continue
        if head := re.fullmatch(r"\[(\w+)\]", words):
            table = found.setdefault(head[1], {})
            if not isinstance(table, dict):
                raise InvalidInputError(f"{path}, line {number}: {head[1]} is there twice.")
            continue
        pair = re.fullmatch(r"(\w+)\s*=\s*(.+)", words)
        if pair is None:
            raise InvalidInputError(f"{path}, line {number}: write `name = value`, not {words!r}.")
        if pair[1] in table:
            raise InvalidInputError(f"{path}, line {number}: {pair[1]} is there twice.")
        table[pair[1]] = _value(pair[2], f"{path}, line {number}")
    return found


def _value(text: str, where: str) -> Any:
    if quoted := re.fullmatch(r'"([^"\\]*)"', text):
        return quoted[1]
    for kind in (int, float):
        try:
            value = kind(text.replace("_", ""))
        except ValueError:
            continue
        if math.isfinite(value):
            return value
    raise InvalidInputError(f'{where}: {text!r} is no number and no "word".')


COLUMNS = ("kind", "unit", "applied", "measured")
SATURATED = 0.98
"""States beyond it say little of a neuron's gain."""
STUCK = 0.2
"""A weight that follows what is written by less than this part of the median is stuck."""


@dataclass(frozen=True)
class Measured:
    """One row: a weight written and read back, or a neuron driven and read."""

    kind: str
    unit: str
    applied: float
    measured: float


def measured_device(path: Path, seed: int = 0) -> Device:
    """The device that a table of measurements describes.

    The table is a CSV with the columns ``kind,unit,applied,measured``. A row of kind ``weight`` is
    a weight that was written and what was read back; one of kind ``neuron`` the preactivation that
    was applied to a tanh neuron and the state that was read; ``unit`` names the weight or neuron.

    * Weights, by unit: the slope f of measured against applied. ``stuck`` is the part whose slope
      is below a fifth of the median, ``spread`` the deviation of log f of the others,
      ``write_noise`` the rms of what is left, over the largest weight applied.
    * Neurons, by unit: ``atanh s = g·u + o``. ``neuron_gain`` is the deviation of log g,
      ``neuron_offset`` that of o; ``read_noise`` the rms of repeated readings about their mean, and
      ``states`` the converter whose step is the smallest difference of readings, where values
      repeat.

    Raises:
        InvalidInputError: the table cannot be read, or has too few rows of both kinds.
    """
    rows = _rows(path)
    weights = [r for r in rows if r.kind == "weight"]
    neurons = [r for r in rows if r.kind == "neuron"]
    if not weights and not neurons:
        raise InvalidInputError(f"{path} has no row of kind weight or neuron.")
    return Device(**_of_weights(weights), **_of_neurons(neurons), seed=seed)


def _rows(path: Path) -> list[Measured]:
    text = read_regular(path, LIMIT).decode("utf-8", errors="replace")
    reader = csv.DictReader(io.StringIO(text))
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise InvalidInputError(f"The first line of {path} must be {','.join(COLUMNS)}.")
    found = []
    for number, row in enumerate(reader, start=2):
        try:
            applied, measured = float(row["applied"]), float(row["measured"])
        except (TypeError, ValueError):
            raise InvalidInputError(f"{path}, line {number}: two numbers are needed.") from None
        if row["kind"] not in ("weight", "neuron") or not math.isfinite(applied + measured):
            raise InvalidInputError(
                f"{path}, line {number}: kind is weight or neuron, and numbers are finite."
            )
        found.append(Measured(row["kind"], row["unit"], applied, measured))
    return found


def _by_unit(rows: Iterable[Measured]) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = defaultdict(list)
    for row in rows:
        found[row.unit].append(row)
    return found


def _of_weights(rows: list[Measured]) -> dict[str, Any]:
    slopes = {
        unit: sum(r.applied * r.measured for r in own) / total
        for unit, own in _by_unit(rows).items()
        if (total := sum(r.applied**2 for r in own)) > 0
    }
    if len(slopes) < 2:
        return {}
    middle = median(slopes.values())
    moving = {u: f for u, f in slopes.items() if f > STUCK * middle > 0}
    if not moving:
        raise InvalidInputError("No weight follows what is written: check the columns' order.")
    left = [r.measured - moving[r.unit] * r.applied for r in rows if r.unit in moving]
    largest = max(abs(r.applied) for r in rows)
    return {
        "stuck": 1 - len(moving) / len(slopes),
        "spread": pstdev(math.log(f) for f in moving.values()) if len(moving) > 1 else 0.0,
        "write_noise": math.sqrt(fmean(v * v for v in left)) / largest,
    }


def _of_neurons(rows: list[Measured]) -> dict[str, Any]:
    gains, offsets, left = [], [], []
    for own in _by_unit(rows).values():
        points = [(r.applied, math.atanh(r.measured)) for r in own if abs(r.measured) < SATURATED]
        line = _line(points)
        if line is not None and line[0] > 0:
            gains.append(line[0])
            offsets.append(line[1])
        repeats: dict[float, list[float]] = defaultdict(list)
        for r in own:
            repeats[r.applied].append(r.measured)
        for values in repeats.values():
            if len(values) > 1:  # the mean takes one degree of freedom of each group
                mean, share = fmean(values), len(values) / (len(values) - 1)
                left += [(v - mean) ** 2 * share for v in values]
    if not gains:
        return {}
    found: dict[str, Any] = {
        "neuron_gain": pstdev(map(math.log, gains)) if len(gains) > 1 else 0.0,
        "neuron_offset": pstdev(offsets) if len(offsets) > 1 else 0.0,
        "read_noise": math.sqrt(fmean(left)) if left else 0.0,
    }
    converter = _converter([r.measured for r in rows])
    return found if converter is None else {**found, "states": converter}


def _line(points: list[tuple[float, float]]) -> tuple[float, float] | None:
    """Slope and intercept of least squares; None where there are too few points."""
    if len({u for u, _ in points}) < 2:
        return None
    mean_u, mean_v = fmean(u for u, _ in points), fmean(v for _, v in points)
    square = sum((u - mean_u) ** 2 for u, _ in points)
    slope = sum((u - mean_u) * (v - mean_v) for u, v in points) / square
    return slope, mean_v - slope * mean_u


def _converter(values: list[float]) -> Converter | None:
    distinct = sorted(set(values))
    if len(distinct) < 2 or 2 * len(distinct) > len(values):
        return None
    step = min(b - a for a, b in itertools.pairwise(distinct))
    return Converter(max(1, min(24, round(math.log2(2 / step + 2)))))
