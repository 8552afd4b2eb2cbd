"""The README's code runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import toreqprop as teq

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_code_block_runs(code: str) -> None:
    model = teq.LoopedMLP(64, 128, 10)
    names = {
        "x": torch.randn(8, 64),
        "y": torch.randint(0, 10, (8,)),
        "optimizer": torch.optim.Adam(model.parameters()),
    }
    exec(compile(code, str(README), "exec"), names)


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 2


def test_results_table_is_rendered_from_the_measurements() -> None:
    script = README.parent / "scripts" / "update_readme.py"
    result = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
