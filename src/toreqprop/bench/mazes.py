"""Mazes: one small map that settles, trained on 9x9 and asked at other sizes, next to controls.

Every run trains one network on mazes of one size and scores it on test mazes of every size, none
of which was trained on. All networks see the same mazes in the same order. The map is trained by
EP, by the implicit gradient and by backpropagation through its relaxation; without its kernel; and
there are feed-forward stacks of three depths. No checkpoint is picked: the last weights count.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.certificate import Certificate, certify
from toreqprop.gradients import CenteredEP, GradientEstimator, ImplicitGradient, UnrolledGradient
from toreqprop.models import EquilibriumMap
from toreqprop.solvers import Anderson, FixedPoint
from toreqprop.tasks.mazes import MARK, WALL, Mazes, distances, mazes

EP, IMPLICIT, UNROLLED, UNCOUPLED = "ep", "implicit", "unrolled", "uncoupled"
PLAIN = {"plain-3": 3, "plain-6": 6, "plain-12": 12}
METHODS = (EP, IMPLICIT, UNROLLED, UNCOUPLED, *PLAIN)
STARTS = {"maze-reach": 0.0, "maze-path": 1.0}
"""Activity has to spread from the start of a maze, and to be withdrawn from its dead ends."""
MARKED = 1.5
"""The initial drive of a mark, at the cell itself."""
IGNORED = -100
"""The target of a wall, which torch's cross-entropy leaves out."""


@dataclass(frozen=True)
class Setup:
    """How networks are trained for one task. ``rate`` is the largest step of the optimizer;
    ``wall`` is the initial drive of a wall, at the cell itself: walls have no target, and where lit
    cells on both sides can light one, activity leaks through it for good. ``others`` has method,
    updates and rate of networks that are not trained as the map is by EP; it is no part of what
    makes two setups the same, as every `Run` says how it was trained."""

    task: str
    updates: int
    rate: float
    bias: float
    beta: float = 0.01
    max_gain: float | None = None
    coupling: float = 0.3
    wall: float = -6.0
    channels: int = 4
    tol: float = 1e-4
    max_steps: int = 120
    plain_channels: int = 16
    side: int = 9
    mazes: int = 4096
    batch: int = 64
    clip: float = 0.3
    sides: tuple[int, ...] = (9, 17, 33, 65)
    counts: tuple[int, ...] = (100, 100, 100, 20)
    others: tuple[tuple[str, int, float], ...] = field(default=(), compare=False)

    def recipe(self, method: str) -> tuple[int, float]:
        """Updates and largest rate of a training."""
        own = {name: (updates, rate) for name, updates, rate in self.others}
        return own.get(method, (self.updates, self.rate))


PLAIN_RECIPES = tuple(
    (method, 1000, rate) for method, rate in zip(PLAIN, (0.02, 0.02, 0.01), strict=True)
)
SETUPS = {
    "maze-reach": Setup(
        "maze-reach", updates=250, rate=0.02, bias=-0.3,
        others=((IMPLICIT, 250, 0.01), *PLAIN_RECIPES),
    ),
    "maze-path": Setup(
        "maze-path", updates=1000, rate=0.01, bias=-0.5, beta=1e-3, max_gain=2.0, max_steps=500,
        others=PLAIN_RECIPES,
    ),
}  # fmt: skip
"""Chosen on validation mazes (results/mazes_search.jsonl)."""


@dataclass(frozen=True)
class Run:
    """One network, trained from one seed.

    ``exact`` is the percentage of test mazes of each side with every open cell right, ``cells``
    that of open cells, ``steps`` what the slowest maze needed to settle. ``cosine`` is the smallest
    over the tensors of the gradient with the exact one at the beginning and the end of the last
    epoch, ``certified`` whether both certificates pass; ``unsettled`` counts the relaxations of
    that epoch that did not reach their tolerance. None where a network does not relax. ``updates``
    and ``rate`` are its `Setup.recipe`, ``seconds`` is processor time of the training.
    """

    task: str
    method: str
    seed: int
    updates: int
    rate: float
    parameters: int
    exact: tuple[float, ...]
    cells: tuple[float, ...]
    steps: tuple[int, ...]
    cosine: float | None
    certified: bool | None
    unsettled: int | None
    seconds: float


