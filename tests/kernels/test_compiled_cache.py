"""Compiled code: the same numbers fresh and from the cache, and no cache is no failure."""

from __future__ import annotations

import io
import os
import platform
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from toreqprop.kernels import compiled_available, pytorch_products

pytestmark = pytest.mark.skipif(not compiled_available(), reason="Numba is not installed")

TRAIN = """
import hashlib
import torch
torch.set_num_threads(1)
import toreqprop as teq
torch.manual_seed(0)
model = teq.LoopedMLP(16, 48, 4, radius=0.9)
with torch.no_grad():
    model.recurrent.raw.mul_(20)
x, y = torch.randn(64, 16), torch.randint(0, 4, (64,))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(20):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
content = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print(hashlib.sha256(content).hexdigest())
"""

ONE_LOOP = """
import numpy as np
from toreqprop.kernels.vectors import distances
a, b = np.sqrt(np.arange(2.0, 42.0, dtype=np.float32)).reshape(2, 2, 10)
print(*(value.hex() for value in distances(a, b, a)))
"""
"""The least that compiles something: two distances."""

OTHER = {"NUMBA_CPU_NAME": "generic"} if platform.machine() == "x86_64" else {}
"""Settings that make Numba compile for the oldest processor of this kind."""

NOWHERE = """
from numba.core import caching
for kind in (caching.CompileResultCacheImpl, caching.CodeLibraryCacheImpl):
    kind._locator_classes = []
"""


IN_A_WORKER = """
import multiprocessing, sys
import numba, torch  # once for both
worker = multiprocessing.get_context("fork").Process(target=exec, args=(LOAD, {}))
worker.start()
worker.join()
print("the worker ended with", worker.exitcode, file=sys.stderr)
exec(LOAD)
"""


def run(code: str, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), **settings}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )


def here(code: str) -> str:
    """What the code prints in this process, whose loops are compiled for this processor."""
    said = io.StringIO()
    with redirect_stdout(said):
        exec(code, {})
    return said.getvalue()


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What a training gives whose code is compiled for it, and where that code is kept."""
    folder = tmp_path_factory.mktemp("cache")
    found = run(TRAIN, folder, **OTHER)
    assert found.stderr.count("Compiling the loops") == 1  # a newcomer is told why it takes a while
    return found.stdout, folder


def test_the_same_bits_cold_and_warm(cold: tuple[str, Path]) -> None:
    said, folder = cold
    assert any(folder.rglob("*.nbc"))  # there is something to be warm from
    warm = run(TRAIN, folder, **OTHER)
    assert (warm.stdout, warm.stderr) == (said, "")


def test_the_same_bits_on_another_processor(cold: tuple[str, Path]) -> None:
    """What is compiled for another processor rounds as what is compiled for this one. Products of
    one's own are made for this one alone: there both multiply with PyTorch's."""
    with pytorch_products():
        assert here(TRAIN) == cold[0]


def test_a_home_that_cannot_be_written(cold: tuple[str, Path], tmp_path: Path) -> None:
    """Not even root writes below /proc; the command trains all the same, without compiling."""
    command = [sys.executable, "-m", "toreqprop", "train", "digits", "--epochs", "1"]
    homeless = {
        "NUMBA_CACHE_DIR": str(cold[1]), "HOME": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere",
    }  # fmt: skip
    found = subprocess.run(
        [*command, "--hidden", "8", "--kernel", "torch"],
        env={**os.environ, **homeless, **OTHER}, cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "Traceback" not in found.stderr


def test_without_a_place_for_a_cache_it_compiles_and_says_so(tmp_path: Path) -> None:
    found = run(NOWHERE + ONE_LOOP, tmp_path)
    assert found.stderr.count("Compiled code cannot be kept") == 1
    assert "Compiling the loops for this processor, which takes seconds: in this" in found.stderr
    assert found.stdout == here(ONE_LOOP)


def test_workers_do_not_say_it_again(tmp_path: Path) -> None:
    load = NOWHERE + "import toreqprop.kernels.loops"
    said = run(f"LOAD = {load!r}" + IN_A_WORKER, tmp_path).stderr
    worker, parent = said.split("the worker ended with 0\n")
    assert worker == ""
    assert "cannot be kept" in parent


def test_code_is_kept_by_the_text_of_every_file() -> None:
    """A function holds compiled code of other files: a change in any of them must be seen."""
    from toreqprop.kernels import chain_phases, compiling, vectors

    kept = {f._cache._cache_file._source_stamp for f in (chain_phases.relax, vectors.distances)}
    assert kept == {compiling._sources()}
