"""Track 32: clamp the class, relax the pixels; a held-out classifier judges the images."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.gradients import CenteredEP
from toreqprop.models import HopfieldMLP
from toreqprop.training import TrainingConfig, fit
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import (
    Accuracy,
    Column,
    Figure,
    Measurements,
    Series,
    Table,
    pooled,
)
from toreqprop.verify.networks import Split, baseline, load, train
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.twins import score
from toreqprop.verify.verdict import Bound, above_chance, at_least, at_most

SCALE = 4.0
"""Pixels are relaxed as neurons, which stay within one: the images are divided by this."""


def run(context: Context) -> Measurements:
    hidden, epochs = context.level.pick((48, 6), (96, 15), (128, 30))
    asked, same, judges, errors, rows = [], [], [], [], []
    shown: list[float] = []
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        model = _generator(context, data, hidden, epochs, seed)
        # The judge has learnt from other draws, by backprop, and has never seen a generated image.
        other = load(context, "digits", seed + 1000)
        judge = baseline(other, 64, seed)
        train(judge, other, TrainingConfig(epochs=8, learning_rate=3e-3, seed=seed))
        judges.append(score(judge, data.test_x, data.test_y))
        top = data.test_x[:, : data.features // 2]
        generator = torch.Generator().manual_seed(seed)
        shift = torch.randint(1, data.classes, data.test_y.shape, generator=generator)
        wrong = (data.test_y + shift) % data.classes
        with torch.no_grad():
            made = _complete(context, model, top, data.test_y, data.classes)
            turned = _complete(context, model, top, wrong, data.classes)
            judged, judged_wrong = judge(made).argmax(1), judge(turned).argmax(1)
            means = torch.stack([data.x[data.y == c].mean(0) for c in range(data.classes)])
        half = data.features // 2
        bottom = data.test_x[:, half:]
        loss = float((made[:, half:] - bottom).square().mean())
        base = float((means[data.test_y][:, half:] - bottom).square().mean())
        same.append(_accuracy(judged, data.test_y, data.chance))
        asked.append(_accuracy(judged_wrong, wrong, data.chance))
        errors.append(loss / base)
        rows.append((seed, judges[-1], same[-1].mean, asked[-1].mean, loss, base))
        shown = [float(v) for v in made[0, half:]]
    return Measurements(
        {
            "judge": min(judges),
            "accuracy": pooled(same),
            "turned_accuracy": pooled(asked),
            "relative_error": max(errors),
        },
        tables=(
            Table(
                "Lower halves of unseen digits, relaxed with the class and the upper half clamped: "
                "the judge's accuracy on real digits, its agreement with the true and with "
                "another clamped class, and the squared error next to the class mean's",
                (
                    Column("seed", "d"), Column("judge, real digits, %", ".1f"),
                    Column("true class, %", ".1f"), Column("other class, %", ".1f"),
                    Column("squared error", ".3f"), Column("of the class mean", ".3f"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "The lower half of one unseen digit, pixel by pixel, last seed",
                "pixel",
                "standard deviations",
                (
                    Series("relaxed", tuple(range(len(shown))), tuple(shown)),
                    Series("real", tuple(range(len(shown))), tuple(float(v) for v in bottom[0])),
                ),
            ),
        ),
    )  # fmt: skip


def _accuracy(found: Tensor, wanted: Tensor, chance: float) -> Accuracy:
    return Accuracy((int((found == wanted).sum()),), (len(wanted),), chance)


def _inputs(top: Tensor, y: Tensor, classes: int) -> Tensor:
    """What is clamped: the upper half, and the class as ten neurons as strong as all its pixels."""
    one_hot = F.one_hot(y, classes).to(top.dtype)
    return torch.cat([top, 3.0 * one_hot], dim=1)


def _generator(context: Context, data: Split, hidden: int, epochs: int, seed: int) -> HopfieldMLP:
    """Clamped inputs, hidden neurons, and the lower half's pixels as free neurons."""
    half = data.features // 2
    torch.manual_seed(seed)
    model = HopfieldMLP(
        [half + data.classes, hidden, data.features - half], output="free", radius=0.9,
        bound="tight", gradient=CenteredEP(), on_failure="ignore",
    )  # fmt: skip
    y = data.y
    if context.sabotaged("classes clamped at random"):
        y = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))]
    if context.sabotaged("a frozen layer"):
        model.layers[0].requires_grad_(False)
    x = _inputs(data.x[:, :half], y, data.classes)
    target = (data.x[:, half:] / SCALE).clamp(-0.99, 0.99)
    config = TrainingConfig(epochs=epochs, learning_rate=3e-3, seed=seed)
    fit(model, x, target, config, loss=lambda a, b: 10 * F.mse_loss(a, b))
    return model


def _complete(context: Context, model: HopfieldMLP, top: Tensor, y: Tensor, classes: int) -> Tensor:
    """The clamped upper half and the relaxed lower one."""
    return torch.cat([top, SCALE * model(_inputs(top, y, classes))], dim=1)


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("judge", 90.0, "the judge's score on real test digits, %"),
        above_chance("accuracy", "judge agrees with the true clamped class, %"),
        at_least("accuracy", level.pick(85.0, 88.0, 90.0), "the same, %"),
        above_chance("turned_accuracy", "judge agrees with another clamped class, %"),
        at_least("turned_accuracy", level.pick(18.0, 20.0, 20.0), "the same, %"),
        at_most("relative_error", 0.95, "squared error over that of the class mean"),
    )


TRACK = Track(
    number=32,
    title="Generation",
    claim="With the class and the upper half of a digit clamped, relaxation completes a lower half "
    "that is closer to the real one than the class mean, and that follows the class: clamp "
    "another, and a held-out judge sees that one far above chance.",
    experiment="HopfieldMLP whose free outputs are pixels, trained by EP on digits; completions of "
    "unseen digits judged by a backprop network trained on other draws.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("classes clamped at random", "in training the clamped class means nothing"),
        Sabotage("a frozen layer", "the first layer is left as it was drawn"),
    ),
    statements=(
        "The judge ({judge:.1f} % or more on real digits) agreed with the true clamped class: "
        "{accuracy}; with another clamped class: {turned_accuracy}. The squared error was "
        "{relative_error:.2f} of the class mean's or less.",
    ),
    cost=5,
)
