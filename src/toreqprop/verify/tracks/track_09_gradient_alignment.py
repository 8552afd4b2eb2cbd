"""Track 9: EP's gradient, tensor by tensor, against the exact one."""

from __future__ import annotations

import torch

from toreqprop.bench.beta_sweep import sweep_beta
from toreqprop.bench.unnudged import UnnudgedEP
from toreqprop.certificate import MIN_COSINE, Certificate, certify
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.plots.alignment import angle, short_name
from toreqprop.training import TrainingConfig, fit
from toreqprop.verify.faults import WrongSign
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Figure, Measurements, Series, Table
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import load, looped
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

BETAS = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0)
BETA = CenteredEP().beta
SLOPE_BETAS = (0.003, 0.01, 0.03, 0.1)


@plantable
def run(context: Context) -> Measurements:
    hidden = context.level.pick(64, 128, 128)
    epochs = context.level.pick((0, 1, 4), (0, 1, 5, 15), (0, 1, 5, 15, 30))
    over_training: list[tuple[int, int, str, float, float]] = []
    over_beta: list[tuple[object, ...]] = []
    trained, swept = [], []
    for seed in context.seeds:
        data = load(context, "digits", seed)
        model = looped(data, hidden, seed, radius=0.95)
        batch = data.x[:64], data.y[:64]
        done = 0
        for number in epochs:
            context.report(f"seed {seed}, epoch {number}")
            if number > done:
                model.gradient = CenteredEP(BETA)
                fit(model, data.x, data.y, TrainingConfig(epochs=number - done, seed=seed + done))
                done = number
            model.gradient = _estimator(context, BETA)
            found = certify(model, *batch)
            trained.append(found)
            over_training += [(seed, number, t.name, t.cosine, t.norm_ratio) for t in found.tensors]
        for beta in BETAS:
            model.gradient = _estimator(context, beta)
            found = certify(model, *batch)
            swept.append((beta, found))
            over_beta += [(seed, beta, t.name, t.cosine, t.norm_ratio) for t in found.tensors]
    context.report("orders of the bias in float64")
    sweep = sweep_beta(context.seed, SLOPE_BETAS)
    values = {
        "min_cosine": _least_cosine(trained),
        "norm_error": _norm_error(trained),
        "min_cosine_over_beta": _least_cosine([c for b, c in swept if b <= BETA]),
        "cosine_at_largest_beta": _least_cosine([c for b, c in swept if b == BETAS[-1]]),
        "centred_order": sweep.slope("centred", SLOPE_BETAS[0], SLOPE_BETAS[-1]),
        "one_sided_order": sweep.slope("one-sided", SLOPE_BETAS[0], SLOPE_BETAS[-1]),
        "asymmetry": max(c.asymmetry for c in trained),
        "certificates": len(trained) + len(swept),
    }
    columns = (Column("tensor"), Column("signed cosine", "+.6f"), Column("norm ratio", ".4f"))
    return Measurements(
        values,
        tables=(
            Table(
                f"Over training, β = {BETA:g}, float32, centred EP against the implicit gradient "
                "in float64",
                (Column("seed", "d"), Column("epoch", "d"), *columns),
                tuple(over_training),
            ),
            Table(
                "Over β, after the last epoch",
                (Column("seed", "d"), Column("β", "g"), *columns),
                tuple(over_beta),
            ),
        ),
        figures=(
            _angles(over_training, context.seed),
            Figure(
                "Gradient error against β in float64",
                "β",
                "relative error of the hidden gradient",
                tuple(
                    Series(
                        name,
                        tuple(p.beta for p in sweep.curve(name, "float64")),
                        tuple(p.error for p in sweep.curve(name, "float64")),
                    )
                    for name in ("one-sided", "centred")
                ),
                log_x=True,
                log_y=True,
            ),
        ),
    )


def _angles(rows: list[tuple[int, int, str, float, float]], seed: int) -> Figure:
    """The angle to the exact gradient over training, one curve per tensor of the first seed."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for owner, epoch, tensor, cosine, _ in rows:
        if owner == seed:
            curves.setdefault(short_name(tensor), []).append((epoch, angle(cosine)))
    return Figure(
        f"Angle between EP's gradient and the exact one over training, seed {seed}",
        "epochs trained",
        "angle, degrees",
        tuple(
            Series(name, tuple(e for e, _ in points), tuple(a for _, a in points))
            for name, points in curves.items()
        ),
        lines={f"cosine {MIN_COSINE:g}": angle(MIN_COSINE)},
    )


def _estimator(context: Context, beta: float) -> GradientEstimator:
    if context.sabotaged("wrong sign"):
        return WrongSign(CenteredEP(beta))
    if context.sabotaged("nudge removed"):
        return UnnudgedEP(beta)
    return CenteredEP(beta)


def _least_cosine(found: list[Certificate]) -> float:
    return min(c.min_cosine for c in found)


def _norm_error(found: list[Certificate]) -> float:
    ratios = torch.tensor([t.norm_ratio for c in found for t in c.tensors], dtype=torch.float64)
    return float((ratios - 1).abs().max())


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("min_cosine", 0.99, f"smallest signed cosine over training, β = {BETA:g}"),
        at_most("norm_error", 0.05, f"largest error of a norm over training, β = {BETA:g}"),
        at_least("min_cosine_over_beta", 0.99, f"smallest signed cosine for β ≤ {BETA:g}"),
        at_least("centred_order", 1.9, "order in β of centred EP's bias (theory: 2)"),
        at_most("centred_order", 2.1, "order in β of centred EP's bias (theory: 2)"),
        at_least("one_sided_order", 0.9, "order in β of one-sided EP's bias (theory: 1)"),
        at_most("one_sided_order", 1.1, "order in β of one-sided EP's bias (theory: 1)"),
        at_least("min_cosine", 0.999, "the same smallest cosine, against 0.999", required=False),
    )


TRACK = Track(
    number=9,
    title="Gradient Alignment",
    claim="EP's gradient has the direction, the sign and the size of the exact gradient for every "
    "tensor, throughout training, with a bias that falls as β².",
    experiment="Certificates against the implicit oracle on digits, before, during and after "
    "training and over β; the orders of the bias on a small network in float64.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("wrong sign", "the gradient points uphill"),
        Sabotage("nudge removed", "the nudged phases relax without a nudge"),
        Sabotage("W_rec's gradient x0.7", "one tensor's gradient is too small"),
        Sabotage("centred contrast one-sided", "centred EP contrasts with the free phase"),
    ),
    statements=(
        "In {certificates} certificates the smallest signed cosine over training was "
        "{min_cosine:.6f} and the largest error of a norm {norm_error:.2%}.",
        "With the strongest nudge of the sweep the smallest cosine was "
        "{cosine_at_largest_beta:.4f}; the measured orders of the bias are "
        "{centred_order:.2f} (centred) and {one_sided_order:.2f} (one-sided).",
    ),
    cost=15,
)
