"""Tables of samples from CSV and NPZ files, refused in one sentence where they cannot be used.

A CSV file names its columns in the first line. An NPZ file holds an array ``x`` (or ``X``) of
shape (n, ...) and the target in an array of its own. Nothing is unpickled.
"""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from toreqprop.errors import InvalidInputError

SUFFIXES = (".csv", ".npz")


@dataclass(frozen=True, eq=False)
class Table:
    """Raw samples: features (n, d) in float64 and, if there is one, a target (n,).

    The target is int64 or text for classes and float64 for numbers with a fraction; ``columns``
    are the names of the features, None where the file has none; ``sha256`` is the file's digest.
    """

    name: str
    features: np.ndarray
    target: np.ndarray | None
    target_name: str
    columns: tuple[str, ...] | None
    sha256: str


def read_table(
    path: Path,
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
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInputError(f"{path} is neither a CSV nor an NPZ file: name it *.csv or *.npz.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from None
    if not content:
        raise InvalidInputError(f"{path} is empty.")
    digest = hashlib.sha256(content).hexdigest()
    if path.suffix.lower() == ".npz":
        features, found, name = _read_npz(path, content, target or "y", needs_target)
        return Table(path.name, features, found, name, None, digest)
    header, rows, lines = _read_rows(path, content)
    name = header[-1] if target is None else target
    if needs_target and name not in header:
        raise _missing(path, name, header)
    for other in drop:
        if other not in header:
            raise _missing(path, other, header)
    used = [c for c in header if c != name and c not in drop] if columns is None else columns
    for other in used:
        if other not in header:
            raise _missing(path, other, header)
    if not used:
        raise InvalidInputError(f"{path} has no column beside the target {name!r}.")
    cells = {c: [row[k] for row in rows] for k, c in enumerate(header)}
    features = np.stack([_numbers(path, c, cells[c], lines) for c in used], axis=1)
    found = _target(path, name, cells[name], lines) if name in header and needs_target else None
    return Table(path.name, features, found, name, tuple(used), digest)


def parse_labels(cells: Sequence[str]) -> np.ndarray:
    """Text as int64 if all of it are whole numbers, as float64 if all are numbers, else as text."""
    text = np.array([cell.strip() for cell in cells])
    try:
        numbers = text.astype(np.float64)
    except ValueError:
        return text
    if np.isfinite(numbers).all() and (numbers == np.round(numbers)).all():
        return numbers.astype(np.int64)
    return numbers


def _read_rows(path: Path, content: bytes) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, rows, and the line each row ends on."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is not text in UTF-8: save it as CSV UTF-8.") from None
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
                    f"{len(header)} columns."
                )
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise InvalidInputError(f"{path}, line {reader.line_num}: not CSV ({error}).") from None
    if not header:
        raise InvalidInputError(f"{path} is empty: its first line has to name the columns.")
    if all(_is_number(name) for name in header):
        raise InvalidInputError(f"{path} has numbers in its first line, which names the columns.")
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise InvalidInputError(f"{path} has two columns called {min(twice)!r}: rename one.")
    if not rows:
        raise InvalidInputError(f"{path} has no rows below its first line.")
    return header, rows, lines


def _numbers(path: Path, column: str, cells: Sequence[str], lines: Sequence[int]) -> np.ndarray:
    try:
        values = np.array(cells).astype(np.float64)
    except ValueError:
        for cell, line in zip(cells, lines, strict=True):
            if not cell.strip():
                raise InvalidInputError(f"{path}, line {line}: {column!r} has no value.") from None
            if not _is_number(cell):
                raise InvalidInputError(
                    f"{path}, line {line}: {column!r} is {cell!r}, which is not a number; leave "
                    f"the column out with --drop or give its texts numbers."
                ) from None
        raise
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise InvalidInputError(
            f"{path}, line {lines[wrong[0]]}: {column!r} is {cells[wrong[0]].strip()}; remove such "
            "rows or fill them in."
        )
    return values


def _target(path: Path, name: str, cells: Sequence[str], lines: Sequence[int]) -> np.ndarray:
    for cell, line in zip(cells, lines, strict=True):
        if cell.strip().lower() in ("", "nan", "inf", "-inf"):
            shown = f"is {cell.strip()}" if cell.strip() else "has no value"
            raise InvalidInputError(f"{path}, line {line}: the target {name!r} {shown}.")
    return parse_labels(cells)


def _read_npz(
    path: Path, content: bytes, target: str, needs_target: bool
) -> tuple[np.ndarray, np.ndarray | None, str]:
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise InvalidInputError(f"{path} cannot be read as NPZ: it is damaged or no NPZ file.")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            names = list(archive.files)
            key = next((n for n in ("x", "X") if n in names), None)
            features = None if key is None else archive[key]
            found = archive[target] if needs_target and target in names else None
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        reason = "it holds Python objects" if "Object arrays" in str(error) else "it is damaged"
        raise InvalidInputError(f"{path} cannot be read as NPZ: {reason}.") from None
    if features is None:
        raise _missing(path, "x", names)
    if needs_target and found is None:
        raise _missing(path, target, names)
    if features.ndim < 2 or features.dtype.kind not in "biuf" or 0 in features.shape:
        raise InvalidInputError(
            f"{path}: x must be numbers of shape (samples, features), got {features.dtype} of "
            f"shape {features.shape}."
        )
    features = features.reshape(len(features), -1).astype(np.float64)
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise InvalidInputError(f"{path}: x has NaN or infinite values, first in row {row}.")
    if found is None:
        return features, None, target
    if found.shape != (len(features),) or found.dtype.kind not in "biufU":
        raise InvalidInputError(
            f"{path}: {target} must be numbers or texts of shape ({len(features)},), got "
            f"{found.dtype} of shape {found.shape}."
        )
    if found.dtype.kind == "f":
        if not np.isfinite(found).all():
            raise InvalidInputError(f"{path}: {target} has NaN or infinite values.")
        whole = bool((found == np.round(found)).all())
        return features, found.astype(np.int64 if whole else np.float64), target
    return features, found if found.dtype.kind == "U" else found.astype(np.int64), target


def _missing(path: Path, name: str, known: Sequence[str]) -> InvalidInputError:
    shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    kind = "array" if path.suffix.lower() == ".npz" else "column"
    return InvalidInputError(f"{path} has no {kind} {name!r}; it has {shown}.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
