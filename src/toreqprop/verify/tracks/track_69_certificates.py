"""Track 69: every model's gradient against differences of its loss, and certificates on trial."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.certificate import Certificate, certify
from toreqprop.energies import POOLINGS, Sigmoid
from toreqprop.gradients import ESTIMATORS, CenteredEP, VectorFieldEP
from toreqprop.models import (
    EquilibriumModel,
    EquilibriumTransformer,
    HopfieldConvNet,
    HopfieldMLP,
    LoopedMLP,
    ResistiveMLP,
    convert,
)
from toreqprop.models.example_networks import NETWORKS, SHAPE
from toreqprop.verify import spoiled
from toreqprop.verify.independent import slopes
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Measurements, Table
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import load
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

STEPS, WEAK = (1e-5, 1e-6), 1e-4
"""Of differences. Under max pooling a loss jumps where two winners are equal, and a jump within the
larger step is seldom within the smaller one too; a wrong gradient is wrong with both."""

TIGHT = 1e-12
SAMPLES = 16


def models(
    seed: int, networks: tuple[str, ...]
) -> Iterator[tuple[str, EquilibriumModel, Tensor, Tensor]]:
    """Small instances of every kind, with a batch each; the random state is set for each."""

    def drawn(name: str, build: Any) -> tuple[str, EquilibriumModel, Tensor, Tensor]:
        torch.manual_seed(seed)
        model, x, y = build()
        if name.startswith(("looped", "layered")):
            spoiled.strengthen(model)
        model.on_failure = "ignore"
        return name, model, x, y

    yield drawn("looped", lambda: LoopedMLP.example(radius=0.8))
    yield drawn("looped, proven", lambda: LoopedMLP.example(radius=0.8, bound="proven"))
    yield drawn("looped, asymmetric", lambda: LoopedMLP.example(symmetric=False, radius=0.8))
    # Not the usual orthogonal start: with equal singular values a norm has no slope.
    random = {"start": "random"}
    yield drawn("layered", lambda: HopfieldMLP.example(feedback=1.0, **random))
    yield drawn("layered, feedback 0.5", lambda: HopfieldMLP.example(feedback=0.5, **random))
    for name, pooling in POOLINGS.items():
        options = {"pooling": pooling(), "activation": Sigmoid()}
        yield drawn(
            f"convolutional, {name} pooling", lambda o=options: HopfieldConvNet.example(**o)
        )
    for variant in ("energy", "attention"):
        make = lambda v=variant: EquilibriumTransformer.example(variant=v)  # noqa: E731
        yield drawn(f"transformer, {variant}", make)
    yield drawn("resistive", ResistiveMLP.example)
    for name in networks:
        yield drawn(f"converted, {name}", lambda n=name: _converted(n))


def _converted(name: str) -> tuple[EquilibriumModel, Tensor, Tensor]:
    network = NETWORKS[name](3, 4)
    return convert(network), torch.randn(5, *SHAPE), torch.randint(0, 4, (5,))


@plantable
def run(context: Context) -> Measurements:
    differences, honest = [], []
    networks = context.level.pick(("vgg",), ("vgg", "mixer"), ("vgg", "mixer"))
    for seed in context.level.pick(context.seeds[:1], context.seeds, context.seeds):
        for name, model, x, y in models(seed, networks):
            context.report(f"{name}, seed {seed}")
            # Before anything is fed back strongly, certificates are asked for as they come.
            honest.append((seed, name, certify(model, x, y, loss=_loss)))
            differences += [(seed, name, t, e) for t, e in _differences(model, x, y)]
    context.report("every estimator")
    by_estimator = list(_estimators(context.seed))
    data = load(context, "digits", context.seed)
    batch = data.x[:SAMPLES], data.y[:SAMPLES]
    context.report("gradients that are wrong")
    judged = [
        spoiled.judge(wrong, *batch, data.features, data.classes, context.seed)
        for wrong in spoiled.WRONG
    ]
    loose = [
        spoiled.loose(*batch, data.features, data.classes, seed, tol)
        for seed in context.seeds[:2]
        for tol in (0.3, 0.1)
    ]
    everything = [c for _, _, c in honest] + [c for _, c in by_estimator]
    return Measurements(
        {
            "compared": len(differences),
            "difference": max(error for *_, error in differences),
            "honest": len(everything),
            "honest_refused": sum(not c.ok for c in everything),
            "min_cosine": min(c.min_cosine for c in everything),
            "wrong": len(judged),
            "accepted": sum(not j.refused for j in judged),
            "calibration": max(j.error for j in judged),
            "loose": max(loose),
            "asymmetry": max(c.asymmetry for _, n, c in honest if not _one_way(n)),
        },
        tables=(
            Table(
                f"EP at β = {WEAK:g} in float64 against central differences of the loss, along the "
                "gradient and along a random direction; relative to the gradient's norm",
                (Column("seed", "d"), Column("model"), Column("tensor"), Column("error", ".1e")),
                tuple(differences),
            ),
            Table(
                "Wrong gradients: what the certificate says",
                (
                    Column("gradient"),
                    Column("smallest cosine", "+.4f"),
                    Column("norm ratios"),
                    Column("verdict"),
                    Column("error of cosine and ratio", ".1e"),
                ),
                tuple(
                    (
                        j.wrong.name,
                        j.certificate.min_cosine,
                        ", ".join(f"{t.norm_ratio:.3f}" for t in j.certificate.tensors),
                        ", ".join(r.name for r in j.certificate.reasons) or "PASS",
                        j.error,
                    )
                    for j in judged
                ),
            ),
            Table(
                "Certificates of estimators with a soft nudge, float64",
                (Column("estimator"), Column("smallest cosine", "+.6f"), Column("norm", ".4f")),
                tuple(
                    (name, c.min_cosine, max(t.norm_ratio for t in c.tensors))
                    for name, c in by_estimator
                ),
            ),
        ),
    )


def _one_way(name: str) -> bool:
    return "asymmetric" in name or "attention" in name


def _loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


def _differences(model: EquilibriumModel, x: Tensor, y: Tensor) -> Iterator[tuple[str, float]]:
    """(tensor, error) for every tensor that the estimator trains, and the input."""
    model = model.double()
    model.solver = model.solver.limited(TIGHT, 5000)
    model.gradient = (
        VectorFieldEP(WEAK) if isinstance(model.gradient, VectorFieldEP) else CenteredEP(WEAK)
    )
    x = x.double().requires_grad_() if x.is_floating_point() else x
    estimated = model.estimated_parameters()
    named: dict[str, Tensor] = {n: p for n, p in model.named_parameters() if n in estimated}
    if x.is_floating_point():
        named["input"] = x
    grads = torch.autograd.grad(_loss(model(x), y), list(named.values()))
    generator = torch.Generator().manual_seed(0)

    def loss() -> float:
        with torch.no_grad():
            return float(_loss(model(x), y))

    for (name, tensor), gradient in zip(named.items(), grads, strict=True):
        size = float(gradient.norm())
        side = torch.randn(gradient.shape, generator=generator, dtype=gradient.dtype)
        directions = [gradient / size, side / side.norm()]
        wanted = [float((gradient * d).sum()) for d in directions]
        errors = []
        for step in STEPS:
            found = slopes(loss, [tensor.detach()], [[d] for d in directions], step)
            errors.append([abs(a - b) for a, b in zip(found, wanted, strict=True)])
        yield name, max(map(min, zip(*errors, strict=True))) / size


def _estimators(seed: int) -> Iterator[tuple[str, Certificate]]:
    """Every estimator but the unrolled oracle, which no certificate takes for EP."""
    for name, kind in ESTIMATORS.items():
        if name == "unrolled":
            continue
        torch.manual_seed(seed)
        model, x, y = LoopedMLP.example(radius=0.6, bound="exact", tol=1e-9, max_steps=1000)
        spoiled.strengthen(model)
        model.gradient = spoiled.softened(kind())
        model.on_failure = "ignore"
        yield name, certify(model.double(), x.double(), y)


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        # The bias at a weak nudge, of order β² = 1e-8, and the differences' own error, some 1e-6.
        at_most("difference", 1e-5, "EP's gradient against differences of the loss, any tensor"),
        at_most("honest_refused", 0, "right gradients that a certificate refused"),
        at_most(
            "accepted", 0, "wrong gradients accepted, or refused for the wrong tensor or reason"
        ),
        at_most("calibration", 0.01, "error of a stated cosine or norm ratio that is known"),
        # Two ways to the exact gradient in float64, both to 1e-9 or so.
        at_most("loose", 1e-4, "the same where relaxations stop far too early"),
        at_least("min_cosine", 0.99, "smallest cosine of a right gradient"),
        at_most("asymmetry", 1e-6, "asymmetry of networks that have an energy"),
    )


TRACK = Track(
    number=69,
    title="Certificates on Trial",
    claim="EP's gradient of every model is the slope of its loss, certificates accept it, and "
    "refuse every gradient that is wrong, for the tensor and the reason that it is.",
    experiment="Central differences of the loss in float64 for every kind of model and tensor; "
    "certificates of all models and estimators, and of gradients with one known fault: 0.7 of one "
    f"tensor, one turned by {spoiled.ANGLE:g} degrees, no nudge, too strong a nudge.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("certificate compared with itself", "the oracle is the estimator's own gradient"),
        Sabotage("norms ignored", "a certificate looks at directions alone"),
    ),
    statements=(
        "Of {compared} tensors the largest deviation of EP's gradient from the slope of the loss "
        "was {difference:.1e} of its norm.",
        "Of {honest} right gradients {honest_refused} were refused; of {wrong} wrong ones "
        "{accepted} were accepted or misnamed, and stated cosines and ratios were off by at most "
        "{calibration:.4f}.",
    ),
    cost=12,
)