class Plain(nn.Module):
    """Convolutions of 3x3 with ReLU, as many as ``layers``, and a linear readout of each cell."""

    def __init__(self, layers: int, channels: int) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for below in [2, *[channels] * (layers - 1)]:
            layer = nn.Conv2d(below, channels, 3, padding=1)
            # Torch's own draw shrinks what passes a layer to a third: twelve would not train.
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            parts += [layer, nn.ReLU()]
        self.body = nn.Sequential(*parts)
        self.readout = nn.Linear(channels, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.body(x).movedim(1, -1))


def build(setup: Setup, method: str, seed: int) -> nn.Module:
    """The network of a method, with initial weights from the seed.

    The readout begins at zero, so that it learns what activity means before the kernel moves; the
    drive begins with the sign of walls and marks, and cells begin a little too quiet: the kernel
    then grows until activity holds, which is the way on which gradients do not vanish.
    """
    torch.manual_seed(seed)
    if method in PLAIN:
        return Plain(PLAIN[method], setup.plain_channels)
    solver = FixedPoint(tol=setup.tol, max_steps=setup.max_steps)
    estimators: dict[str, GradientEstimator] = {
        # Next to a bifurcation plain iteration of the adjoint, which is linear, does not arrive.
        IMPLICIT: ImplicitGradient(Anderson(5, tol=setup.tol, max_steps=setup.max_steps)),
        UNROLLED: UnrolledGradient(setup.max_steps, tol=setup.tol),
    }
    model = EquilibriumMap(
        2,
        setup.channels,
        coupling=setup.coupling,
        start=STARTS[setup.task],
        gradient=estimators.get(method, CenteredEP(setup.beta, max_gain=setup.max_gain)),
        solver=solver,
        on_failure="ignore",
    )
    with torch.no_grad():
        for part in (*model.drive.parameters(), *model.readout.parameters()):
            part.zero_()
        drive, bias = model.drive.parameters()
        bias.fill_(setup.bias)
        for channel, strength in ((WALL, setup.wall), (MARK, MARKED)):
            drive[:, channel, 1, 1] = strength
        if method == UNCOUPLED:
            model.recurrent.raw.zero_()
            model.recurrent.raw.requires_grad_(False)
    return model


@dataclass(frozen=True)
class Split:
    """Training mazes of one side, and mazes of every side to score: no walls are in both."""

    train: Mazes
    scored: tuple[Mazes, ...]


@lru_cache(maxsize=16)
def split(setup: Setup, seed: int, *, validation: bool = False) -> Split:
    """The mazes of a run; the scored ones are the same for every seed.

    With ``validation`` they are others than the test mazes, for every choice that is made.
    """
    both = [
        [
            mazes(setup.task, side, count, which)
            for side, count in zip(setup.sides, setup.counts, strict=True)
        ]
        for which in _HELD_SEEDS
    ]
    held = [found for part in both for found in part if found.x.shape[-1] == setup.side]
    train = mazes(setup.task, setup.side, setup.mazes, seed, without=held)
    return Split(train, tuple(both[1 if validation else 0]))


_HELD_SEEDS = (1_000_003, 1_000_033)
"""Of the test mazes and of the validation mazes."""


def targets(found: Mazes) -> Tensor:
    """What `cell_loss` takes: the class of every open cell."""
    return torch.from_numpy(np.where(found.open, found.y, IGNORED))


