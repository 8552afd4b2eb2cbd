"""What the tests compile, compiled once, before the workers of a parallel run start.

Each worker, and each program that tests start, would compile it for itself otherwise, at the same
time as the others. Two processes share it instead, one for each type of number.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import torch
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.errors import UnsupportedModelError
from toreqprop.kernels import compiled_available
from toreqprop.models import MODELS

TYPES = {"float32": torch.float32, "float64": torch.float64}


def is_kept() -> bool:
    """Whether the largest of the loops, of each type of number, is in the cache."""
    from toreqprop.kernels import whole_stack

    kept = getattr(getattr(whole_stack.backward, "_cache", None), "_cache_file", None)
    return kept is not None and len(kept._load_index()) >= len(TYPES)


def compile_all() -> None:
    """Unless it has been done. What cannot be compiled is left for the tests to find."""
    if not compiled_available() or is_kept():
        return
    command, root = [sys.executable, "-m", "tests.compiling"], Path(__file__).parents[1]
    started = [subprocess.Popen([*command, name], cwd=root) for name in TYPES]
    for process in started:
        process.wait()


def run(name: str) -> None:
    """One step of every kind of model: its phases, its balls and their derivatives."""
    torch.set_num_threads(1)
    kinds = [(kind, options) for kind in MODELS for options in MODELS[kind].variants]
    kinds += [(kind, {"bound": "proven"}) for kind in ("looped", "transformer")]
    warnings.simplefilter("ignore")
    # From both ends: two processes that keep the same function do so at different times.
    for kind, options in kinds if name == "float32" else reversed(kinds):
        model, x, y = MODELS[kind].example(**options)
        model.to(TYPES[name])
        x = x.to(TYPES[name]) if x.is_floating_point() else x
        for gradient in (model.gradient, teq.CenteredEP()):
            model.gradient = gradient
            with suppress(UnsupportedModelError):  # CenteredEP needs an energy
                F.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()


if __name__ == "__main__":
    run(sys.argv[1])
