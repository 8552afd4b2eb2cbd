"""Track 53: contrastive Hebbian learning, which clamps outputs instead of nudging them."""

from __future__ import annotations

from toreqprop.certificate import certify
from toreqprop.gradients import CenteredEP, ContrastiveLearning, GradientEstimator
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
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import load, looped, train
from toreqprop.verify.probes import error, exact, gradients, least_cosine, mean, order, tight
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above, above_chance, at_least, at_most

CLAMPS = (0.02, 0.05, 0.1)
HARD = 2.0
"""A clamp that holds the output: the classical form."""

SAMPLES = 16


@plantable
def run(context: Context) -> Measurements:
    hidden, epochs = context.level.pick((24, 3), (32, 6), (48, 8))
    scores: list[Accuracy] = []
    twins: list[Accuracy] = []
    orders, hard, nudged, rows = [], [], [], []
    errors: list[float] = []
    granted = 0
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        config = TrainingConfig(epochs=epochs, learning_rate=5e-3, seed=seed)
        networks = {}
        for name, estimator in (("hebbian", ContrastiveLearning(HARD)), ("ep", CenteredEP())):
            networks[name] = looped(
                data, hidden, seed, radius=0.7, bound="tight", gradient=estimator
            )
            (scores if name == "hebbian" else twins).append(
                train(networks[name], data, config).accuracy()
            )
        batch = data.x[:SAMPLES], data.y[:SAMPLES]
        granted += certify(networks["hebbian"], *batch).ok
        net = tight(networks["hebbian"], 1e-10)
        x, y = data.x[:SAMPLES].double(), data.y[:SAMPLES]
        wanted = exact(net, x, y)
        errors = [error(gradients(net, x, y, _clamp(context, k)), wanted) for k in CLAMPS]
        orders.append(order(CLAMPS, errors))
        strong = gradients(net, x, y, _clamp(context, HARD))
        hard.append(error(strong, wanted))
        nudged.append(error(gradients(net, x, y, CenteredEP()), wanted))
        rows.append((seed, *errors, hard[-1], least_cosine(strong, wanted), nudged[-1]))
    both = pooled(scores), pooled(twins)
    return Measurements(
        {
            "order_least": min(orders),
            "order_most": max(orders),
            "hard_error": min(hard),
            "certified": granted,
            "ep_error": max(nudged),
            "accuracy": both[0],
            "ep_accuracy": both[1],
            "gap": Paired(both[1].scores, both[0].scores),
        },
        tables=(
            Table(
                "Relative error of the worst tensor's gradient on trained networks, float64",
                (
                    Column("seed", "d"), *(Column(f"stiffness {k:g}", ".1e") for k in CLAMPS),
                    Column(f"stiffness {HARD:g}", ".1e"), Column("its cosine", ".4f"),
                    Column("centred EP", ".1e"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Bias against the clamp's stiffness, last seed",
                "stiffness",
                "relative error",
                (
                    Series("contrastive Hebbian", (*CLAMPS, HARD), (*errors, hard[-1])),
                    Series("centred EP", (CLAMPS[0], HARD), (mean(nudged),) * 2),
                ),
                log_x=True,
                log_y=True,
            ),
        ),
    )  # fmt: skip


def _clamp(context: Context, stiffness: float) -> GradientEstimator:
    if context.sabotaged("a nudge instead of a clamp"):
        return CenteredEP()
    return ContrastiveLearning(stiffness)


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("order_least", 0.8, "power of stiffness with which its bias falls (theory: 1)"),
        at_most("order_most", 1.2, "power of stiffness with which its bias falls (theory: 1)"),
        at_least("hard_error", 0.2, "relative error of a hard clamp's gradient"),
        at_most("certified", 0, "certificates granted to hard clamps"),
        at_most("ep_error", 0.01, "relative error of centred EP's on the same networks"),
        above_chance("accuracy", "test accuracy, trained by hard clamps, %"),
        at_least("accuracy", level.pick(80.0, 85.0, 88.0), "the same, %"),
        above("gap", -2.0, "accuracy, EP minus hard clamps, points"),
    )


TRACK = Track(
    number=53,
    title="Contrastive Hebbian Learning",
    claim="A clamp is a nudge of finite stiffness: its bias falls in proportion to it, a hard one "
    "is far from the gradient, and networks learn by it all the same.",
    experiment="LoopedMLP trained on digits by hard clamps and by EP; errors against the implicit "
    "gradient in float64 over the clamp's stiffness.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("a nudge instead of a clamp", "contrastive learning hands over centred EP"),
        Sabotage("contrast of clamps x1.2", "the contrast is divided by too weak a force"),
        Sabotage("bias's gradient x0.7", "one tensor's gradient is too small"),
        Sabotage("shuffled labels", "networks train on labels that mean nothing"),
    ),
    statements=(
        "The bias fell with the power {order_least:.2f} to {order_most:.2f} of the stiffness; a "
        "hard clamp was off by {hard_error:.0%} or more, centred EP by {ep_error:.1e} or less.",
        "Accuracy by hard clamps {accuracy}, by EP {ep_accuracy}; EP minus hard clamps {gap}.",
    ),
    cost=3,
)
