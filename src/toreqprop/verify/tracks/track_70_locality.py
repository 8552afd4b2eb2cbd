"""Track 70: what an update is made of, with and without a spectral ball in front of the weight."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.energies import LinearNudge, Opposed, System
from toreqprop.gradients import CenteredEP
from toreqprop.gradients.base import normalise
from toreqprop.models import LoopedMLP, projection
from toreqprop.solvers import relax, relax_pair
from toreqprop.training import TrainingConfig
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import (
    Accuracy,
    Column,
    Measurements,
    Paired,
    Table,
    pooled,
)
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import load, looped, train
from toreqprop.verify.probes import Gradients, gradients, tight
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above_chance, at_least, at_most, equivalent

RADIUS = 0.7
SAMPLES = 16
SPREAD = 10.0


@dataclass(frozen=True)
class Shares:
    """How far a network's gradients are from what the ends of each weight know, by tensor."""

    local: float
    beyond: float


@plantable
def run(context: Context) -> Measurements:
    hidden, epochs = context.level.pick((24, 5), (32, 8), (48, 15))
    local, beyond, unexplained, largest, rows = [], [], [], [], []
    ball: list[Accuracy] = []
    projected: list[Accuracy] = []
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        config = TrainingConfig(epochs=epochs, learning_rate=5e-3, seed=seed)
        nets = {
            "behind a ball": looped(data, hidden, seed, radius=RADIUS, bound="exact"),
            "projected": looped(data, hidden, seed, spectral_norm=False),
        }
        for name, model in nets.items():
            with torch.no_grad():
                model.recurrent.raw.mul_(SPREAD)  # outside of the ball from the start
            norms: list[float] = []

            def after(net: nn.Module, name: str = name, norms: list[float] = norms) -> None:
                assert isinstance(net, LoopedMLP)
                if name == "projected" and not context.sabotaged("projection left out"):
                    projection.project_(net, RADIUS)
                norms.append(net.lipschitz())

            trained = train(model, data, config, on_step=after)
            x, y = data.x[:SAMPLES].double(), data.y[:SAMPLES]
            share, rest = _shares(context, tight(model), x, y)
            rows.append((seed, name, trained.percent, max(norms), share.local, share.beyond))
            largest.append(max(norms))
            (ball if name == "behind a ball" else projected).append(trained.accuracy())
            if name == "projected":
                local.append(max(share.local, share.beyond))
            else:
                local.append(share.local)
                beyond.append(share.beyond)
                unexplained.append(rest)
    scores = pooled(projected)
    return Measurements(
        {
            "local": max(local),
            "beyond": min(beyond),
            "beyond_most": max(beyond),
            "unexplained": max(unexplained),
            "largest_norm": max(largest),
            "accuracy": scores,
            "ball_accuracy": pooled(ball),
            "gap": Paired(scores.scores, pooled(ball).scores),
        },
        tables=(
            Table(
                "Gradients of trained networks: deviation of the effective weights' from the sum "
                "of products of activities at their two ends (times one number a sample), and "
                "the share of the raw recurrent matrix's that no multiple of it explains",
                (
                    Column("seed", "d"), Column("norm kept"), Column("accuracy, %", ".1f"),
                    Column("largest norm in training", ".4f"), Column("not local", ".1e"),
                    Column("not local behind the constraint", ".1e"),
                ),
                tuple(rows),
            ),
        ),
    )  # fmt: skip


def _shares(context: Context, net: LoopedMLP, x: Tensor, y: Tensor) -> tuple[Shares, float]:
    """What is not local of the effective gradients, and of the raw recurrent matrix's; the last is
    what neither the local sum nor that term of rank one explains."""
    net.gradient = CenteredEP(0.05)
    params = tuple(p.detach().requires_grad_() for p in net.system_parameters())
    kept = net.system_parameters
    net.system_parameters = lambda: params  # type: ignore[method-assign]
    loss = F.cross_entropy(net(x), y)
    effective = torch.autograd.grad(loss, params)
    net.system_parameters = kept  # type: ignore[method-assign]
    hebbian = _from_both_ends(context, net, x, y)
    found = (effective[0], effective[1], 0.5 * (effective[2] + effective[2].mT))
    local = max(
        float((a - b).norm() / b.norm()) for a, b in zip(found, hebbian.values(), strict=True)
    )
    raw, here = gradients(net, x, y)["recurrent.raw"], hebbian["W_rec"]
    # Of a norm the derivative is the outer product of its singular vectors.
    values, vectors = torch.linalg.eigh(0.5 * (net.recurrent.raw + net.recurrent.raw.mT).detach())
    top = vectors[:, values.abs().argmax()]
    columns = torch.stack([here.flatten(), torch.outer(top, top).flatten()], dim=1)
    shares = torch.linalg.lstsq(columns, raw.flatten()[:, None]).solution[:, 0]
    left = raw.flatten() - columns @ shares
    size = raw.norm()
    return Shares(local, float(shares[1].abs() / size)), float(left.norm() / size)


