"""Track 37: causal attention that settles learns a text's statistics by EP, and sees no future."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from unittest.mock import patch

import torch
from torch import Tensor

from toreqprop.bench.language.networks import EP, IMPLICIT, Shape, build
from toreqprop.bench.language.ngrams import ngram_bits
from toreqprop.bench.language.training import Recipe, Windows, bits, train
from toreqprop.bench.language.trial import proven
from toreqprop.certificate.estimate import in_double
from toreqprop.energies import Gradients, attention
from toreqprop.gradients import GradientEstimator, VectorFieldEP
from toreqprop.gradients.base import Problem
from toreqprop.models import EquilibriumTransformer
from toreqprop.solution import State
from toreqprop.tasks.markov import MarkovText, markov_text
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Measurements, Table
from toreqprop.verify.mutations import plantable
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

SYMBOLS, TRAIN, TEST, SCORED = 6, 40_000, 9_000, 8_192
RATE, BATCH, RADIUS = 2e-2, 16, 1.0
VALUE = 3
"""Where ``W_v`` is among a field's input and parameters."""

COMPARED = ("uncorrected_cosine", "one_pass_cosine")


@dataclass(frozen=True)
class Scaled(GradientEstimator):
    """Another estimator with one gradient times a factor."""

    right: GradientEstimator
    index: int
    factor: float
    bias: ClassVar[str] = "one tensor's"

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        found = self.right.backward(problem, free, cotangent)
        return tuple(
            self.factor * g if g is not None and k == self.index else g for k, g in enumerate(found)
        )


@plantable
def run(context: Context) -> Measurements:
    shape = Shape(SYMBOLS, context=16, width=32, heads=2, radius=RADIUS, tol=1e-3)
    updates = context.level.pick(160, 250, 250)  # 80 were too few from another seed: 0.11 learnt
    rows, proofs, later = [], [], []
    with _mask(leaks=context.sabotaged("mask leaks one token")):
        for seed in context.level.pick(context.seeds[:1], context.seeds, context.seeds):
            text = markov_text(SYMBOLS, TRAIN, TEST, seed)
            windows = Windows.spread(text.test, shape.context, SCORED)
            found = {}
            for method in (EP, IMPLICIT):
                context.report(f"{method}, seed {seed}")
                model, seen = _trained(context, method, shape, text, updates, seed)
                proofs += seen
                found[method] = bits(model, windows)
                later.append(_heard_later(model, windows))
            counted = [
                ngram_bits(text.train, text.test, windows.scored, order, SYMBOLS)
                for order in (1, 2, 3)
            ]
            rows.append((seed, *counted, text.source_bits(windows.scored), *found.values()))
    learnt = [(pairs - ep) / (pairs - source) for _, _, pairs, _, source, ep, _ in rows]
    return Measurements(
        {
            "learnt": min(learnt),
            "above_source": min(ep - source for *_, source, ep, _ in rows),
            "gap": max(abs(ep - implicit) for *_, ep, implicit in rows),
            "min_cosine": min(p["cosine"] for p in proofs),
            "refused": sum(not p["ok"] for p in proofs),
            "certificates": len(proofs),
            "without_correction": min(p.get(COMPARED[0], 0.0) for p in proofs[1::2]),
            "heard_later": max(later),
        },
        tables=(
            Table(
                "Bits per character of held-out text: counted neighbours, the source itself, and "
                "networks after as many updates on the same windows",
                (
                    Column("seed", "d"),
                    *(Column(f"{name}, counted", ".3f") for name in ("single", "pairs", "triples")),
                    *(Column(name, ".3f") for name in ("the source", "EP", "implicit gradient")),
                ),
                tuple(rows),
            ),
            Table(
                "Certificates of EP at its own β, after the first update and the last",
                (
                    Column("update", "d"),
                    Column("smallest cosine", "+.5f"),
                    Column("norm ratios from", ".3f"),
                    Column("to", ".3f"),
                    Column("norm of ∂f/∂s", ".2f"),
                    Column("asymmetry", ".2f"),
                    Column("cosine without the correction", "+.3f"),
                    Column("of backprop through one pass", "+.3f"),
                ),
                tuple(_proof_row(p) for p in proofs),
            ),
        ),
    )


