"""Compiled code: the same numbers fresh and from the cache, and no cache is no failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from toreqprop.kernels import compiled_available

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

NOWHERE = """
from numba.core import caching
for kind in (caching.CompileResultCacheImpl, caching.CodeLibraryCacheImpl):
    kind._locator_classes = []
"""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )


def test_the_same_bits_cold_and_warm(tmp_path: Path) -> None:
    cold, warm = (run(TRAIN, tmp_path / "cache").stdout for _ in range(2))
    assert any((tmp_path / "cache").rglob("*.nbc"))  # there was something to be warm from
    assert cold == warm


def test_without_a_place_for_a_cache_it_compiles_and_says_so(tmp_path: Path) -> None:
    found = run(NOWHERE + TRAIN, tmp_path / "cache")
    assert found.stderr.count("Compiled code cannot be kept") == 1
    assert found.stdout == run(TRAIN, tmp_path / "cache").stdout
