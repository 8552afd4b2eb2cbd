"""Track 28: noise and attacks on the input, against a twin of equal accuracy."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.gradients import ImplicitGradient
from toreqprop.models import EquilibriumModel
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Accuracy, Measurements, Paired, Value, pooled
from toreqprop.verify.networks import load
from toreqprop.verify.probes import mean
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.twins import (
    ARMS,
    BACKPROP,
    EP,
    Curves,
    harm_figures,
    harm_table,
    paired,
    score,
    twins,
)
from toreqprop.verify.verdict import Bound, above_chance, at_least, at_most, equivalent

SIZES = (0.1, 0.2, 0.4)
"""Of the change of every pixel, in standard deviations: the sign of noise, and of a gradient."""

MIDDLE = 0.2
PGD_STEPS = 8
HARMS = {
    "noise": "Every pixel moved at random",
    "FGSM": "Every pixel moved along the exact gradient's sign, once",
    "PGD": "The same in steps, each along the gradient where it has got to",
}


def run(context: Context) -> Measurements:
    hidden, epochs = context.level.pick((48, 8), (64, 12), (96, 20))
    curves: Curves = {}
    clean: dict[str, list[Accuracy]] = {arm: [] for arm in ARMS}
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        for arm, trained in twins(data, hidden, seed, epochs).items():
            clean[arm].append(trained.accuracy())
            model = trained.model
            if isinstance(model, EquilibriumModel):
                # The attack uses the exact gradient, to a small residual: nothing hides behind EP.
                model.gradient, model.tol = ImplicitGradient(), 1e-5
            for size in SIZES:
                for harm in HARMS:
                    moved = _attack(context, model, data.test_x, data.test_y, harm, size, seed)
                    found = score(model, moved, data.test_y)
                    curves.setdefault((arm, harm, size), []).append(found)
    both = {arm: pooled(parts) for arm, parts in clean.items()}
    values: dict[str, Value] = {
        "ep_accuracy": both[EP],
        "backprop_accuracy": both[BACKPROP],
        "clean_gap": Paired(both[EP].scores, both[BACKPROP].scores),
        "attack_over_noise": min(
            mean(curves[arm, "noise", MIDDLE]) - mean(curves[arm, "PGD", MIDDLE]) for arm in ARMS
        ),
        "pgd_minus_fgsm": max(
            mean(curves[arm, "PGD", s]) - mean(curves[arm, "FGSM", s])
            for arm in ARMS
            for s in SIZES
        ),
        "least_under_pgd": min(mean(curves[arm, "PGD", max(SIZES)]) for arm in ARMS),
    }
    values |= {f"{harm}_gap": paired(curves, harm, MIDDLE) for harm in HARMS}
    return Measurements(
        values,
        tables=(harm_table("Test accuracy under noise and attack, mean over seeds", curves),),
        figures=harm_figures(
            HARMS, curves, {arm: both[arm].scores for arm in ARMS}, both[EP].chance_percent
        ),
    )


def _attack(
    context: Context, model: nn.Module, x: Tensor, y: Tensor, harm: str, size: float, seed: int
) -> Tensor:
    """A copy of ``x`` in which no pixel is moved by more than ``size``."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(x.shape, generator=generator).sign()
    if harm == "noise":
        return x + size * drawn
    steps, stride = (1, size) if harm == "FGSM" else (PGD_STEPS, 2.5 * size / PGD_STEPS)
    moved = x
    for _ in range(steps):
        leaf = moved.detach().requires_grad_()
        (slope,) = torch.autograd.grad(F.cross_entropy(model(leaf), y), leaf)
        way = -slope.sign() if context.sabotaged("attack goes downhill") else slope.sign()
        if context.sabotaged("attack by noise"):
            way = torch.randn(x.shape, generator=generator).sign()
        moved = torch.min(torch.max(moved + stride * way, x - size), x + size)
    return moved.detach()


def bounds(level: Level) -> tuple[Bound, ...]:
    rest: tuple[Bound, ...] = (
        above_chance("ep_accuracy", "clean test accuracy of EP, %"),
        above_chance("backprop_accuracy", "clean test accuracy of backprop, %"),
        at_least("ep_accuracy", level.pick(90.0, 93.0, 94.0), "clean test accuracy of EP, %"),
        equivalent("clean_gap", 3.0, "clean accuracy, EP minus backprop, points"),
        at_least("attack_over_noise", 10.0, "points PGD takes beyond noise of the same size"),
        at_most("pgd_minus_fgsm", 1.0, "accuracy under PGD minus that under FGSM, points"),
    )
    return rest + tuple(
        equivalent(f"{harm}_gap", 10.0, f"accuracy under {harm}, EP minus backprop, points")
        for harm in HARMS
    )


TRACK = Track(
    number=28,
    title="Robustness",
    claim="A network that settles is as vulnerable as its feed-forward twin of equal accuracy: "
    "under noise, FGSM and PGD the two are within ten points.",
    experiment="LoopedMLP and a backprop network of as many weights on digits; attacks through the "
    "exact (implicit) gradient, at equal sizes, paired over seeds.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("attack goes downhill", "attacks lower the loss"),
        Sabotage("attack by noise", "attacks follow no gradient"),
        Sabotage("shuffled labels", "networks train on labels that mean nothing"),
    ),
    statements=(
        "Clean: EP {ep_accuracy}, backprop {backprop_accuracy}. EP minus backprop under noise "
        "{noise_gap}, FGSM {FGSM_gap}, PGD {PGD_gap}.",
        "PGD took {attack_over_noise:.1f} points or more beyond noise of the same size; under the "
        "strongest the weaker of the two was left with {least_under_pgd:.1f} %.",
    ),
    cost=5,
)
