"""Track 7: where plain iteration ends when nothing makes it contract, and what that is called."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from torch import Tensor

from toreqprop.gradients import CenteredEP
from toreqprop.models import LoopedMLP
from toreqprop.models.base import KernelName
from toreqprop.solution import Status
from toreqprop.solvers import FixedPoint
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Figure, Measurements, Series, Table
from toreqprop.verify.mutations import plantable
from toreqprop.verify.probes import exact, gradients, least_cosine, mean
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

HIDDEN, INPUTS, CLASSES = 12, 6, 3
TOL = 1e-6
NORMS = (0.9, 1.5, 2.5)
GENERAL = 2
KINDS = ("symmetric", "swinging", "rotating", "slow")
LONGER = 10_000
"""Steps that NumPy takes to see where a network ends."""

WANTED = {"rest": Status.CONVERGED, "swing": Status.CYCLING, "neither": Status.MAX_STEPS}


@plantable
def run(context: Context) -> Measurements:
    networks, samples, steps = context.level.pick((1, 8, 1000), (2, 8, 1500), (2, 12, 2000))
    counts: Counter[tuple[str, float, str, str, str]] = Counter()
    cosines: list[float] = []
    for seed in context.seeds:
        context.report(f"networks, seed {seed}")
        for number in range(networks):
            generator = torch.Generator().manual_seed(1000 * seed + number)
            x = torch.randn(samples, INPUTS, dtype=torch.float64, generator=generator)
            for kind in KINDS:
                for norm in NORMS if kind == "symmetric" else (1.5,):
                    weight = _weight(kind, norm, generator)
                    # A swing that dies out by a twentieth a step, and too few steps to see it.
                    limit = 40 if kind == "slow" else steps
                    for kernel in _kernels(kind):
                        model = _model(weight, kernel, limit, kind != "rotating")
                        # The general path is slow; a few samples show that it says the same.
                        rows = x[: GENERAL if kernel == "torch" else None]
                        for row, truth in zip(
                            rows.split(1), _by_numpy(model, rows, limit), strict=True
                        ):
                            said = _said(context, model, row)
                            counts[kind, norm, truth[0], truth[1], said] += 1
                    if kind == "swinging":
                        cosines.append(_damped(model, x, generator))
    wrong = sum(n for (_, _, now, _, said), n in counts.items() if said != WANTED[now].name)

    def ended(end: str, *kinds: str) -> int:
        return sum(n for (k, _, _, e, _), n in counts.items() if k in kinds and e == end)

    cycling = [
        mean([e == "cycle" for (k, r, _, e, _), n in counts.items() for _ in range(n)
              if k == "symmetric" and r == norm])
        for norm in NORMS
    ]  # fmt: skip
    return Measurements(
        {
            "relaxations": sum(counts.values()),
            "wrong": wrong,
            "longer_cycles": ended("neither", "symmetric", "swinging"),
            "cycles": ended("cycle", "symmetric", "swinging"),
            "rests": ended("rest", "symmetric"),
            "rotations": ended("neither", "rotating"),
            "slow": sum(n for (k, _, now, end, _), n in counts.items()
                        if k == "slow" and (now, end) == ("neither", "rest")),
            "dying": sum(n for (_, _, now, end, _), n in counts.items()
                         if (now, end) == ("swing", "rest")),
            "below_one": cycling[0],
            "damped_cosine": min(cosines),
        },
        tables=(
            Table(
                "Endings of single samples: what NumPy found after as many steps and after "
                f"{LONGER}, and what the library said",
                (
                    Column("network"), Column("norm", "g"), Column("NumPy, so far"),
                    Column("NumPy, in the end"), Column("Status"), Column("relaxations", "d"),
                ),
                tuple((*key, n) for key, n in sorted(counts.items())),
            ),
        ),
        figures=(
            Figure(
                "Share of samples that end in a cycle of period two, random symmetric networks",
                "norm of the recurrent matrix",
                "share",
                (Series("plain iteration", NORMS, tuple(cycling)),),
            ),
        ),
    )  # fmt: skip


def _weight(kind: str, norm: float, generator: torch.Generator) -> Tensor:
    if kind == "slow":
        return -0.95 * torch.eye(HIDDEN, dtype=torch.float64)
    if kind == "rotating":  # every pair of neurons turns by an angle that never comes back
        angle = torch.tensor(1.0, dtype=torch.float64)
        block = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).reshape(2, 2)
        return norm * torch.block_diag(*[block] * (HIDDEN // 2))
    drawn = torch.randn(HIDDEN, HIDDEN, dtype=torch.float64, generator=generator)
    # The first has no eigenvalue above zero.
    full = -drawn @ drawn.mT if kind == "swinging" else drawn + drawn.mT
    return norm * full / torch.linalg.matrix_norm(full, 2)


def _kernels(kind: str) -> tuple[KernelName, ...]:
    return ("torch",) if kind == "rotating" else ("auto", "torch")


def _model(weight: Tensor, kernel: KernelName, steps: int, symmetric: bool) -> LoopedMLP:
    model = LoopedMLP(
        INPUTS, HIDDEN, CLASSES, spectral_norm=False, symmetric=symmetric, kernel=kernel, tol=TOL,
        max_steps=steps, on_failure="ignore", generator=torch.Generator().manual_seed(0),
    ).double()  # fmt: skip
    with torch.no_grad():
        model.recurrent.raw.copy_(weight)
        model.input.weight.mul_(0.1)  # near the origin, where tanh is steepest
        model.input.bias.zero_()
    return model


def _by_numpy(model: LoopedMLP, x: Tensor, steps: int) -> list[tuple[str, str]]:
    """Sample by sample, what the map does after so many steps, and where it ends.

    The first is what `Status` promises to tell: at rest is what came within the tolerance, and a
    swing is one that dies out by less than a hundredth a step, if at all. The second takes longer.
    """
    weight_in, bias, loop = (p.detach().numpy() for p in model.system_parameters())
    drive = x.numpy() @ weight_in.T + bias
    states = [np.tanh(drive)] * 3
    arrived = np.zeros(len(x), dtype=bool)
    for _ in range(steps):
        states = [*states[1:], np.tanh(drive + states[-1] @ loop.T)]
        step, _, size = _moves(states)
        arrived |= step <= TOL * size
    ahead = [*states[1:], np.tanh(drive + states[-1] @ loop.T)]
    step, back, _ = _moves(ahead)
    so_far = np.where(arrived, "rest", np.where(back <= 0.01 * step, "swing", "neither"))
    for _ in range(LONGER - steps):
        states = [*states[1:], np.tanh(drive + states[-1] @ loop.T)]
    step, back, size = _moves(states)
    end = np.where(step <= TOL * size, "rest", np.where(back <= 0.01 * step, "cycle", "neither"))
    return [(str(now), str(then)) for now, then in zip(so_far, end, strict=True)]


def _moves(states: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How far each sample went in the last step, in the last two, and how large it is."""
    first, second, third = states
    moves = (third - second, third - first, third)
    return tuple(np.linalg.norm(move, axis=1) for move in moves)  # type: ignore[return-value]


