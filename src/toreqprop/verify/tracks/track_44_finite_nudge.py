"""Track 44: what EP computes when the nudge is not small, on trained networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from toreqprop.gradients import CenteredEP, ImplicitGradient, OneSidedEP
from toreqprop.models import LoopedMLP
from toreqprop.training import TrainingConfig
from toreqprop.verify.independent import Array, Stack, apart, effective_gradients
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
from toreqprop.verify.networks import Split, Trained, load, looped, train
from toreqprop.verify.probes import order, tight
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above, above_chance, at_least, at_most

STRONG = 0.5
BETAS = (0.02, 0.05, 0.1)
SAMPLES = 8
STEP = 1e-4
"""Of the finite differences: their error is of its square, and rounding's is 1e-16 over it."""


@plantable
def run(context: Context) -> Measurements:
    hidden, epochs = context.level.pick((24, 4), (48, 10), (64, 20))
    surrogate, bias, orders, rows = [], [], [], []
    strong, weak = [], []
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        model, trained = _trained(data, hidden, epochs, seed, STRONG)
        strong.append(trained.accuracy())
        weak.append(_trained(data, hidden, epochs, seed, CenteredEP().beta)[1].percent)
        net = tight(model)
        net.kernel = None
        x, y = data.x[:SAMPLES].double(), data.y[:SAMPLES]
        net.gradient = ImplicitGradient()
        exact = effective_gradients(net, x, y)
        net.gradient = CenteredEP(STRONG)
        found = effective_gradients(net, x, y)
        bias.append(apart(found, exact))
        deviation = _against_surrogate(Stack.of(net), x.numpy(), y.numpy(), found, seed)
        surrogate.append(max(deviation.values()))
        curves = []
        for build in (CenteredEP, OneSidedEP):
            errors = []
            for beta in BETAS:
                net.gradient = build(beta)
                errors.append(apart(effective_gradients(net, x, y), exact))
            curves.append(errors)
        orders.append([order(BETAS, c) for c in curves])
        rows += [(seed, name, value, bias[-1]) for name, value in deviation.items()]
    accuracy = pooled(strong)
    return Measurements(
        {
            "surrogate": max(surrogate),
            "bias": min(bias),
            "centred_least": min(o[0] for o in orders),
            "centred_most": max(o[0] for o in orders),
            "one_sided_least": min(o[1] for o in orders),
            "one_sided_most": max(o[1] for o in orders),
            "accuracy": accuracy,
            "gap": Paired(accuracy.scores, tuple(weak)),
        },
        tables=(
            Table(
                f"EP's gradient at β = {STRONG:g} against central differences of the surrogate "
                "loss, and the bias of the whole against the gradient of the loss itself",
                (
                    Column("seed", "d"), Column("tensor"), Column("from the surrogate's", ".1e"),
                    Column("from the loss's", ".1e"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                f"Bias on the last network trained, which a nudge of {STRONG:g} has trained",
                "β",
                "relative error",
                tuple(
                    Series(name, BETAS, tuple(c))
                    for name, c in zip(("centred", "one-sided"), curves, strict=True)
                ),
                log_x=True,
                log_y=True,
            ),
        ),
    )  # fmt: skip


def _trained(
    data: Split, hidden: int, epochs: int, seed: int, beta: float
) -> tuple[LoopedMLP, Trained]:
    model = looped(data, hidden, seed, radius=0.6, bound="exact", gradient=CenteredEP(beta))
    config = TrainingConfig(epochs=epochs, learning_rate=5e-3, seed=seed)
    return model, train(model, data, config)


def _against_surrogate(
    stack: Stack, x: Array, y: Array, found: dict[str, Array], seed: int
) -> dict[str, float]:
    """Derivatives of ``Σ w·[F(β) − F(−β)]/2β``, ``F(β) = min E + β⟨ĝ, s⟩``, in two directions per
    tensor (its own gradient and a random one), against EP's; the cotangent ĝ is held."""
    teaching = stack.cotangent(stack.relax(x), y)
    size = np.maximum(np.sqrt((teaching**2).mean(1)), np.abs(teaching).max(1) / 4.0)
    push = STRONG * teaching / size[:, None]
    rng = np.random.default_rng(seed)
    deviation = {}
    for name, gradient in found.items():
        noise = rng.standard_normal(gradient.shape)
        if name == "loop":
            noise = noise + noise.T
        worst = 0.0
        for along in (gradient, noise):
            along = along / np.linalg.norm(along)
            high, low = (
                _surrogate(_moved(stack, name, sign * STEP * along), x, push, size)
                for sign in (1, -1)
            )
            gap = abs((high - low) / (2 * STEP) - float((gradient * along).sum()))
            worst = max(worst, gap / float(np.linalg.norm(gradient)))
        deviation[name] = worst
    return deviation


def _surrogate(stack: Stack, x: Array, push: Array, size: Array) -> float:
    energies = []
    for sign in (1, -1):
        (s,) = stack.relax(x, sign * push)
        held = s * np.arctanh(s) + 0.5 * np.log1p(-s * s)
        driven = s * (x @ stack.weights[0].T + stack.biases[0] - sign * push)
        assert stack.loop is not None
        energies.append((held - driven - 0.5 * s * (s @ stack.loop)).sum(1))
    return float((size / (2 * STRONG) * (energies[0] - energies[1])).sum())


def _moved(stack: Stack, name: str, change: Array) -> Stack:
    if name == "loop":
        assert stack.loop is not None
        return replace(stack, loop=stack.loop + change)
    if name == "W0":
        return replace(stack, weights=(stack.weights[0] + change,))
    return replace(stack, biases=(stack.biases[0] + change,))


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        # Central differences with a step of 1e-4 are good for 1e-7 here.
        at_most("surrogate", 1e-5, "deviation from the gradient of the surrogate loss"),
        at_least("bias", 1e-2, "deviation from the gradient of the loss, which is another"),
        at_least("centred_least", 1.8, "order of centred EP's bias (theory: 2)"),
        at_most("centred_most", 2.2, "order of centred EP's bias (theory: 2)"),
        at_least("one_sided_least", 0.85, "order of one-sided EP's bias (theory: 1)"),
        at_most("one_sided_most", 1.25, "order of one-sided EP's bias (theory: 1)"),
        above_chance("accuracy", "test accuracy, trained with the strong nudge, %"),
        at_least("accuracy", level.pick(85.0, 90.0, 92.0), "the same, %"),
        above("gap", -3.0, "accuracy, strong nudge minus the default one, points"),
    )


TRACK = Track(
    number=44,
    title="Finite Nudge",
    claim="At any nudge, however strong, centred EP is the exact gradient of a loss of its own, "
    "[F(β) − F(−β)]/2β with F the least nudged energy, and networks learn by it.",
    experiment="LoopedMLP trained on digits at fifty times the default nudge; its gradient against "
    "central differences of that loss, which NumPy finds alone; orders of the bias.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("shift of tanh to first order", "a finite nudge becomes an infinitesimal one"),
        Sabotage("W_rec's gradient x0.7", "one tensor's gradient is too small"),
        Sabotage("shuffled labels", "networks train on labels that mean nothing"),
    ),
    statements=(
        "The gradient at the strong nudge differed from that of the surrogate loss by at most "
        "{surrogate:.1e} of its size, and from that of the loss itself by {bias:.1e} or more.",
        "On trained networks the bias fell with order {centred_least:.2f} to {centred_most:.2f} "
        "(centred) and {one_sided_least:.2f} to {one_sided_most:.2f} (one-sided).",
        "Accuracy when trained so {accuracy}; minus that of the default nudge {gap}.",
    ),
    cost=4,
)
