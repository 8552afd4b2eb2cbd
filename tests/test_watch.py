"""Where asking a device makes it wait, relaxations ask seldom, and find the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from toreqprop import tracing
from toreqprop.energies import AveragePooling, MaxPooling
from toreqprop.models import (
    EquilibriumModel,
    EquilibriumTransformer,
    HopfieldConvNet,
    HopfieldMLP,
    LoopedMLP,
)
from toreqprop.solution import Solution, Status
from toreqprop.solvers import Anderson, FixedPoint, GaussSeidel
from toreqprop.solvers.watch import Watch

PACE = 4
BLOCKING = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.is_nonzero.default,
    torch.ops.aten.masked_select.default,
}
READING = {Tensor.tolist, Tensor.numpy, Tensor.cpu, torch.tensor, torch.as_tensor}
"""What brings numbers from a device, or to it, and does not pass the dispatcher on the CPU."""


class Waits:
    """Counts what would wait for a device."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def __enter__(self) -> Waits:
        seen = self.seen

        class Dispatched(TorchDispatchMode):
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                seen[str(func)] += func in BLOCKING
                return func(*args, **(kwargs or {}))

        class Called(TorchFunctionMode):
            def __torch_function__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                seen[str(func)] += func in READING
                return func(*args, **(kwargs or {}))

        self.modes = (Dispatched(), Called())
        for mode in self.modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self.modes):
            mode.__exit__(*error)

    @property
    def total(self) -> int:
        return self.seen.total()


def looped(tol: float) -> EquilibriumModel:
    return LoopedMLP(6, 24, 3, radius=0.95, tol=tol)


def accelerated(tol: float) -> EquilibriumModel:
    solver = Anderson(memory=2)
    return LoopedMLP(6, 24, 3, radius=0.95, tol=tol, solver=solver)


def layered(tol: float) -> EquilibriumModel:
    return HopfieldMLP([6, 16, 12, 3], feedback=1.0, radius=0.95, tol=tol)


def swept(tol: float) -> EquilibriumModel:
    solver = GaussSeidel(order="symmetric")
    return HopfieldMLP([6, 16, 12, 3], feedback=1.0, tol=tol, solver=solver)


def plain(tol: float) -> EquilibriumModel:
    return HopfieldMLP([6, 16, 12, 3], feedback=1.0, tol=tol, solver=FixedPoint(max_steps=400))


def average(tol: float) -> EquilibriumModel:
    pooling = AveragePooling(2)
    return HopfieldConvNet((1, 8, 8), [4, 6], 3, pooling=pooling, feedback=1.0, tol=tol)


def highest(tol: float) -> EquilibriumModel:
    return HopfieldConvNet((1, 8, 8), [4, 6], 3, pooling=MaxPooling(2), tol=tol)


def transformer(tol: float) -> EquilibriumModel:
    return EquilibriumTransformer(5, 4, width=8, layers=2, tol=tol)


NETWORKS: list[Callable[[float], EquilibriumModel]] = [
    looped, accelerated, layered, swept, plain, average, highest, transformer,
]  # fmt: skip


def train(make: Callable[[float], EquilibriumModel], tol: float) -> tuple[Any, dict[str, int], int]:
    """States and gradients of one step in double precision, the steps of its phases, and how often
    it would have waited."""
    torch.manual_seed(0)
    model = make(tol).double()
    model.kernel = "torch"
    batch = 5
    if make is transformer:
        x = torch.randint(0, 5, (batch, 4))
    else:
        x = torch.randn(batch, *((1, 8, 8) if make in (average, highest) else (6,))).double()
    y = torch.randint(0, 3, (batch, 4) if make is transformer else (batch,))
    steps: dict[str, int] = {}
    found: list[Solution] = []

    def note(phase: str, solution: Solution) -> None:
        steps[phase] = solution.steps
        found.append(solution)

    model.register_relaxation_hook(note)
    with Waits() as waits:
        output = model(x)
        loss = F.cross_entropy(output.reshape(-1, output.shape[-1]), y.reshape(-1))
        loss.backward()
    for solution in found:
        assert solution.status is Status.CONVERGED
    results = [output, *(s.residual for s in found), *(p.grad for p in model.parameters())]
    return results, steps, waits.total


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU is treated as a device that makes one wait, and has no compiled code."""
    monkeypatch.setitem(tracing.PACES, "cpu", PACE)
    for module in ("gradients.base", "solvers.relaxation", "energies.couplings.ways"):
        monkeypatch.setattr(f"toreqprop.{module}.is_plain", lambda tensor: False)


@pytest.mark.parametrize("make", NETWORKS)
def test_waits_do_not_grow_with_steps(
    make: Callable[[float], EquilibriumModel], request: pytest.FixtureRequest
) -> None:
    close = [train(make, tol) for tol in (1e-2, 1e-9)]
    request.getfixturevalue("far")
    seldom = [train(make, tol) for tol in (1e-2, 1e-9)]
    for (wanted, steps, _), (found, counted, _) in zip(close, seldom, strict=True):
        assert counted == steps
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    (_, few, least), (_, many, most) = seldom
    looks = sum(-(-many[phase] // PACE) - -(-few[phase] // PACE) for phase in few)
    assert sum(many.values()) >= sum(few.values()) + 2 * PACE  # else nothing is shown
    assert most - least <= looks


def test_asking_seldom_ends_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Converged, diverged and unfinished batches: the same status, steps and frozen samples."""
    ways = {
        "converged": ([[0, 0], [1, 0], [1, 1]], [[1.0, 1.0]] * 3, Status.CONVERGED, 3),
        "diverged": ([[0, 0], [1, 0], [1, 0]], [[1.0, 1.0]] * 2 + [[0.0, torch.inf]],
                     Status.DIVERGED, 3),
        "unfinished": ([[0, 0]] * 10, [[1.0, 1.0]] * 10, Status.MAX_STEPS, 10),
    }  # fmt: skip
    for done, gaps, status, steps in ways.values():
        for pace in (1, 3, 4, 7):
            monkeypatch.setitem(tracing.PACES, "cpu", pace)
            watch = Watch(torch.zeros(2), 10)
            for step in range(10):
                last = min(step, len(done) - 1)
                flags = torch.tensor(done[last]).bool()
                if watch.over(flags, torch.tensor(gaps[last])):
                    break
                frozen = watch.frozen(flags)
                lost = not bool(torch.isfinite(torch.tensor(gaps[last])).all())
                if frozen is not None:
                    assert frozen.tolist() == (flags | lost).tolist()
            assert (watch.status, watch.steps) == (status, steps), pace
            assert step + 1 - steps < pace
