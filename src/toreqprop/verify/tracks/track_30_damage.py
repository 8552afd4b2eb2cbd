"""Track 30: neurons and weights taken away after training, against a twin of equal accuracy."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from toreqprop.models import BackpropMLP, LoopedMLP
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
from toreqprop.verify.verdict import Bound, above, above_chance, at_least, equivalent

SHARES = (0.1, 0.2, 0.3, 0.5)
MIDDLE = 0.2
DRAWS = 5
KINDS = {"neurons": "Hidden neurons silenced", "weights": "Weights set to zero"}


def run(context: Context) -> Measurements:
    hidden, epochs = context.level.pick((48, 8), (64, 15), (128, 25))
    curves: Curves = {}
    clean: dict[str, list[Accuracy]] = {arm: [] for arm in ARMS}
    left: dict[str, Accuracy] = {}
    silenced = []
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        for arm, trained in twins(data, hidden, seed, epochs).items():
            clean[arm].append(trained.accuracy())
            for kind in KINDS:
                for share in SHARES:
                    scores = []
                    for draw in range(DRAWS):
                        generator = torch.Generator().manual_seed(1000 * seed + draw)
                        hurt = copy.deepcopy(trained.model)
                        if not context.sabotaged("nothing is taken away"):
                            silenced.append(_hurt(hurt, kind, share, generator) / share)
                        scores.append(score(hurt, data.test_x, data.test_y))
                    curves.setdefault((arm, kind, share), []).append(mean(scores))
                    if share == MIDDLE and kind == "neurons":
                        count = len(data.test_y)
                        part = Accuracy((round(mean(scores) * count / 100),), (count,), data.chance)
                        left[arm] = pooled([left[arm], part]) if arm in left else part
    both = {arm: pooled(parts) for arm, parts in clean.items()}
    values: dict[str, Value] = {
        "ep_accuracy": both[EP],
        "backprop_accuracy": both[BACKPROP],
        "ep_lesioned_accuracy": left[EP],
        "backprop_lesioned_accuracy": left[BACKPROP],
        "clean_gap": Paired(both[EP].scores, both[BACKPROP].scores),
        "taken": min(silenced, default=0.0),
        "half_gap": paired(curves, "neurons", 0.5),
    }
    values |= {f"{kind}_gap": paired(curves, kind, MIDDLE) for kind in KINDS}
    lost = {arm: Paired(both[arm].scores, tuple(curves[arm, "neurons", 0.5])) for arm in ARMS}
    values |= {f"{arm.lower()}_lost_at_half": gap for arm, gap in lost.items()}
    # One seed has no interval, and shows nothing.
    ends = [gap.compare(1.0).gap.low for gap in lost.values()]
    values["least_lost_at_half"] = min(math.nan if end is None else end for end in ends)
    return Measurements(
        values,
        tables=(
            harm_table(
                f"Test accuracy with a share of neurons or weights gone, mean of {DRAWS} draws and "
                "of the seeds; neurons in every hidden layer, weights in every matrix",
                curves,
            ),
        ),
        figures=harm_figures(
            KINDS, curves, {arm: both[arm].scores for arm in ARMS}, both[EP].chance_percent
        ),
    )


@torch.no_grad()
def _hurt(model: nn.Module, kind: str, share: float, generator: torch.Generator) -> float:
    """Take a share away, in place; returns the share that is gone."""
    if isinstance(model, LoopedMLP):
        kept = model.recurrent.weight.clone()
        matrices = [model.input.weight, kept, model.readout.weight]
        biases, layers = [model.input.bias], [(0, 1), (1, 1)]
    else:
        assert isinstance(model, BackpropMLP)
        linear = [part for part in model.layers if isinstance(part, nn.Linear)]
        matrices, biases = [part.weight for part in linear], [part.bias for part in linear]
        layers = [(0, 1), (1, 2)]
    gone = []
    if kind == "weights":
        for matrix in matrices:
            mask = _mask(matrix.numel(), share, generator).reshape(matrix.shape)
            matrix[mask] = 0
            gone.append(float(mask.double().mean()))
    else:
        masks: dict[int, Tensor] = {}
        for into, out in layers[:1] if isinstance(model, LoopedMLP) else layers:
            mask = masks.setdefault(into, _mask(len(matrices[into]), share, generator))
            matrices[into][mask], biases[into][mask] = 0, 0
            matrices[out][:, mask] = 0
            if isinstance(model, LoopedMLP):
                matrices[1][mask] = 0
                matrices[2][:, mask] = 0
            gone.append(float(mask.double().mean()))
    if isinstance(model, LoopedMLP):
        # What is left of the matrix is within the ball; it is used as it is.
        model.recurrent.constraints = nn.ModuleList()
        model.recurrent.raw.copy_(0.5 * (kept + kept.mT) if kind == "neurons" else _even(kept))
    return min(gone)


def _even(matrix: Tensor) -> Tensor:
    """A coupling is one thing with two directions: it is gone where its upper half is."""
    upper = matrix.triu()
    return upper + upper.triu(1).mT


def _mask(count: int, share: float, generator: torch.Generator) -> Tensor:
    mask = torch.zeros(count, dtype=torch.bool)
    mask[torch.randperm(count, generator=generator)[: round(share * count)]] = True
    return mask


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        above_chance("ep_accuracy", "clean test accuracy of EP, %"),
        above_chance("backprop_accuracy", "clean test accuracy of backprop, %"),
        equivalent("clean_gap", 3.0, "clean accuracy, EP minus backprop, points"),
        at_least("taken", 0.9, "share taken away, over the share asked for"),
        # That damage is damage: no more is claimed. How much is lost falls with the width, so that
        # no number of points holds at every level.
        above(
            "least_lost_at_half",
            0.0,
            "points lost with half of the neurons gone, lower end of the 95 % interval, either",
        ),
        above_chance("ep_lesioned_accuracy", "test accuracy of EP, a fifth of neurons gone, %"),
        at_least("ep_lesioned_accuracy", 70.0, "the same, %"),
        equivalent("neurons_gap", 8.0, "EP minus backprop, a fifth of neurons gone, points"),
        equivalent("weights_gap", 8.0, "EP minus backprop, a fifth of weights gone, points"),
    )


TRACK = Track(
    number=30,
    title="Damage",
    claim="With a fifth of its neurons or weights gone a network that settles still works, and as "
    "well as its feed-forward twin of equal accuracy, no better: within eight points.",
    experiment="LoopedMLP and a backprop network of as many weights on digits, lesioned at random "
    "after training and relaxed anew, paired over seeds.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("nothing is taken away", "lesions are not applied"),
        Sabotage("shuffled labels", "networks train on labels that mean nothing"),
    ),
    statements=(
        "Clean: EP {ep_accuracy}, backprop {backprop_accuracy}. With a fifth of the neurons gone "
        "EP {ep_lesioned_accuracy}; EP minus backprop {neurons_gap}, with a fifth of the weights "
        "gone {weights_gap}, with half of the neurons gone {half_gap}.",
        "Half of the neurons gone cost EP {ep_lost_at_half}, backprop {backprop_lost_at_half}.",
    ),
    cost=5,
)
