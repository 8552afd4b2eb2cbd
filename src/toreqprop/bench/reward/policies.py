"""The policies: one looped network by EP and by the exact gradient, plain ones by backprop."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from toreqprop.bench.arms import FeedForward
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import CenteredEP, ImplicitGradient
from toreqprop.models import BackpropMLP, LoopedMLP
from toreqprop.private_generator import drawing_from

EP, IMPLICIT, SAME_SIZE, SAME_DEPTH = "ep", "implicit", "same-size", "same-depth"
METHODS = (EP, IMPLICIT, SAME_SIZE, SAME_DEPTH)
BACKPROP = (SAME_SIZE, SAME_DEPTH)
TITLES = {
    EP: "looped, EP",
    IMPLICIT: "looped, implicit gradient",
    SAME_SIZE: "plain, same size, backprop",
    SAME_DEPTH: "plain, same depth, backprop",
}

RADIUS = 0.9
BETA, TOLERANCE = 1e-3, 5e-5
"""Of EP and of the relaxations. A policy's gradient is a sum over actions that went better and
worse than expected, much smaller than its parts: it needs more digits than that of a classifier.
At 0.01 and 2e-4 single batches in the middle of a training were refused; of a grid, on a seed that
no result has, these are the largest whose norms are right to a percent in every batch, with room
(`results/reward_trials.jsonl`)."""

SHY = 0.01
"""What the readout's first weights are multiplied with, in every network: a policy that begins
near the uniform one tries everything."""


def build(
    method: str,
    inputs: int,
    hidden: int,
    actions: int,
    seed: int,
    *,
    beta: float = BETA,
    tol: float = TOLERANCE,
) -> nn.Module:
    """The policy's network; what it is drawn from depends on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    if method in (EP, IMPLICIT):
        gradient = CenteredEP(beta) if method == EP else ImplicitGradient()
        model: nn.Module = LoopedMLP(
            inputs, hidden, actions, radius=RADIUS, bound="tight", gradient=gradient,
            tol=tol, max_steps=200, on_failure="ignore", generator=generator,
        )  # fmt: skip
        _recur(model)
    elif method == SAME_SIZE:
        model = BackpropMLP(inputs, hidden, actions, generator=generator)
    elif method == SAME_DEPTH:
        with drawing_from(generator):
            model = FeedForward(inputs, hidden, actions, layers=1)
    else:
        raise InvalidInputError(f"{method!r} is no method: use one of {', '.join(METHODS)}.")
    _begin_shy(model)
    return model


@torch.no_grad()
def _recur(model: nn.Module) -> None:
    """Make the recurrent weights so large that their ball holds them from the first step on."""
    assert isinstance(model, LoopedMLP)
    raw = model.recurrent.raw
    symmetric = 0.5 * (raw + raw.mT)
    raw.mul_(1.2 * RADIUS / torch.linalg.matrix_norm(symmetric, 2))


@torch.no_grad()
def _begin_shy(model: nn.Module) -> None:
    readout = [part for part in model.modules() if isinstance(part, nn.Linear)][-1]
    readout.weight.mul_(SHY)
    readout.bias.zero_()


def value_network(inputs: int, hidden: int, seed: int) -> nn.Module:
    """Two tanh layers for backprop, the same beside every policy."""
    generator = torch.Generator().manual_seed(seed + 1_000_003)
    return BackpropMLP(inputs, hidden, 1, generator=generator)


def recurrent_norm(model: nn.Module) -> float | None:
    """The true ``‖W_rec‖₂``, in double precision; None where nothing recurs."""
    if not isinstance(model, LoopedMLP):
        return None
    with torch.no_grad():
        return float(torch.linalg.matrix_norm(model.recurrent.weight.double(), 2))


def greedy(model: nn.Module, scaled: Tensor) -> Tensor:
    """The likeliest actions."""
    with torch.no_grad():
        found: Tensor = model(scaled).argmax(-1)
    return found