def _from_both_ends(context: Context, net: LoopedMLP, x: Tensor, y: Tensor) -> Gradients:
    """``−w_b·½[p₊q₊ᵀ − p₋q₋ᵀ]`` over samples b; p and q are activities at its ends."""
    assert isinstance(net.gradient, CenteredEP)
    beta = net.gradient.beta
    with torch.no_grad():
        system = System.bind(net.field, x, net.system_parameters())
        free = relax(system, net.solver)
    state = free.state[0].detach().requires_grad_()
    loss = F.cross_entropy(net.readout_from((state,)), y)
    direction, scale = normalise(torch.autograd.grad(loss, (state,)))
    opposed = Opposed(LinearNudge(direction, beta), LinearNudge(direction, -beta))
    found = relax_pair(system, opposed, net.solver, free.state, memory=free.memory)
    (up,), (down,) = found.up, found.down
    weight = (scale / (2 * beta))[:, None]
    if context.sabotaged("a mean over all samples' scalars"):
        weight = weight.mean(0, keepdim=True).expand_as(weight)
    return {
        "W_in": -((weight * (up - down)).mT @ x),
        "b": -(weight * (up - down)).sum(0),
        "W_rec": -0.5 * ((weight * up).mT @ up - (weight * down).mT @ down),
    }


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        # Relaxations to 1e-12 and their difference over a nudge of 0.05.
        at_most("local", 1e-7, "what is not local of effective weights' gradients, relative"),
        at_least("beyond", 1e-3, "share of a raw weight's gradient that is not local, ball active"),
        at_most("unexplained", 1e-6, "what neither ends nor the norm's derivative explain"),
        at_most("largest_norm", RADIUS * (1 + 1e-5), "largest norm of any step, both ways"),
        above_chance("accuracy", "test accuracy with projection after the step, %"),
        at_least("accuracy", level.pick(85.0, 90.0, 92.0), "the same, %"),
        # Equivalence needs more than the one seed with which planted faults are looked for.
        at_least("gap", -3.0, "accuracy, projection minus ball, points")
        if level.name == "quick"
        else equivalent("gap", 3.0, "accuracy, projection minus ball, points"),
    )


TRACK = Track(
    number=70,
    title="Locality",
    claim="Every update is a sum of products of the activities at the weight's two ends, times one "
    "number a sample. A spectral ball adds a term to the raw weight's that is not local; "
    "projection after the step has none and learns as well.",
    experiment="Trained networks on digits: gradients against that sum, computed from the relaxed "
    "states alone, for a recurrent matrix behind an active ball and one projected after each step.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("projected onto a larger ball", "a tenth more than the radius is let through"),
        Sabotage("projection left out", "the projected network is left to itself"),
        Sabotage("W_rec's gradient x0.7", "one tensor's update is not what its ends say"),
        Sabotage("a mean over all samples' scalars", "the number a sample is taken from others"),
    ),
    statements=(
        "Effective weights' gradients were the sum of products at their two ends to {local:.1e}. "
        "Behind an active ball {beyond:.1%} to {beyond_most:.1%} of the raw recurrent matrix's "
        "gradient was not local: a term with the norm's singular vectors, which left "
        "{unexplained:.1e} unexplained.",
        "With projection after the step the norm stayed below {largest_norm:.4f}; accuracy "
        "{accuracy}, behind the ball {ball_accuracy}, projection minus ball {gap}.",
    ),
    cost=4,
)
