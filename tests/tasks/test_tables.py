"""Tables from files: what is read, and the one sentence for each way a file can be wrong."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy

from toreqprop.errors import InvalidInputError
from toreqprop.tasks import npz as archives
from toreqprop.tasks.tables import read_table

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
    assert first.target.tolist() == ["1", "3"]
    assert first.numbers is not None
    assert first.numbers.tolist() == [1, 3]


def test_quotes_and_other_columns(tmp_path: Path) -> None:
    path = write(tmp_path, 'note,b,a\n"one, two",2,1\r\n"three\nfour",4,3\r\n')
    table = read_table(path, columns=["a", "b"], target="kind", needs_target=False)
    assert table.features.tolist() == [[1, 2], [3, 4]]
    assert table.target is None


def test_labels_of_a_csv_file_are_text_as_it_stands_there(tmp_path: Path) -> None:
    labels = ["007", "07", "7", "7.0", str(2**53), str(2**53 + 1), str(2**63), str(2**64)]
    rows = "".join(f"1,{label}\n" for label in labels)
    table = read_table(write(tmp_path, "a,kind\n" + rows))
    assert table.target is not None
    assert table.target.tolist() == labels
    assert len(np.unique(table.target)) == len(labels)
    assert table.numbers is not None
    assert table.numbers.tolist() == [float(label) for label in labels]
    mixed = read_table(write(tmp_path, "a,kind\n1,1\n1, two \n"))
    assert mixed.numbers is None
    assert mixed.target is not None
    assert mixed.target.tolist() == ["1", "two"]


@pytest.mark.parametrize(
    "labels",
    [
        np.array([2**53, 2**53 + 1, 2**53 + 2]),
        np.array([2**63, 2**63 + 1, 5], np.uint64),
        np.array([2.0**53, 2.0**63, 2.0**64]),
        np.array([True, False, True]),
        np.array(["007", "07", "7"]),
        np.array(["007", "07", "7"], ">U3"),
    ],
    ids=["beyond-2**53", "beyond-2**63", "float", "bool", "text", "big-endian"],
)
def test_labels_of_an_npz_file_stay_apart(tmp_path: Path, labels: np.ndarray) -> None:
    table = read_table(write(tmp_path, npz(x=np.ones((3, 2)), y=labels), "data.npz"))
    assert table.target is not None
    assert table.target.tolist() == labels.tolist()


def test_a_million_columns_are_read_at_once(tmp_path: Path) -> None:
    """Quadratic checks of the header would take days; every cell is looked at a few times."""
    count = 1_000_000
    header = ",".join(f"c{k}" for k in range(count))
    path = write(tmp_path, f"{header}\n{','.join(['1'] * count)}\n{','.join(['2'] * count)}\n")
    table = read_table(path, drop=["c5"])
    assert table.features.shape == (2, count - 2)
    twice = write(tmp_path, f"{header},c7\n")
    with pytest.raises(InvalidInputError, match="two columns called 'c7'"):
        read_table(twice)


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
    ("a,b\n1,2\n1,Infinity\n", {}, "line 3: the target 'b' is Infinity, which is not a finite"),
    ("a,b\n1,1e400\n", {}, "line 2: the target 'b' is 1e400, which is not a finite number"),
    ("a,b\n1e999,1\n", {}, "line 2: 'a' is 1e999; remove such rows"),
    ("a;b\n1;2\n", {}, "one column; it is separated by semicolons: save it with commas"),
    ("a;b\n1,5;2,5\n", {}, "separated by semicolons"),
    ("a\tb\n1\t2\n", {"target": "b"}, "separated by tabs"),
    ("a,b\n1,x\0\n1,x\n", {}, "NUL characters"),
    ("a,b\n1," + "x" * 2000 + "\n", {}, "2000 characters, too long for a label"),
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


def packed(name: str, content: bytes, **options: Any) -> bytes:
    """An NPZ with a good ``x`` (or none) and one array of any bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", **options) as archive:
        if name != "x.npy":
            with archive.open("x.npy", "w") as file:
                np.save(file, np.ones((2, 3)))
        archive.writestr(name, content)
    return stream.getvalue()


def announcing(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    """An NPZ whose ``x`` has a header for this shape and 48 bytes of data."""
    stream = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(stream, header)  # type: ignore[arg-type]
    return packed("x.npy", stream.getvalue() + bytes(48))


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
    (npz(x=GOOD_X, y=np.array(["a", " "])), "y has no text in row 1"),
    (announcing((10**12, 10**6)), "announces an array of shape (1000000000000, 1000000)"),
    (announcing((10**12,), "<U0"), "damaged"),
    (announcing((-1, 2)), "damaged"),
    (packed("y.npy", b"\x93NUMPY\x01\x00\xff\xff"), "damaged"),
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


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "UNPACKED_LIMIT", 2**20)
    content = packed("x.npy", bytes(2**24), compression=zipfile.ZIP_DEFLATED)
    assert len(content) < 2**16
    with pytest.raises(InvalidInputError, match="x unpacks to 16,777,216 bytes, more than the"):
        read_table(write(tmp_path, content, "data.npz"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes and devices")
def test_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.npz").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zero.npz"):
        with pytest.raises(InvalidInputError, match="a pipe or a device"):
            read_table(tmp_path / name)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InvalidInputError, match="Is a directory"):
        read_table(tmp_path / "folder.csv")
    (tmp_path / "linked.csv").symlink_to(write(tmp_path, GOOD))
    assert read_table(tmp_path / "linked.csv").columns == ("a", "b")
