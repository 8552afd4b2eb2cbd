"""Anderson acceleration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.solution import State
from toreqprop.solvers.base import Dynamics, Solver


@dataclass(frozen=True)
class Anderson(Solver):
    """Extrapolate from the last few residuals, for each sample on its own.

    ``γ = argmin ‖r − ΔR γ‖``, ``s ← s + r − (ΔS + ΔR) γ`` over ``memory`` past differences, in the
    norm of `Dynamics.metric`. That of an energy counts every layer by its temperature: there the
    map and passes down and up are self-adjoint, so that few differences serve as well as many.
    Fewer evaluations than `FixedPoint` where the contraction is weak, more work for each.
    One dense layer with an energy, and stacks of them, compiled code extrapolates to where that is
    smallest: by conjugate gradients, with the same residual at the end.
    ``inner`` is the method whose evaluations are extrapolated, its own tolerance unused: by default
    the plain map, and ``GaussSeidel()`` sweeps for deep layered systems.

    Next to a bifurcation residuals line up, and what is extrapolated from them may be anything.
    Where it is ``careful``, a sample whose residual has grown takes a plain step next, and no ``γ``
    is larger than `LARGEST`: for maps that contract but bend, as attention does. One that does not
    contract may need the extrapolation to arrive at all.
    """

    memory: int = 4
    inner: Solver | None = None
    careful: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole_number("memory", self.memory, 1)
        checks.flag("careful", self.careful)
        if self.inner is not None:
            checks.instance("inner", self.inner, Solver, "use GaussSeidel()")

    @property
    def plain(self) -> bool:  # type: ignore[override]
        return self.inner is None or self.inner.plain

    def evaluate(self, system: Dynamics, state: State) -> State:
        return system.map(state) if self.inner is None else self.inner.evaluate(system, state)

    def init(self, system: Dynamics, state: State) -> tuple[Tensor, ...]:
        return ()

    def step(
        self, system: Dynamics, state: State, image: State, memory: tuple[Tensor, ...]
    ) -> tuple[State, tuple[Tensor, ...]]:
        point = _flatten(state)
        gap = _flatten(image) - point
        if not memory:
            return image, (point, gap)
        last_point, last_gap, *history = memory
        moves = torch.stack([point - last_point], 1)
        changes = torch.stack([gap - last_gap], 1)
        if history:
            moves = torch.cat([moves, history[0][:, : self.memory - 1]], 1)
            changes = torch.cat([changes, history[1][:, : self.memory - 1]], 1)
        weight = _weights(system, image)
        weighed = changes * weight.unsqueeze(1)
        adjoint = weighed.conj()  # holomorphic phases are complex
        gram = adjoint @ weighed.mT
        # A ridge at rounding level keeps the small system solvable when residuals line up.
        trace = gram.diagonal(dim1=1, dim2=2).sum(1).real
        trace = trace.clamp_min(torch.finfo(gram.dtype).tiny)
        ridge = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
        gram = gram + ridge * (10 * torch.finfo(gram.dtype).eps * trace)[:, None, None]
        target = adjoint @ (gap * weight).unsqueeze(2)
        gamma, failed = torch.linalg.solve_ex(gram, target)
        sane = failed == 0
        if self.careful:
            fell = torch.linalg.vector_norm(gap, dim=1) <= torch.linalg.vector_norm(last_gap, dim=1)
            sane = sane & fell & (gamma.abs() < LARGEST).flatten(1).all(1)
        gamma = torch.where(sane[:, None, None], gamma, 0.0).nan_to_num(0.0, 0.0, 0.0)
        proposal = point + gap - ((moves + changes).mT @ gamma).squeeze(2)
        return _restore(proposal, state), (point, gap, moves, changes)


LARGEST = 1e3
"""Shares beyond it are made of residuals that line up."""


def _weights(system: Dynamics, image: State) -> Tensor:
    """What each neuron's residual is multiplied with, (batch or 1, neurons)."""
    unit = system.metric(image)
    return torch.cat(
        [unit[:, p : p + 1].to(s.dtype).expand(-1, s[0].numel()) for p, s in enumerate(image)], 1
    )


def _flatten(state: State) -> Tensor:
    return torch.cat([s.flatten(1) for s in state], 1)


def _restore(flat: Tensor, like: State) -> State:
    parts = flat.split([s[0].numel() for s in like], 1)
    return tuple(p.reshape(s.shape) for p, s in zip(parts, like, strict=True))
