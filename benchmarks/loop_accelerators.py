"""What accelerates the two phases of a looped network, counted in products with its weight.

    python benchmarks/loop_accelerators.py --width 256 --norm 0.95 --steps 60

Free phases: plain iteration, Anderson with two differences, Chebyshev at the rate that was
measured. Nudged phases: plain iteration and conjugate directions. Beside each the mean number of
products a sample takes, and how far from the exact equilibrium (of the shift) it ends. The network
is that of the speed table, after so many training steps.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from toreqprop.bench.speed_rows import Network, build
from toreqprop.energies import DenseEnergy, System
from toreqprop.energies.system import layer_norms, per_sample
from toreqprop.kernels import reference
from toreqprop.solution import State
from toreqprop.solvers import Anderson, FixedPoint, Solver, Trace, solve
from toreqprop.solvers.base import Dynamics

BETA = 0.01


@dataclass(frozen=True)
class Chebyshev(Solver):
    """``s ← ω·(f(s) − s_before) + s_before``, at the rate by which the first residual fell."""

    def step(self, system: Dynamics, state: State, image: State, memory: Any) -> tuple[State, Any]:
        gap = layer_norms(tuple(a - b for a, b in zip(image, state, strict=True)))[:, 0]
        if memory is None:
            return image, (state, gap, None, None)
        before, last, rate, omega = memory
        if rate is None:
            rate = (gap / last).clamp(0, 0.99)
            omega = 2 / (2 - rate**2)
        else:
            omega = 1 / (1 - rate**2 * omega / 4)
        following = tuple(
            per_sample(omega, b) * (f - b) + b for f, b in zip(image, before, strict=True)
        )
        return following, (state, gap, rate, omega)


FREE: dict[str, Solver] = {
    "plain": FixedPoint(max_steps=500),
    "Anderson 2": Anderson(memory=2, max_steps=500),
    "Chebyshev": Chebyshev(max_steps=500),
}


def network(width: int, norm: float, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weight, drive and normalised cotangent of a batch, in double precision."""
    built = build(Network("looped", 64, width, norm=norm, tol=5e-3), 0)
    model: Any = built.model()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(steps):
        x, y = built.draw()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    x, y = built.draw()
    inward, bias, weight = (p.detach().double() for p in model.system_parameters())
    state = model.equilibrium(x).state[0].detach().requires_grad_()
    (slope,) = torch.autograd.grad(F.cross_entropy(model.readout_from((state,)), y), state)
    direction, _ = reference.normalise(slope.double().numpy())
    return weight.numpy(), F.linear(x.double(), inward, bias).numpy(), direction


def rows(width: int, norm: float, steps: int, tol: float) -> list[str]:
    """The table's lines at one tolerance."""
    weight, drive, direction = network(width, norm, steps)
    exact = reference.relax(weight, drive, tol=1e-13, max_steps=20_000)
    limits: dict[str, Any] = {"max_steps": 20_000, "contraction": norm}
    shifts = (weight, drive, BETA * direction, exact.state, exact.product)
    wanted = reference.relax_pair(*shifts, tol=1e-12, **limits)
    found = []
    given, driven = torch.from_numpy(weight), torch.from_numpy(drive)
    params = (given.new_zeros(width, 0), given.new_zeros(width), given)
    x = driven.new_zeros(len(drive), 0)
    system = System(DenseEnergy(), x, params, (driven,), contraction=norm)
    for name, solver in FREE.items():
        trace = Trace()
        ended = solve(system, system.initial_state(), solver.limited(tol=tol), trace=trace)
        products = 1 + (torch.stack(trace.residuals) > tol).sum(0).double().mean()
        found.append(_line("free", name, ended.steps, products, ended.state[0], exact.image))
    for name, conjugate in (("plain", False), ("conjugate", True)):
        record: list[tuple[np.ndarray, np.ndarray]] = []
        pair = reference.relax_pair(*shifts, tol=tol, conjugate=conjugate, record=record, **limits)
        halves = np.stack([half for _, half in record])
        products = (halves[1:] != halves[:-1]).any(2).sum(0).mean()
        found.append(_line("nudged", name, pair.steps, products, pair.shift, wanted.shift))
    return found


def _line(phase: str, name: str, steps: int, products: Any, ended: Any, exact: Any) -> str:
    error = np.linalg.norm(np.asarray(ended) - exact) / np.linalg.norm(exact)
    return f"{phase:7} {name:11} {steps:5} {float(products):9.2f} {error:10.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--norm", type=float, default=0.95)
    parser.add_argument("--steps", type=int, default=60, help="training steps before")
    parser.add_argument("--tol", type=float, nargs="+", default=[5e-3, 1e-3])
    given = parser.parse_args()
    for tol in given.tol:
        print(f"width {given.width}, norm {given.norm}, tol {tol:g}, {given.steps} training steps")
        print("phase   method      steps  products      error")
        print("\n".join(rows(given.width, given.norm, given.steps, tol)))


if __name__ == "__main__":
    main()
