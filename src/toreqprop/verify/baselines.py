"""Rivals of EP that send errors down by other weights than the network's own, and one experiment
for all of them: a certificate before and after training, next to EP on the same batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from toreqprop.certificate import certify
from toreqprop.energies import Gradients, StackEnergy
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.gradients.base import Problem
from toreqprop.models import HopfieldMLP
from toreqprop.solution import State
from toreqprop.training import TrainingConfig
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
from toreqprop.verify.networks import Split, Trained, load, train
from toreqprop.verify.probes import cosines, exact, gradients
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above, above_chance, at_least, at_most

Kind = Literal["chain", "direct", "equilibrium"]
FEEDBACK = 0.1
SAMPLES = 32
SETTLE = 60
"""Steps of an error that contracts by less than 0.7 a step here."""


@dataclass(frozen=True)
class RandomFeedback(GradientEstimator):
    """Errors go down a tanh stack through fixed random matrices B instead of transposed weights.

    "chain": ``e_l = σ'_l·(e_{l+1} B_{l+1})``, layer after layer (feedback alignment); "direct":
    every layer gets the top's cotangent through a matrix of its own; "equilibrium": errors settle,
    ``e_l = σ'_l·(g_l + e_{l+1} B_{l+1} + γ·e_{l−1} W_lᵀ)``, as the shift of a nudged phase whose
    way down is random. ``fresh`` draws B anew at every step, ``transposed`` uses the weights.
    """

    kind: Kind
    seed: int
    fresh: bool = False
    transposed: bool = False
    bias: ClassVar[str] = "whatever the random feedback makes of it"

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        system, field = problem.system, problem.system.field
        assert isinstance(field, StackEnergy)
        weights = system.params[0::2]
        slopes = [1 - s * s for s in free]
        errors = self._errors(weights, slopes, cotangent, field.feedback)
        below = (system.x, *free[:-1])
        found: list[Tensor | None] = [errors[0] @ weights[0]]
        for layer, error in enumerate(errors):
            matrix = error.mT @ below[layer]
            if self.kind == "equilibrium" and layer > 0:
                matrix = matrix + field.feedback * free[layer].mT @ errors[layer - 1]
            found += [matrix, error.sum(0)]
        return tuple(g if want else None for g, want in zip(found, problem.wants, strict=True))

    def _errors(
        self, weights: tuple[Tensor, ...], slopes: list[Tensor], cotangent: State, feedback: float
    ) -> list[Tensor]:
        top = len(slopes) - 1
        ways = self._ways(weights)
        if self.kind == "direct":
            above = cotangent[-1]
            sent = [above if k == top else above @ ways[k] for k in range(top + 1)]
            return [d * e for d, e in zip(slopes, sent, strict=True)]
        errors = [torch.zeros_like(s) for s in slopes]
        for _ in range(SETTLE if self.kind == "equilibrium" else 1):
            for layer in range(top, -1, -1):
                total = cotangent[layer]
                if layer < top:
                    total = total + errors[layer + 1] @ ways[layer]
                if layer > 0 and self.kind == "equilibrium":
                    total = total + feedback * errors[layer - 1] @ weights[layer].mT
                errors[layer] = slopes[layer] * total
        return errors

    def _ways(self, weights: tuple[Tensor, ...]) -> list[Tensor]:
        """The way down into each layer but the top one."""
        if self.transposed:
            own = [w.detach() for w in weights[1:]]
            if self.kind == "direct":  # all the way from the top
                for layer in range(len(own) - 2, -1, -1):
                    own[layer] = own[layer + 1] @ own[layer]
            return own
        seed = int(torch.randint(0, 2**31, ())) if self.fresh else self.seed
        generator = torch.Generator().manual_seed(seed)
        found = []
        for weight in weights[1:]:
            drawn = torch.randn(weight.shape, generator=generator) / weight.shape[1] ** 0.5
            found.append(drawn.to(weight))
        return found


Build = Callable[[int], GradientEstimator]


def rival(
    context: Context, name: str, build: Build, *, hidden: int, layers: int, epochs: int
) -> Measurements:
    """Train by a rival and by EP from the same weights on the same batches."""
    starts, ends, lower, oks = [], [], [], []
    scores: dict[str, list[Accuracy]] = {name: [], "EP": []}
    rows: list[tuple[Any, ...]] = []
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        x, y = data.x[:SAMPLES], data.y[:SAMPLES]
        model, trained = _trained(data, build(seed), hidden, layers, epochs, seed)
        fresh = _network(data, hidden, layers, seed, build(seed))
        scores[name].append(trained.accuracy())
        scores["EP"].append(
            _trained(data, CenteredEP(), hidden, layers, epochs, seed)[1].accuracy()
        )
        before = cosines(gradients(fresh, x, y), exact(fresh, x, y))
        after = cosines(gradients(model, x, y), exact(model, x, y))
        certificate = certify(model, x, y)
        oks.append(certificate.ok)
        starts.append(min(before.values()))
        ends.append(min(after.values()))
        lower.append(after["layers.0.weight"])
        rows += [(seed, tensor, before[tensor], after[tensor]) for tensor in before]
    both = {key: pooled(parts) for key, parts in scores.items()}
    return Measurements(
        {
            "start_cosine": max(starts),
            "end_cosine": max(ends),
            "lowest_matrix": min(lower),
            "certified": sum(oks),
            "accuracy": both[name],
            "ep_accuracy": both["EP"],
            "gap": Paired(both["EP"].scores, both[name].scores),
        },
        tables=(
            Table(
                f"Cosine of {name}'s gradient with the exact one, tensor by tensor",
                (
                    Column("seed", "d"), Column("tensor"), Column("before training", "+.4f"),
                    Column("after training", "+.4f"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Test accuracy, %",
                "",
                "test accuracy, %",
                (Series("digits", tuple(both), tuple(s.mean for s in both.values())),),
                bars=True,
                lines={"chance": both["EP"].chance_percent},
            ),
        ),
    )  # fmt: skip


def _network(
    data: Split, hidden: int, layers: int, seed: int, estimator: GradientEstimator
) -> HopfieldMLP:
    torch.manual_seed(seed)
    return HopfieldMLP(
        (data.features, *[hidden] * layers, data.classes), feedback=FEEDBACK, radius=0.95,
        bound="tight", gradient=estimator, on_failure="ignore",
    )  # fmt: skip


def _trained(
    data: Split, estimator: GradientEstimator, hidden: int, layers: int, epochs: int, seed: int
) -> tuple[HopfieldMLP, Trained]:
    model = _network(data, hidden, layers, seed, estimator)
    torch.manual_seed(seed)
    config = TrainingConfig(epochs=epochs, learning_rate=3e-3, seed=seed)
    return model, train(model, data, config)


def random_feedback_track(number: int, title: str, name: str, kind: Kind, claim: str) -> Track:
    """The track of one way to send errors down through random matrices."""

    def run(context: Context) -> Measurements:
        hidden, epochs = context.level.pick((32, 6), (48, 10), (64, 12))

        def build(seed: int) -> GradientEstimator:
            return RandomFeedback(
                kind,
                seed,
                fresh=context.sabotaged("feedback drawn anew"),
                transposed=context.sabotaged("transposed weights"),
            )

        return rival(context, name, build, hidden=hidden, layers=3, epochs=epochs)

    def bounds(level: Level) -> tuple[Bound, ...]:
        return (
            at_most("start_cosine", 0.5, "worst tensor's cosine before training, best seed"),
            at_most("end_cosine", 0.9, "worst tensor's cosine after training, best seed"),
            at_most("certified", 0, "certificates granted"),
            above("lowest_matrix", 0.2, "cosine of the lowest matrix after training, worst seed"),
            above_chance("accuracy", f"test accuracy of {name}, %"),
            at_least("accuracy", level.pick(75.0, 80.0, 82.0), "the same, %"),
            above("gap", -2.0, f"accuracy, EP minus {name}, points"),
        )

    return Track(
        number=number,
        title=title,
        claim=claim,
        experiment=f"HopfieldMLP of three hidden layers on digits, trained by {name} and by EP "
        "from the same weights; cosines with the exact gradient before and after, certificates.",
        run=run,
        bounds=bounds,
        sabotages=(
            Sabotage("feedback drawn anew", "every step has other random matrices"),
            Sabotage("transposed weights", "errors go down through the network's own weights"),
            Sabotage("shuffled labels", "networks train on labels that mean nothing"),
        ),
        statements=(
            "The worst tensor's cosine was {start_cosine:+.2f} before training and "
            "{end_cosine:+.2f} after it in the best seed, the lowest matrix's "
            "{lowest_matrix:+.2f} or more after it; {certified} certificates were granted.",
            f"Accuracy {{accuracy}}, EP {{ep_accuracy}}; EP minus {name} {{gap}}.",
        ),
        cost=4,
    )
