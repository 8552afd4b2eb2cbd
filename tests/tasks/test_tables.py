"""Tables from files: what is read, and the one sentence for each way a file can be wrong."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toreqprop.errors import InvalidInputError
from toreqprop.tasks.tables import parse_labels, read_table

GOOD = "a,b,kind\n1,2.5,x\n3,-4e1,y\n"


def write(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def test_csv(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "\ufeff" + GOOD + "\n"))
    assert table.columns == ("a", "b")
    assert table.target_name == "kind"
    assert table.features.tolist() == [[1, 2.5], [3, -40]]
    assert table.target is not None
    assert table.target.tolist() == ["x", "y"]
    first = read_table(write(tmp_path, GOOD), target="a", drop=["kind"])
    assert first.columns == ("b",)
    assert first.target is not None
    assert first.target.dtype == np.int64


def test_quotes_and_other_columns(tmp_path: Path) -> None:
    path = write(tmp_path, 'note,b,a\n"one, two",2,1\r\n"three\nfour",4,3\r\n')
    table = read_table(path, columns=["a", "b"], target="kind", needs_target=False)
    assert table.features.tolist() == [[1, 2], [3, 4]]
    assert table.target is None


def test_labels() -> None:
    assert parse_labels(["1", "2.0", " 3"]).tolist() == [1, 2, 3]
    assert parse_labels(["1", "2.5"]).dtype == np.float64
    assert parse_labels(["1", "two"]).tolist() == ["1", "two"]


WRONG_CSV: list[tuple[str | bytes, dict[str, Any], str]] = [
    ("", {}, "is empty"),
    ("\n\n", {}, "is empty"),
    ("a,b\n", {}, "no rows"),
    ("a,b\n1,2\n3\n", {}, "line 3: 1 values where the first line names 2"),
    ("a,b\n1,2,3\n", {}, "line 2: 3 values"),
    ("a,b\n1,2\n", {"target": "c"}, "no column 'c'; it has a, b"),
    ("a,b\n1,2\n", {"drop": ["c"]}, "no column 'c'"),
    ("a,b\n1,2\n", {"columns": ["a", "z"]}, "no column 'z'"),
    ("a,b\n1,2\nred,3\n", {}, "line 3: 'a' is 'red', which is not a number"),
    ("a,b\n1,2\n,3\n", {}, "line 3: 'a' has no value"),
    ("a,b\n1,2\nnan,3\n", {}, "line 3: 'a' is nan"),
    ("a,b\n-inf,3\n", {}, "line 2: 'a' is -inf"),
    ("a,b\n1,\n", {}, "target 'b' has no value"),
    ("a,b\n1,NaN\n", {}, "target 'b' is NaN"),
    ("a,a\n1,2\n", {}, "two columns called 'a'"),
    ("1,2\n3,4\n", {}, "numbers in its first line"),
    ("b\n1\n", {}, "no column beside the target"),
    ('a,b\n"1,2\n', {}, "not CSV"),
    (b"a,b\n\xff\xfe,2\n", {}, "not text in UTF-8"),
]


@pytest.mark.parametrize(("content", "options", "message"), WRONG_CSV)
def test_wrong_csv(
    tmp_path: Path, content: str | bytes, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_table(write(tmp_path, content), **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_npz(tmp_path: Path) -> None:
    images = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    content = npz(X=images, y=np.array([0.0, 1.0, 0.0]), names=np.array(["u", "v", "u"]))
    path = write(tmp_path, content, "data.npz")
    table = read_table(path)
    assert table.features.shape == (3, 4)
    assert table.columns is None
    assert table.target is not None
    assert table.target.tolist() == [0, 1, 0]
    named = read_table(path, target="names")
    assert named.target is not None
    assert named.target.tolist() == ["u", "v", "u"]
    assert read_table(path, target="nowhere", needs_target=False).target is None


GOOD_X = np.ones((2, 3))
WRONG_NPZ: list[tuple[bytes, str]] = [
    (b"", "is empty"),
    (b"not a zip file", "damaged"),
    (npz(x=GOOD_X, y=np.zeros(2))[:-30], "damaged"),
    (npz(x=np.array([{}, {}], dtype=object), y=np.zeros(2)), "Python objects"),
    (npz(y=np.zeros(2)), "no array 'x'; it has y"),
    (npz(x=GOOD_X), "no array 'y'; it has x"),
    (npz(x=np.ones(3), y=np.zeros(3)), "shape (samples, features)"),
    (npz(x=np.ones((0, 3)), y=np.zeros(0)), "shape (samples, features)"),
    (npz(x=np.array([["a"]]), y=np.zeros(1)), "must be numbers"),
    (npz(x=np.array([[1.0], [np.nan]]), y=np.zeros(2)), "NaN or infinite values, first in row 1"),
    (npz(x=GOOD_X, y=np.zeros(3)), "of shape (2,)"),
    (npz(x=GOOD_X, y=np.array([0.0, np.inf])), "y has NaN"),
]


@pytest.mark.parametrize(("content", "message"), WRONG_NPZ)
def test_wrong_npz(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_table(write(tmp_path, content, "data.npz"))
    assert message in str(caught.value)


def test_missing_files_and_other_kinds(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="No such file"):
        read_table(tmp_path / "absent.csv")
    with pytest.raises(InvalidInputError, match="neither a CSV nor an NPZ"):
        read_table(write(tmp_path, GOOD, "data.txt"))
