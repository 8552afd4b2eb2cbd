"""Track 43: networks whose couplings differ by direction, with and without the correction."""

from __future__ import annotations

from toreqprop.certificate import certify
from toreqprop.gradients import VectorFieldEP
from toreqprop.models import LoopedMLP
from toreqprop.training import TrainingConfig
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import (
    Column,
    Figure,
    Measurements,
    Paired,
    Series,
    Table,
    pooled,
)
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import Split, load, looped, train
from toreqprop.verify.probes import error, exact, gradients, least_cosine, order, tight
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above, above_chance, at_least, at_most

BETAS = (0.01, 0.03, 0.1)
SAMPLES = 12
ARMS = {"corrected": True, "not corrected": False}


@plantable
def run(context: Context) -> Measurements:
    hidden, epochs = context.level.pick((24, 4), (32, 8), (48, 12))
    errors: dict[tuple[str, float], list[float]] = {}
    cosines: dict[str, list[float]] = {name: [] for name in ARMS}
    scores: dict[str, list[float]] = {name: [] for name in ARMS}
    accuracies, asymmetries, certified, rows = [], [], [], []
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        for name, correction in ARMS.items():
            model = _directed(data, hidden, seed, correction)
            config = TrainingConfig(epochs=epochs, learning_rate=5e-3, seed=seed)
            trained = train(model, data, config)
            scores[name].append(trained.percent)
            if correction:
                accuracies.append(trained.accuracy())
                kept = model
        model = kept
        found = certify(model, data.x[:SAMPLES], data.y[:SAMPLES])
        certified.append(found.min_cosine)
        asymmetries.append(found.asymmetry)
        net = tight(model)
        x, y = data.x[:SAMPLES].double(), data.y[:SAMPLES]
        wanted = exact(net, x, y)
        for name, correction in ARMS.items():
            used = correction and not context.sabotaged("correction left out")
            for beta in BETAS:
                got = gradients(net, x, y, VectorFieldEP(beta, used))
                errors.setdefault((name, beta), []).append(error(got, wanted))
                if beta == BETAS[0]:
                    cosines[name].append(least_cosine(got, wanted))
            rows.append(
                (seed, name, asymmetries[-1], cosines[name][-1],
                 *(errors[name, b][-1] for b in BETAS))
            )  # fmt: skip
    worst = {key: max(values) for key, values in errors.items()}
    return Measurements(
        {
            "asymmetry": min(asymmetries),
            "min_cosine": min(cosines["corrected"]),
            "certified_cosine": min(certified),
            "cosine_without": max(cosines["not corrected"]),
            "order": order(BETAS, [worst["corrected", b] for b in BETAS]),
            "order_without": order(BETAS, [worst["not corrected", b] for b in BETAS]),
            "accuracy": pooled(accuracies),
            "gap": Paired(tuple(scores["corrected"]), tuple(scores["not corrected"])),
        },
        tables=(
            Table(
                "Trained directed networks, float64: asymmetry ‖U − Uᵀ‖/‖U‖, smallest cosine at "
                f"β = {BETAS[0]:g} and the worst tensor's relative error over β",
                (
                    Column("seed", "d"), Column("nudged phase"), Column("asymmetry", ".3f"),
                    Column("cosine", ".6f"), *(Column(f"β = {b:g}", ".1e") for b in BETAS),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Bias of the gradient of a directed network, worst seed",
                "β",
                "relative error",
                tuple(Series(n, BETAS, tuple(worst[n, b] for b in BETAS)) for n in ARMS),
                log_x=True,
                log_y=True,
            ),
        ),
    )  # fmt: skip


def _directed(data: Split, hidden: int, seed: int, correction: bool) -> LoopedMLP:
    return looped(
        data, hidden, seed, symmetric=False, radius=0.8, bound="exact", max_steps=300,
        gradient=VectorFieldEP(correction=correction),
    )  # fmt: skip


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("asymmetry", 0.5, "asymmetry of the trained network's Jacobian"),
        at_least("min_cosine", 0.9999, "smallest cosine with the correction, weak nudge"),
        at_least("certified_cosine", 0.99, "smallest cosine by certificate, float32"),
        at_most("cosine_without", 0.99, "largest cosine of any seed without the correction"),
        at_least("order", 1.8, "order of the bias with the correction (theory: 2)"),
        at_most("order", 2.2, "order of the bias with the correction (theory: 2)"),
        at_most("order_without", 0.5, "order of the bias without it (theory: 0)"),
        above_chance("accuracy", "test accuracy, trained with the correction, %"),
        at_least("accuracy", level.pick(85.0, 90.0, 90.0), "the same, %"),
        above("gap", -2.0, "accuracy with minus without the correction, points"),
    )


TRACK = Track(
    number=43,
    title="Directed Couplings",
    claim="Where the two directions of a coupling differ, EP with the correction term has the "
    "exact gradient up to O(β²); without it a bias is left that no weak nudge removes.",
    experiment="LoopedMLP with an asymmetric recurrent matrix, trained on digits with and without "
    "the correction; errors against the implicit gradient in float64 over β.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("correction left out", "both nudged phases go uncorrected"),
        Sabotage("correction of vector fields x0.7", "the asymmetry is not quite made up for"),
        Sabotage("shuffled labels", "networks train on labels that mean nothing"),
    ),
    statements=(
        "Trained networks had an asymmetry of {asymmetry:.2f} or more. With the correction the "
        "bias fell with order {order:.2f} and the smallest cosine was {min_cosine:.6f}; without "
        "it the order was {order_without:.2f} and no seed reached more than "
        "{cosine_without:.4f}.",
        "Accuracy with the correction {accuracy}; with minus without it {gap}.",
    ),
    cost=4,
)
