"""Track 42: a nudge that turns in the complex plane, on trained networks."""

from __future__ import annotations

from toreqprop.gradients import CenteredEP, GradientEstimator, HolomorphicEP
from toreqprop.training import TrainingConfig
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Figure, Measurements, Series, Table, pooled
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import load, looped, train
from toreqprop.verify.probes import error, exact, gradients, least_cosine, order, tight
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above_chance, at_least, at_most

POINTS = (2, 4, 8)
BETAS = (0.1, 0.15, 0.22)
"""From where a bias of the eighth order is above rounding to where centred EP's is plain."""

SAMPLES = 8


@plantable
def run(context: Context) -> Measurements:
    hidden, epochs = context.level.pick((24, 2), (48, 6), (64, 10))
    errors: dict[tuple[int, float], list[float]] = {}
    cosines: dict[int, list[float]] = {n: [] for n in POINTS}
    accuracies, rows = [], []
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        model = looped(
            data, hidden, seed, radius=0.5, bound="tight", gradient=HolomorphicEP(0.2, 4)
        )
        config = TrainingConfig(epochs=epochs, learning_rate=5e-3, seed=seed)
        accuracies.append(train(model, data, config).accuracy())
        net = tight(model)
        x, y = data.x[:SAMPLES].double(), data.y[:SAMPLES]
        wanted = exact(net, x, y)
        for points in POINTS:
            for beta in BETAS:
                found = gradients(net, x, y, _estimator(context, beta, points))
                errors.setdefault((points, beta), []).append(error(found, wanted))
            cosines[points].append(least_cosine(found, wanted))
        rows += [(seed, p, *(errors[p, b][-1] for b in BETAS), cosines[p][-1]) for p in POINTS]
    worst = {key: max(found) for key, found in errors.items()}
    orders = {p: order(BETAS, [worst[p, b] for b in BETAS]) for p in POINTS}
    strongest = BETAS[-1]
    return Measurements(
        {
            "order_2": orders[2],
            "order_4": orders[4],
            "order_8": orders[8],
            "centred_error": min(errors[2, strongest]),
            "gain": min(
                a / b for a, b in zip(errors[2, strongest], errors[8, strongest], strict=True)
            ),
            "min_cosine": min(cosines[8]),
            "min_cosine_centred": min(cosines[2]),
            "accuracy": pooled(accuracies),
        },
        tables=(
            Table(
                "Relative error of the worst tensor's gradient after training, float64, and the "
                f"smallest cosine at β = {strongest:g}",
                (
                    Column("seed", "d"), Column("points", "d"),
                    *(Column(f"β = {b:g}", ".1e") for b in BETAS), Column("cosine", ".6f"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Bias of the gradient against the nudge, worst seed",
                "β",
                "relative error",
                tuple(
                    Series(f"{p} points", BETAS, tuple(worst[p, b] for b in BETAS)) for p in POINTS
                ),
                log_x=True,
                log_y=True,
            ),
        ),
    )  # fmt: skip


def _estimator(context: Context, beta: float, points: int) -> GradientEstimator:
    if context.sabotaged("real nudges alone"):
        return CenteredEP(beta)
    return HolomorphicEP(beta, points)


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("order_2", 1.8, "order of the bias, 2 points (theory: 2)"),
        at_most("order_2", 2.3, "order of the bias, 2 points (theory: 2)"),
        at_least("order_4", 3.6, "order of the bias, 4 points (theory: 4)"),
        at_most("order_4", 4.6, "order of the bias, 4 points (theory: 4)"),
        at_least("order_8", 7.2, "order of the bias, 8 points (theory: 8)"),
        at_most("order_8", 9.2, "order of the bias, 8 points (theory: 8)"),
        at_least("centred_error", 1e-3, "centred EP's error at the strongest nudge"),
        at_least("gain", 20.0, "how often that is 8 points' error at the same nudge"),
        at_least("min_cosine", 0.9999, "smallest cosine, 8 points, strongest nudge"),
        above_chance("accuracy", "test accuracy when trained by 4 points at β = 0.2, %"),
        at_least("accuracy", level.pick(80.0, 90.0, 92.0), "the same, %"),
    )


TRACK = Track(
    number=42,
    title="Holomorphic EP",
    claim="On trained networks N complex nudges leave a bias of order β^N, so that nudges twenty "
    "times the default give a gradient that is exact for all purposes.",
    experiment="LoopedMLP trained on digits by HolomorphicEP; errors of 2, 4 and 8 points against "
    "the implicit gradient in float64, over β.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("real nudges alone", "every number of points falls back to the two real ones"),
        Sabotage("holomorphic points counted once", "conjugate pairs do not count twice"),
        Sabotage("bias's gradient x0.7", "one tensor's gradient is too small"),
    ),
    statements=(
        "The bias fell with order {order_2:.2f}, {order_4:.2f} and {order_8:.2f} in β for 2, 4 and "
        "8 points; at the strongest nudge 8 points were {gain:.0f} times closer than centred EP, "
        "whose error was {centred_error:.1e} or more.",
        "Smallest cosine there: {min_cosine:.7f} (8 points), {min_cosine_centred:.5f} (centred). "
        "Accuracy {accuracy}.",
    ),
    cost=4,
)