def _trained(
    context: Context, method: str, shape: Shape, text: MarkovText, updates: int, seed: int
) -> tuple[EquilibriumTransformer, list[dict[str, Any]]]:
    """A network after its updates; EP's with certificates of the first and the last."""
    torch.manual_seed(seed)
    model = build(method, shape, seed)
    assert isinstance(model, EquilibriumTransformer)
    own = model.gradient
    proofs: list[dict[str, Any]] = []
    recipe = Recipe(RATE, updates, BATCH)
    if isinstance(own, VectorFieldEP) and context.sabotaged("correction dropped"):
        model.gradient = replace(own, correction=False)
    if method == EP and context.sabotaged("values' gradient x0.7"):
        model.gradient = Scaled(own, VALUE, 0.7)
    for update, _, x, y in train(model, text.train, shape.context, recipe, seed):
        if method == EP and update in (1, updates):
            proofs.append({"update": update, **proven(model, x, y)})
    return model, proofs


def _proof_row(p: dict[str, Any]) -> tuple[Any, ...]:
    names = ("update", "cosine", "least_ratio", "largest_ratio", "contraction", "asymmetry")
    # A gradient that a sabotage has scaled is no vector field's, and is compared with none.
    return *(p[name] for name in names), *(p.get(name, 0.0) for name in COMPARED)


def _heard_later(model: EquilibriumTransformer, windows: Windows) -> float:
    """The largest change of a logit in the first half of a window where the second half is another;
    in double precision, so that nothing but a leak is left."""
    x, _ = next(windows.batches(64))
    other, half = x.clone(), windows.context // 2
    other[:, half:] = (other[:, half:] + 1) % model.vocab_size
    exact = in_double(model, 1e-11, 1000)
    with torch.no_grad():
        one, two = exact(x)[:, :half], exact(other)[:, :half]
    return float((one - two).abs().max())


@contextmanager
def _mask(*, leaks: bool) -> Iterator[None]:
    """Within it, where it leaks, every token also attends to the one after it."""
    if not leaks:
        yield
        return

    def open_by_one(bias: Tensor, length: int, causal: bool) -> Tensor:
        later = torch.ones(length, length, dtype=torch.bool).triu(2)
        return bias[:, :length, :length].masked_fill(later, -torch.inf)

    with patch.object(attention, "masked", open_by_one):
        yield


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        # Counted pairs are at zero. Few updates are made, so that the track stays quick; set below
        # the third of the way that one seed went.
        at_least(
            "learnt", 0.2,
            "share of the way from counted pairs of neighbours to the source, worst seed",
        ),
        # Luck of 8,192 characters: the source's own shares are what is best on average alone.
        at_least("above_source", -0.01, "bits more than the source needs, best seed"),
        at_most("heard_later", 1e-7, "change of a logit where later characters change"),
        at_most("gap", 0.05, "EP and implicit gradient apart, bits, worst seed"),
        at_least("min_cosine", 0.99, "smallest signed cosine with the exact gradient"),
        at_most("refused", 0, "certificates refused"),
    )  # fmt: skip


TRACK = Track(
    number=37,
    title="Language",
    claim="Causal attention that settles learns by EP which characters follow which two, within "
    "0.05 bits of the exact gradient; pairs of neighbours, counted, do not come near it, and it "
    "hears nothing of characters that are still to come.",
    experiment="A source of second order writes text; train by EP and by the implicit gradient on "
    "the same windows, and compare bits per character of held-out text with counted neighbours and "
    "with the source, which nothing can beat that does not see the future.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("correction dropped", "the vector field is nudged without the asymmetry term"),
        Sabotage("correction of vector fields x0.7", "the asymmetry is not quite made up for"),
        Sabotage("values' gradient x0.7", "one tensor's gradient is too small"),
        Sabotage("mask leaks one token", "a character attends to the one it has to predict"),
    ),
    statements=(
        "EP goes {learnt:.0%} of the way from pairs of neighbours to the source in the worst case, "
        "and stays {above_source:+.3f} bits above the source; {gap:.4f} bits from the implicit "
        "gradient at most.",
        "In {certificates} certificates the smallest cosine is {min_cosine:.5f}; without the "
        "correction it falls to {without_correction:.3f}.",
        "Other characters later on change no earlier logit by more than {heard_later:.1e}.",
        "The study of real text is `toreqprop language`.",
    ),
    cost=15,
)
