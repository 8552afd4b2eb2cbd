"""Tables of samples from CSV and NPZ files, refused in one sentence where they cannot be used.

A CSV file names its columns in the first line. An NPZ file holds an array ``x`` (or ``X``) of
shape (n, ...) and the target in an array of its own. Nothing is unpickled.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from toreqprop import checks
from toreqprop.errors import InvalidInputError
from toreqprop.reading import read_regular
from toreqprop.tasks.npz import read_arrays

SUFFIXES = (".csv", ".npz")
FILE_LIMIT = 2**32
"""Bytes of a file that are read."""
LABEL_LIMIT = 1000
"""Characters of a label: all labels of a table take the space of the longest."""
WHOLE = 2**53
"""Up to here every whole number has a float64 of its own."""


@dataclass(frozen=True, eq=False)
class Table:
    """Raw samples: features (n, d) in float64 and, if there is one, a target (n,).

    ``target`` holds the labels as they stand in the file: text from CSV (``007`` and ``7`` are two
    classes), an NPZ array's own numbers or texts. ``numbers`` is the same target as float64, None
    where it is text. ``columns`` are the names of the features, None where the file has none;
    ``sha256`` is the file's digest.
    """

    name: str
    features: np.ndarray
    target: np.ndarray | None
    numbers: np.ndarray | None
    target_name: str
    columns: tuple[str, ...] | None
    sha256: str


def read_table(
    path: Path | str,
    *,
    target: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    needs_target: bool = True,
) -> Table:
    """Read a CSV or NPZ file.

    Args:
        target: the target's column or array; by default the last column, or the array ``y``.
            It is no feature, whether or not it is needed.
        columns: features to use, in this order; by default all columns but target and ``drop``.
        drop: columns to leave out.
        needs_target: whether the target has to be there.

    Raises:
        InvalidInputError: the file is missing, empty or damaged, or a value cannot be used.
    """
    path = checks.path("path", path)
    if target is not None and not isinstance(target, str):
        raise InvalidInputError(f"target must be a name, got {checks.shown(target)}.")
    for names in (columns or (), drop):
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise InvalidInputError("columns and drop must be lists of names.")
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInputError(f"{path} is neither a CSV nor an NPZ file: name it *.csv or *.npz.")
    try:
        content = read_regular(path, FILE_LIMIT)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from None
    if not content:
        raise InvalidInputError(f"{path} is empty.")
    digest = hashlib.sha256(content).hexdigest()
    if path.suffix.lower() == ".npz":
        name = target or "y"
        features, found = _read_npz(path, content, name, needs_target)
        numeric = found is not None and found.dtype.kind != "U"
        numbers = found.astype(np.float64) if found is not None and numeric else None
        return Table(path.name, features, found, numbers, name, None, digest)
    header, rows, lines = _read_rows(path, content)
    places = {column: k for k, column in enumerate(header)}
    name = header[-1] if target is None else target
    for other in (*((name,) if needs_target else ()), *drop, *(columns or ())):
        if other not in places:
            raise _missing(path, other, header)
    left_out = {name, *drop}
    used = [c for c in header if c not in left_out] if columns is None else list(columns)
    if not used:
        raise InvalidInputError(f"{path} has no column beside the target {name!r}.")
    features = _numbers(path, used, [places[c] for c in used], rows, lines)
    if not needs_target:
        return Table(path.name, features, None, None, name, tuple(used), digest)
    cells = [row[places[name]].strip() for row in rows]
    found, numbers = _target(path, name, cells, lines)
    return Table(path.name, features, found, numbers, name, tuple(used), digest)


def _read_rows(path: Path, content: bytes) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, rows, and the line each row ends on."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is not text in UTF-8: save it as CSV UTF-8.") from None
    if "\0" in text:
        raise InvalidInputError(f"{path} has NUL characters and is not text: save it as CSV UTF-8.")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows, lines = [], []
    try:
        header = [name.strip() for name in next(reader, [])]
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise InvalidInputError(
                    f"{path}, line {reader.line_num}: {len(row)} values where the first line names "
                    f"{len(header)} columns{_hint(header)}."
                )
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise InvalidInputError(f"{path}, line {reader.line_num}: not CSV ({error}).") from None
    if not header:
        raise InvalidInputError(f"{path} is empty: its first line has to name the columns.")
    if len(header) == 1 and _hint(header):
        raise InvalidInputError(f"{path} has one column{_hint(header)}.")
    if all(_number(name) is not None for name in header):
        raise InvalidInputError(f"{path} has numbers in its first line, which names the columns.")
    if len(set(header)) < len(header):
        seen: set[str] = set()
        twice = next(name for name in header if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidInputError(f"{path} has two columns called {twice!r}: rename one.")
    if not rows:
        raise InvalidInputError(f"{path} has no rows below its first line.")
    return header, rows, lines


def _hint(header: Sequence[str]) -> str:
    """What to do where a header in one piece holds another separator."""
    for separator, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if len(header) == 1 and separator in header[0]:
            return f"; it is separated by {name}: save it with commas"
    return ""


def _numbers(
    path: Path,
    columns: Sequence[str],
    places: Sequence[int],
    rows: Sequence[Sequence[str]],
    lines: Sequence[int],
) -> np.ndarray:
    """The cells of the columns as float64, (rows, columns)."""
    values = np.empty((len(rows), len(places)))
    for row, line, into in zip(rows, lines, values, strict=True):
        try:
            into[:] = [float(row[k]) for k in places]
        except ValueError:
            into[0] = math.nan
        if np.isfinite(into).all():
            continue
        column, cell = next(
            (c, row[k]) for c, k in zip(columns, places, strict=True) if not _is_finite(row[k])
        )
        where = f"{path}, line {line}: {column!r}"
        if not cell.strip():
            raise InvalidInputError(f"{where} has no value.")
        if _number(cell) is not None:
            raise InvalidInputError(f"{where} is {cell.strip()}; remove such rows or fill them in.")
        raise InvalidInputError(
            f"{where} is {_shown(cell)}, which is not a number; leave the column out with --drop "
            "or give its texts numbers."
        )
    return values


def _target(
    path: Path, name: str, cells: Sequence[str], lines: Sequence[int]
) -> tuple[np.ndarray, np.ndarray | None]:
    """The labels as text, and as float64 where all of them are numbers."""
    numbers = [_number(cell) for cell in cells]
    for cell, number, line in zip(cells, numbers, lines, strict=True):
        where = f"{path}, line {line}: the target {name!r}"
        if not cell:
            raise InvalidInputError(f"{where} has no value.")
        if len(cell) > LABEL_LIMIT:
            raise InvalidInputError(f"{where} has {len(cell)} characters, too long for a label.")
        if number is not None and not math.isfinite(number):
            raise InvalidInputError(
                f"{where} is {cell}, which is not a finite number: remove the row."
            )
    found = np.array(cells)
    return found, None if None in numbers else np.array(numbers, np.float64)


def _read_npz(
    path: Path, content: bytes, target: str, needs_target: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    arrays = read_arrays(path, content, ("x", "X", *((target,) if needs_target else ())))
    features = next((arrays[n] for n in ("x", "X") if n in arrays), None)
    if features is None:
        raise _missing(path, "x", list(arrays))
    if needs_target and target not in arrays:
        raise _missing(path, target, list(arrays))
    if features.ndim < 2 or features.dtype.kind not in "biuf" or 0 in features.shape:
        raise InvalidInputError(
            f"{path}: x must be numbers of shape (samples, features), got {features.dtype} of "
            f"shape {features.shape}."
        )
    features = features.reshape(len(features), -1).astype(np.float64)
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise InvalidInputError(f"{path}: x has NaN or infinite values, first in row {row}.")
    found = arrays[target] if needs_target else None
    if found is None:
        return features, None
    if found.shape != (len(features),) or found.dtype.kind not in "biufU":
        raise InvalidInputError(
            f"{path}: {target} must be numbers or texts of shape ({len(features)},), got "
            f"{found.dtype} of shape {found.shape}."
        )
    return features, _npz_labels(path, target, found)


def _npz_labels(path: Path, target: str, found: np.ndarray) -> np.ndarray:
    """The labels in a type that keeps all of them apart."""
    if found.dtype.kind == "U":
        codes = np.frombuffer(found.tobytes(), np.dtype(np.uint32).newbyteorder(found.dtype.str[0]))
        if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
            raise InvalidInputError(f"{path}: {target} has characters that do not exist.")
        empty = np.flatnonzero(np.char.strip(found) == "")
        if len(empty):
            raise InvalidInputError(f"{path}: {target} has no text in row {empty[0]}.")
        return found
    if found.dtype.kind == "f":
        if not np.isfinite(found).all():
            raise InvalidInputError(f"{path}: {target} has NaN or infinite values.")
        whole = bool(((found == np.round(found)) & (np.abs(found) <= WHOLE)).all())
        return found.astype(np.int64 if whole else np.float64)
    return found.astype(np.uint64 if found.dtype == np.uint64 else np.int64)


def _missing(path: Path, name: str, known: Sequence[str]) -> InvalidInputError:
    shown = ", ".join(text[:60] for text in known[:20]) + (", ..." if len(known) > 20 else "")
    kind = "array" if path.suffix.lower() == ".npz" else "column"
    hint = "" if path.suffix.lower() == ".npz" else _hint(known)
    return InvalidInputError(f"{path} has no {kind} {name!r}; it has {shown}{hint}.")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is_finite(text: str) -> bool:
    number = _number(text)
    return number is not None and math.isfinite(number)


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= 60 else cell[:60] + "...")
