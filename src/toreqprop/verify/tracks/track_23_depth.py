"""Track 23: EP's gradient, layer by layer, in stacks of one to sixty-four layers."""

from __future__ import annotations

import torch

from toreqprop.certificate import certify
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.verify.deep_stacks import deep, in_double
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Figure, Measurements, Series, Table
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import load
from toreqprop.verify.spoiled import Spoiled
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most, below

SAMPLES = 4


@plantable
def run(context: Context) -> Measurements:
    depths = context.level.pick((1, 8, 32), (1, 8, 32, 64), (1, 4, 16, 64))
    rows, cosines, errors, factors, refused = [], [], [], [], 0
    curves: dict[int, list[tuple[int, float, float]]] = {}
    for seed in context.seeds if context.level.name != "quick" else context.seeds[:1]:
        data = in_double(load(context, "digits", seed), SAMPLES)
        for depth in depths:
            context.report(f"{depth} layers, seed {seed}")
            model = deep(data, depth, seed)
            model.gradient = _estimator(context, model.gradient, depth)
            with torch.no_grad():  # away from the identity it starts with
                generator = torch.Generator().manual_seed(seed)
                for parameter in model.layers.parameters():
                    noise = torch.randn(parameter.shape, generator=generator)
                    parameter.add_(0.3 / parameter.shape[-1] ** 0.5 * noise)
            found = certify(model, data.x, data.y)
            refused += not found.ok
            by_layer: dict[int, list[tuple[float, float]]] = {}
            for tensor in found.tensors:
                parts = tensor.name.split(".")
                if parts[0] == "layers":
                    layer = int(parts[1])
                    by_layer.setdefault(layer, []).append((tensor.cosine, tensor.norm_ratio))
            least = [min(c for c, _ in by_layer[k]) for k in sorted(by_layer)]
            off = [max(abs(n - 1) for _, n in by_layer[k]) for k in sorted(by_layer)]
            curves[depth] = [(k + 1, c, o) for k, (c, o) in enumerate(zip(least, off, strict=True))]
            cosines += least
            errors += off
            factors.append(model.lipschitz())
            nudged = next(p for p in found.phases if p.phase == "nudged")
            rows.append(
                (seed, depth, factors[-1], least[0], min(least), max(off), nudged.steps, found.ok)
            )
    return Measurements(
        {
            "layers": len(cosines),
            "deepest": max(depths),
            "min_cosine": min(cosines),
            "norm_error": max(errors),
            "lipschitz": max(factors),
            "refused": refused,
        },
        tables=(
            Table(
                "Certificates against the implicit gradient in float64: the lowest layer's and "
                "the worst layer's cosine, the largest error of a norm",
                (
                    Column("seed", "d"), Column("layers", "d"), Column("certified L", ".4f"),
                    Column("lowest layer", ".6f"), Column("worst layer", ".6f"),
                    Column("norm error", ".1e"), Column("nudged passes", "d"),
                    Column("certificate", "d"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "1 − cosine with the exact gradient, layer by layer, last seed",
                "layer, counted from the input",
                "1 − cosine",
                tuple(
                    Series(
                        f"{depth} layers",
                        tuple(k for k, _, _ in curve),
                        tuple(max(1 - c, 1e-16) for _, c, _ in curve),
                    )
                    for depth, curve in curves.items()
                    if depth > 1
                ),
                log_y=True,
            ),
        ),
    )  # fmt: skip


def _estimator(context: Context, right: GradientEstimator, depth: int) -> GradientEstimator:
    if context.sabotaged("the lowest matrix x0.9"):
        return Spoiled(lambda g: 0.9 * g, 1, right)
    if context.sabotaged("a nudge of 2"):
        return CenteredEP(2.0)
    return right


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("min_cosine", 0.99, "smallest cosine of any layer at any depth"),
        at_most("norm_error", 0.05, "largest error of a layer's gradient norm at any depth"),
        below("lipschitz", 1.0, "largest certified contraction factor"),
        at_most("refused", 0, "certificates refused"),
        at_least("deepest", level.pick(32, 64, 64), "layers of the deepest stack"),
        at_least("min_cosine", 0.9999, "the same smallest cosine", required=False),
    )


TRACK = Track(
    number=23,
    title="Gradients in Depth",
    claim="In stacks of one to sixty-four layers, certified to contract, EP's gradient agrees with "
    "the exact one in every layer down to the lowest.",
    experiment="HopfieldMLP.deep in double precision, couplings moved away from the identity: "
    "cosine and norm of every layer's gradient against the implicit one.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("the lowest matrix x0.9", "the first layer's gradient is a tenth too small"),
        Sabotage("upper matrices x0.7", "gradients of matrices between layers are too small"),
        Sabotage("a nudge of 2", "two thousand times the nudge that deep stacks are given"),
    ),
    statements=(
        "Over {layers} layers of stacks up to {deepest} deep the smallest cosine was "
        "{min_cosine:.6f}, the largest error of a norm {norm_error:.1e}, the largest certified "
        "factor {lipschitz:.4f}; {refused} certificates were refused.",
    ),
    cost=6,
)