def cell_loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy, averaged over the open cells of a batch."""
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


@dataclass(frozen=True)
class Trained:
    """How a training went: processor seconds, and of the last epoch the smallest cosine with the
    exact gradient, whether it was certified, and the relaxations that did not settle."""

    seconds: float
    cosine: float | None = None
    certified: bool | None = None
    unsettled: int | None = None


def train(
    setup: Setup, model: nn.Module, data: Mazes, seed: int, updates: int, rate: float
) -> Trained:
    """A training whose gradient is certified around the last epoch."""
    x, y = torch.from_numpy(data.x[: setup.batch]), targets(data)[: setup.batch]
    trained = training(setup, model, data, seed, updates, rate)
    seconds, found, last = 0.0, [], max(0, updates - len(data) // setup.batch)
    for update in range(updates):
        if update == last and isinstance(model, EquilibriumMap):
            found.append(_certified(model, x, y))
            model.failures.clear()
        started = time.process_time()
        next(trained)
        seconds += time.process_time() - started
    if not isinstance(model, EquilibriumMap):
        return Trained(seconds)
    unsettled = sum(model.failures.values())
    found.append(_certified(model, x, y))
    if found[0] is None or found[1] is None:
        return Trained(seconds, unsettled=unsettled)
    pair = [certificate for certificate in found if certificate is not None]
    cosine, passed = min(c.min_cosine for c in pair), all(c.ok for c in pair)
    return Trained(seconds, cosine, passed, unsettled)


def training(
    setup: Setup,
    model: nn.Module,
    data: Mazes,
    seed: int,
    updates: int,
    rate: float,
    y: Tensor | None = None,
) -> Iterator[float]:
    """Adam with one cycle of its rate: the loss of every update, after it. ``y`` are other targets
    than those of the mazes."""
    x, y = torch.from_numpy(data.x), targets(data) if y is None else y
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=updates)
    for _, rows in zip(range(updates), batches(len(x), setup.batch, seed), strict=False):
        optimizer.zero_grad()
        loss = cell_loss(model(x[rows]), y[rows])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), setup.clip)
        optimizer.step()
        schedule.step()
        yield loss.item()


def batches(count: int, size: int, seed: int) -> Iterator[Tensor]:
    """Rows of whole batches, epoch after epoch."""
    order = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(count, generator=order)[: count - count % size].split(size)


def _certified(model: EquilibriumMap, x: Tensor, y: Tensor) -> Certificate | None:
    """None for backpropagation through the relaxation, which no certificate is for."""
    if isinstance(model.gradient, UnrolledGradient):
        return None
    return certify(model, x, y, loss=cell_loss)


@torch.no_grad()
def score(model: nn.Module, found: Mazes) -> tuple[float, float, int]:
    """Percentages of mazes and of open cells that are right, and the steps of the slowest maze.

    Maps settle to `SETTLED`, mazes of about the same length together.
    """
    order = np.argsort([distances(image).max() for image in found.x])
    right, steps = np.zeros(found.y.shape, bool), 0
    if isinstance(model, EquilibriumMap):
        model = copy.deepcopy(model)
        model.solver, model.gradient = SETTLED, CenteredEP()
    for rows in np.split(order, range(_TOGETHER, len(order), _TOGETHER)):
        x = torch.from_numpy(found.x[rows])
        if isinstance(model, EquilibriumMap):
            solution = model.equilibrium(x)
            output, steps = model.readout_from(solution.state), max(steps, solution.steps)
        else:
            output = model(x)
        right[rows] = output.argmax(-1).numpy() == found.y[rows]
    right |= ~found.open
    exact = right.reshape(len(right), -1).all(1)
    return 100.0 * float(exact.mean()), 100.0 * float(right[found.open].mean()), steps


SETTLED = FixedPoint(tol=1e-6, max_steps=20_000)
"""A front that creeps is one cell of thousands: the tolerance of a test is tighter."""
_TOGETHER = 10


def run(setup: Setup, method: str, seed: int) -> Run:
    """Train one network and score it on the test mazes of every side."""
    data = split(setup, seed)
    model = build(setup, method, seed)
    recipe = setup.recipe(method)
    trained = train(setup, model, data.train, seed, *recipe)
    scores = [score(model, found) for found in data.scored]
    exact, cells, steps = (tuple(part) for part in zip(*scores, strict=True))
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return Run(
        setup.task, method, seed, *recipe, size, exact, cells, steps, trained.cosine,
        trained.certified, trained.unsettled, trained.seconds,
    )  # fmt: skip
