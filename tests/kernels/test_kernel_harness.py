"""The harness accepts every shipped kernel and rejects wrong ones."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from toreqprop.kernels import KERNELS, Kernel, _build, compiled_available, get_kernel
from toreqprop.kernels.reference_kernel import NumpyKernel
from toreqprop.solution import Solution
from toreqprop.verify import harness

SHAPES = ((1, 5, 3, 2), (7, 12, 33, 4), (32, 64, 128, 10))


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def results():
    return harness.compare_all(chosen=harness.cases(SHAPES, seeds=(0, 1)))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", harness.BOUNDS)
def test_every_kernel_agrees_with_the_reference(results, name, dtype):
    if name == "numba" and not compiled_available():
        pytest.skip("Numba is not installed")
    mine = [r for r in results if r.kernel == name and r.case.dtype == dtype]
    assert len(mine) == len(SHAPES) * 2 * 2
    worst = max(mine, key=lambda r: r.maximum)
    assert worst.passed, (worst.case, worst.maximum, worst.quantities)


def test_every_step_of_every_phase_is_compared(results):
    table = harness.per_step_table(results)
    for phase in ("free", "center", "shift", "oriented"):
        steps = [f"{phase} {k}" for k in range(1, harness.FIXED_STEPS + 1)]
        assert all(set(steps) <= set(rows) for rows in table.values())
    assert {"output", "energy", "x", "W_in", "b", "W_rec"} <= set(results[0].quantities)


def test_results_are_plain_data(results):
    assert json.loads(json.dumps(results[0].as_dict()))["passed"] is True


class Wrong(Kernel):
    """The reference with one fault, put in by the test."""

    name = "wrong"

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.right = NumpyKernel()

    def relax(self, weight: Tensor, drive: Tensor, start, **rest) -> Solution:
        weight, drive, rest = self._spoil(weight, drive, rest)
        return self.right.relax(weight, drive, start, **rest)

    def relax_pair(self, weight: Tensor, drive: Tensor, push: Tensor, memory, **rest) -> Solution:
        weight, drive, rest = self._spoil(weight, drive, rest)
        push = -push if self.fault == "sign of the nudge" else push
        found = self.right.relax_pair(weight, drive, push, memory, **rest)
        if self.fault == "shift too large":
            return replace(found, shift=(1.001 * found.shift[0],))
        return found

    def _spoil(self, weight: Tensor, drive: Tensor, rest: dict) -> tuple[Tensor, Tensor, dict]:
        if self.fault == "transposed":
            weight = weight.mT.contiguous()
        if self.fault == "sign of the drive":
            drive = -drive
        if self.fault == "one step less":
            rest = {**rest, "max_steps": rest["max_steps"] - 1}
        if self.fault == "content too soon":
            rest = {**rest, "tol": 10 * rest["tol"]}
        return weight, drive, rest


@pytest.mark.parametrize(
    "fault",
    [
        "sign of the drive",
        "sign of the nudge",
        "shift too large",
        "transposed",
        "one step less",
    ],
)
@pytest.mark.parametrize("dtype", harness.BOUNDS)
def test_a_wrong_kernel_fails(fault, dtype):
    case = harness.Case(dtype, (7, 12, 33, 4), 0, 1e-300, harness.FIXED_STEPS)
    assert harness.compare(Wrong("none"), case).passed
    assert not harness.compare(Wrong(fault), case).passed


@pytest.mark.parametrize("dtype", harness.BOUNDS)
def test_to_converge_earlier_counts_by_what_is_missing(dtype):
    case = harness.Case(dtype, (7, 12, 33, 4), 0, 1e-3, 100)
    assert harness.compare(Wrong("none"), case).passed
    found = harness.compare(Wrong("content too soon"), case)
    assert np.inf > found.maximum > 10 * found.bound


def test_rounding_decides_no_stop():
    """A tolerance that is a residual itself, to rounding, is left for the next one."""
    case = harness.Case("float32", (7, 12, 33, 4), 0, harness.TOLERANCES[0], 400)
    chosen = harness.decided(case)
    params, x, target = harness._draw(case)
    settings = harness.reference.Settings(0.1, chosen.tol, 400, 0.9)
    residual = harness.reference.training_step(params, x, target, settings).free.residual
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness, "TOLERANCES", (float(residual.max()), chosen.tol))
        harness.decided.cache_clear()
        assert harness.decided(replace(case, tol=1.0)).tol == chosen.tol
    harness.decided.cache_clear()


@pytest.mark.parametrize("kernel_first", [True, False], ids=["kernel", "reference"])
def test_a_shorter_path_counts_only_if_it_converged(kernel_first):
    near, far = np.zeros((1, 2)), np.full((1, 2), 0.25)

    def worst(converged):
        short = {name: harness.Path([near], converged) for name in harness.PHASES}
        long = {name: harness.Path([near, far], True) for name in harness.PHASES}
        pair = (short, long) if kernel_first else (long, short)
        return max(step.error for step in harness._state_errors(*pair))

    assert worst(True) == 0.25
    assert worst(False) == np.inf


def test_the_registry_names_what_it_has():
    with pytest.raises(ValueError, match="auto, numpy, torch, numba"):
        get_kernel("cuda")
    assert get_kernel("numpy").name == "numpy"


def test_without_numba_one_line_says_so(monkeypatch, caplog):
    monkeypatch.setattr("toreqprop.kernels.compiled_available", lambda: False)
    _build.cache_clear()
    try:
        with caplog.at_level("WARNING", logger="toreqprop"):
            found = {get_kernel(name) for name in ("auto", "numba", "auto")}
        assert found == {None}  # the general path
        assert len(caplog.records) == 1
        assert "pip install 'toreqprop[compiled]'" in caplog.text
    finally:
        _build.cache_clear()
