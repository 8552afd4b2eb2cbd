"""One training on text as a job: learning curve, test bits, certificates, and what it writes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toreqprop.bench.language.networks import EP, Shape, build
from toreqprop.bench.language.ngrams import ngram_bits, uniform_bits
from toreqprop.bench.language.training import Recipe, Windows, bits, sample, token_loss, train
from toreqprop.certificate import certify
from toreqprop.certificate.estimate import estimate
from toreqprop.gradients import GradientEstimator, UnrolledGradient, VectorFieldEP
from toreqprop.models import EquilibriumModel, EquilibriumTransformer
from toreqprop.solvers import FixedPoint
from toreqprop.tasks.shakespeare import corpus, decode, encode
from toreqprop.training import RelaxationMonitor

TESTED, CURVE = 65_536, 8_192
"""Scored characters of the test text, and of the validation text at each point of a curve."""

POINTS = 10
"""Of a learning curve."""

CERTIFIED = 16
"""Windows of the training batch whose gradient is certified."""

CUT = (1, 2, 4)
"""Steps after which a finished network is stopped, to see whether it had to settle."""

PROMPT, WRITTEN, TEMPERATURE, SAMPLE_SEED = "\n\nKING.\n", 400, 0.7, 0
ORDERS = {"one": 1, "two": 2, "three": 3}


def trained(
    method: str, seed: int, shape: Iterable[tuple[str, Any]], recipe: Iterable[tuple[str, Any]]
) -> dict[str, Any]:
    """Train on the training works, watch on the validation works, test once; plain data."""
    text, sizes, settings = corpus(), Shape(**dict(shape)), Recipe(**dict(recipe))
    held = Windows.spread(text.validation, sizes.context, CURVE)
    model, found = _followed(method, seed, sizes, settings, text.train, held)
    tested = Windows.spread(text.test, sizes.context, TESTED)
    return {
        **found,
        "test_bits": bits(model, tested),
        "test_characters": len(tested.scored),
        "cut": _cut(model, held),
        "sample": decode(
            sample(model, encode(PROMPT), WRITTEN, sizes.context, TEMPERATURE, SAMPLE_SEED)
        ),
    }


def tried(
    method: str, seed: int, shape: Iterable[tuple[str, Any]], recipe: Iterable[tuple[str, Any]]
) -> dict[str, Any]:
    """Train and look at validation text alone; plain data."""
    text, sizes, settings = corpus(), Shape(**dict(shape)), Recipe(**dict(recipe))
    held = Windows.spread(text.validation, sizes.context, CURVE)
    _, found = _followed(method, seed, sizes, settings, text.train, held, points=1)
    return found


def counted(symbols: int, context: int) -> dict[str, Any]:
    """Bits of n-gram models that counted all of the training text, on the characters that networks
    are tested on."""
    text = corpus()
    windows = Windows.spread(text.test, context, TESTED)
    return {
        "uniform": uniform_bits(symbols),
        **{
            name: ngram_bits(text.train, text.test, windows.scored, order, symbols)
            for name, order in ORDERS.items()
        },
        "training_characters": len(text.train),
        "works": {part: list(names) for part, names in text.works.items()},
    }


def _followed(
    method: str, seed: int, shape: Shape, recipe: Recipe, text: np.ndarray, held: Windows,
    points: int = POINTS,
) -> tuple[nn.Module, dict[str, Any]]:  # fmt: skip
    """A trained network, and what was seen on the way: its times are those of updates alone."""
    torch.manual_seed(seed)
    model = build(method, shape, seed)
    last, proofs = RelaxationMonitor(), []
    at = {round(k * recipe.updates / points) for k in range(1, points + 1)}
    certified = {1, recipe.updates // 2, recipe.updates} if points > 1 and method == EP else set()
    curve: dict[str, list[float]] = {"tokens": [], "bits": []}
    spent, key, started = 0.0, None, time.process_time()
    for update, _, x, y in train(model, text, shape.context, recipe, seed):
        spent += time.process_time() - started
        if update in at:
            curve["tokens"].append(replace(recipe, updates=update).tokens(shape.context))
            curve["bits"].append(bits(model, held))
        if isinstance(model, EquilibriumTransformer):
            if update in certified:
                proofs.append({"update": update, **proven(model, x[:CERTIFIED], y[:CERTIFIED])})
            if key is None and update >= 0.9 * recipe.updates:
                key = model.register_relaxation_hook(last)
        started = time.process_time()
    found = {
        "method": method,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens": recipe.tokens(shape.context),
        "rate": recipe.rate,
        "curve": curve,
        "validation_bits": curve["bits"][-1],
        "timing": {"cpu_seconds": spent},
    }
    if isinstance(model, EquilibriumTransformer):
        found["steps"] = {phase: last.mean_steps(phase) for phase in last.steps}
        found |= {"unsettled": sum(model.failures.values()), "relaxations": model.relaxations}
        found |= {"norms": _norms(model), "certificates": proofs}
    return model, found


def proven(model: EquilibriumTransformer, x: Tensor, y: Tensor) -> dict[str, Any]:
    """The certificate of the network's own gradient at its own β on a batch of text; beside it the
    cosine without the correction of the vector field, and of backpropagation through one pass."""
    own = model.gradient
    found = certify(model, x, y, loss=token_loss)
    ratios = [tensor.norm_ratio for tensor in found.tensors]
    plain: dict[str, Any] = {
        "ok": found.ok,
        "cosine": found.min_cosine,
        "least_ratio": min(ratios),
        "largest_ratio": max(ratios),
        "contraction": found.contraction,
        "asymmetry": found.asymmetry,
        "steps": {phase.phase: phase.steps for phase in found.phases},
        "reasons": [reason.name for reason in found.reasons],
    }
    if isinstance(own, VectorFieldEP):
        others = {
            "uncorrected_cosine": replace(own, correction=False),
            "one_pass_cosine": UnrolledGradient(1),
        }
        for name, other in others.items():
            plain[name] = _least_cosine(model, own, other, x, y)
    return plain


def _least_cosine(
    model: EquilibriumModel, own: GradientEstimator, other: GradientEstimator, x: Tensor, y: Tensor
) -> float:
    """The smallest cosine, over the tensors that are estimated, of two gradients."""
    one, two = (estimate(model, each, x, y, token_loss).gradients for each in (own, other))
    return min(
        float(torch.cosine_similarity(one[name].flatten(), two[name].flatten(), 0))
        for name in model.estimated_parameters()
    )


def _norms(model: EquilibriumTransformer) -> dict[str, float]:
    """The true spectral norms of the projections."""
    block = model.blocks[0]
    with torch.no_grad():
        return {
            name: float(torch.linalg.matrix_norm(getattr(block, name).weight.double(), 2))
            for name in ("query", "key", "value", "output")
        }


def _cut(model: nn.Module, held: Windows) -> dict[str, float] | None:
    """Bits of validation text where the free phase is stopped after so many steps."""
    if not isinstance(model, EquilibriumModel):
        return None
    own, found = model.solver, {}
    for steps in CUT:
        model.solver = FixedPoint(tol=1e-12, max_steps=steps)
        found[str(steps)] = bits(model, held)
    model.solver = own
    found["settled"] = bits(model, held)
    return found
