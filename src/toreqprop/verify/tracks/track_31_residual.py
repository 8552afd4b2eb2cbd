"""Track 31: in deep stacks, skip connections keep the signal of learning alive."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn import functional as F

from toreqprop.certificate import Certificate, certify
from toreqprop.energies import IdentityCoupling
from toreqprop.models import Residual
from toreqprop.models.converted import ConvertedNetwork, convert
from toreqprop.training import TrainingConfig
from toreqprop.verify.deep_stacks import in_double
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import (
    Accuracy,
    Column,
    Figure,
    Measurements,
    Paired,
    Series,
    Table,
    pooled,
)
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import Split, load, train
from toreqprop.verify.spoiled import Spoiled
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above, above_chance, at_least, at_most

WIDTH = 16
FEEDBACK = 0.1
RATE = 1e-2
KINDS = ("with skips", "without")
CERTIFIED, PROBED = 4, 32


@plantable
def run(context: Context) -> Measurements:
    blocks, rows_used, epochs = context.level.pick((10, 384, 3), (12, 640, 4), (12, 960, 5))
    scores: dict[str, list[Accuracy]] = {kind: [] for kind in KINDS}
    alive: dict[str, list[float]] = {kind: [] for kind in KINDS}
    curves: dict[str, list[float]] = {}
    certificates: list[tuple[int, str, Certificate]] = []
    with _spoilt(context):
        for seed in context.seeds[:1] if context.level.name == "quick" else context.seeds:
            data = in_double(load(context, "digits", seed), rows_used)
            for kind in KINDS:
                context.report(f"{2 * blocks + 1} layers {kind}, seed {seed}")
                model = _network(context, data, blocks, kind == "with skips", seed)
                curves[kind] = _sizes(model, data)
                alive[kind].append(curves[kind][0] / curves[kind][-1])
                if kind == "with skips":
                    certificates.append((seed, "before", _certify(model, data)))
                config = TrainingConfig(epochs=epochs, learning_rate=RATE, batch_size=32, seed=seed)
                trained = train(model, data, config)
                scores[kind].append(trained.accuracy(contrast=kind == "without"))
                if kind == "with skips":
                    certificates.append((seed, "after", _certify(model, data)))
    both = {kind: pooled(found) for kind, found in scores.items()}
    tensors = [t for _, _, c in certificates for t in c.tensors]
    return Measurements(
        {
            "accuracy": both["with skips"],
            "plain_accuracy": both["without"],
            "gain": Paired(both["with skips"].scores, both["without"].scores),
            "alive": min(alive["with skips"]),
            "advantage": min(a / b for a, b in zip(*alive.values(), strict=True)),
            "min_cosine": min(t.cosine for t in tensors),
            "norm_error": max(abs(t.norm_ratio - 1) for t in tensors),
            "asymmetry": max(c.asymmetry for _, _, c in certificates),
            "layers": 2 * blocks + 1,
        },
        tables=(
            Table(
                "Certificates of the network with skips before and after training",
                (
                    Column("seed", "d"), Column("training"), Column("smallest cosine", ".6f"),
                    Column("contraction", ".3f"), Column("passes, free", "d"),
                    Column("passes, nudged", "d"),
                ),
                tuple(
                    (seed, when, c.min_cosine, c.contraction, *(p.steps for p in c.phases[:2]))
                    for seed, when, c in certificates
                ),
            ),
        ),
        figures=(
            Figure(
                "Size of EP's gradient before training, matrix by matrix, last seed",
                "matrix, counted from the input",
                "norm over that of the last",
                tuple(
                    Series(
                        kind,
                        tuple(range(1, len(sizes) + 1)),
                        tuple(size / sizes[-1] for size in sizes),
                    )
                    for kind, sizes in curves.items()
                ),
                log_y=True,
            ),
        ),
    )  # fmt: skip


def _network(
    context: Context, data: Split, blocks: int, skips: bool, seed: int
) -> ConvertedNetwork:
    """Blocks of two layers with torch's usual weights, the same with skips and without."""
    torch.manual_seed(seed)
    parts: list[nn.Module] = [nn.Linear(data.features, WIDTH), nn.Tanh()]
    for _ in range(blocks):
        body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        if skips and not context.sabotaged("skips cut"):
            parts += [Residual(body), nn.Tanh()]
        else:
            parts += [*body, nn.Tanh()]
    net = nn.Sequential(*parts, nn.Linear(WIDTH, data.classes))
    model = convert(net, feedback=FEEDBACK, tol=1e-4, on_failure="ignore").double()
    if context.sabotaged("the lowest block x0.7"):
        model.gradient = Spoiled(lambda g: 0.7 * g, 3, model.gradient)
    return model


def _spoilt(context: Context) -> AbstractContextManager[Any]:
    """Within it, a skip hands down less than it passes up, if that is the sabotage."""
    if not context.sabotaged("skips hand down 0.9"):
        return nullcontext()
    right = IdentityCoupling.down

    def weaker(self: Any, post: Any, pre: Any, prepared: Any) -> Any:
        return right(self, post, pre, prepared) * 0.9

    return patch.object(IdentityCoupling, "down", weaker)


def _sizes(model: ConvertedNetwork, data: Split) -> list[float]:
    """The norm of EP's gradient for each matrix between layers, from the lowest to the highest."""
    named = dict(model.named_parameters())
    loss = F.cross_entropy(model(data.x[:PROBED]), data.y[:PROBED])
    inner = [p for n, p in named.items() if p.dim() == 2 and n in model.estimated_parameters()]
    return [float(g.norm()) for g in torch.autograd.grad(loss, inner[1:])]


def _certify(model: ConvertedNetwork, data: Split) -> Certificate:
    return certify(model, data.x[:CERTIFIED], data.y[:CERTIFIED])


def bounds(level: Level) -> tuple[Bound, ...]:
    # Accuracies: set below what one seed reached, far above the same stack without skips.
    return (
        above_chance("accuracy", "accuracy with skips, %"),
        at_least("accuracy", level.pick(50.0, 60.0, 65.0), "accuracy with skips, %"),
        at_least("gain", 30.0, "points gained over the same stack without skips"),
        at_least("alive", 0.2, "the lowest matrix's gradient over the highest's, with skips"),
        above("advantage", 100.0, "that ratio over the one without skips"),
        at_least("min_cosine", 0.99, "smallest cosine with the exact gradient, with skips"),
        at_most("norm_error", 0.05, "largest error of a gradient's norm, with skips"),
    )


TRACK = Track(
    number=31,
    title="Skip Connections",
    claim="In stacks of more than twenty layers from torch's usual weights skip connections keep "
    "the gradient of the lowest layers alive, by a factor of a hundred and more: with them EP "
    "learns, certified, and without them the same stack does not.",
    experiment="Blocks of two tanh layers on digits, converted with and without skips, the same "
    "weights otherwise: sizes of EP's gradient by layer before training, certificates before and "
    "after, test accuracy.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("skips cut", "the network with skips has none"),
        Sabotage("skips hand down 0.9", "feedback through skips is a tenth too weak"),
        Sabotage("the lowest block x0.7", "one matrix's gradient is too small"),
        Sabotage("shuffled labels", "both networks train on labels that mean nothing"),
    ),
    statements=(
        "With skips {accuracy}, without {plain_accuracy}: {gain}.",
        "Of {layers} layers the lowest matrix's gradient was {alive:.2g} of the highest's with "
        "skips, {advantage:.1e} times what it was without.",
        "Smallest cosine {min_cosine:.6f}, largest error of a norm {norm_error:.1e}.",
    ),
    cost=15,
)