def _said(context: Context, model: LoopedMLP, x: Tensor) -> str:
    with torch.no_grad():
        found = model.equilibrium(x).status
    if context.sabotaged("a cycle passes for rest") and found is Status.CYCLING:
        return Status.CONVERGED.name
    return found.name


def _damped(model: LoopedMLP, x: Tensor, generator: torch.Generator) -> float:
    """The smallest cosine of EP with the exact gradient where damped iteration finds the
    equilibrium that plain iteration swings around."""
    y = torch.randint(0, CLASSES, (len(x),), generator=generator)
    model.solver = FixedPoint(damping=0.4, tol=1e-11, max_steps=5000)
    return least_cosine(gradients(model, x, y, CenteredEP(0.01)), exact(model, x, y))


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        # What came within the tolerance, to the step: with a margin of two, a swing that was dying
        # out and not there yet counted as rest.
        at_most("wrong", 0, "endings that were called something else than NumPy found"),
        at_most("longer_cycles", 0, "endings of symmetric networks that were neither (theory: 0)"),
        at_least("cycles", 5, "cycles of period two met"),
        at_least("rests", 5, "equilibria met"),
        at_least("rotations", 2, "endings met that are neither, in rotating networks"),
        at_least("slow", 5, "relaxations met that were only slow"),
        at_most("below_one", 0.0, "share of cycles at a norm below one (theory: 0)"),
        at_least("damped_cosine", 0.999, "smallest cosine at the equilibria of damped iteration"),
    )


TRACK = Track(
    number=7,
    title="Limit Cycles",
    claim="Without a bound on its norm a symmetric network ends at rest or in a cycle of period "
    "two, and in nothing else; the library says which (it calls a cycle, too, what dies out by "
    "less than a hundredth a step), and damping finds the equilibrium inside the cycle, where EP's "
    "gradient is exact.",
    experiment="Random symmetric networks of norms below and above one, networks that swing, "
    "rotate or are merely slow: every ending against NumPy's, on both paths.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("cycles are not named", "a relaxation that swings is told to take more steps"),
        Sabotage("what is slow is called a cycle", "one that comes back by half is enough"),
        Sabotage("a cycle passes for rest", "a relaxation that swings says that it converged"),
    ),
    statements=(
        "Of {relaxations} relaxations {wrong} were called something else than they were; "
        "symmetric networks ended {cycles} times in a cycle of period two and {longer_cycles} "
        "times in anything longer, rotating ones {rotations} times in neither; {dying} swings were "
        "dying out so slowly that they count as cycles.",
        "At the equilibria that damped iteration found inside the cycles the smallest cosine with "
        "the exact gradient was {damped_cosine:.6f}.",
    ),
    cost=4,
)
