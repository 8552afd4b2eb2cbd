"""Track 3: noise injected in the middle of a relaxation dies out at the certified rate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop.energies import System
from toreqprop.energies.system import sample_norm
from toreqprop.models import LoopedMLP
from toreqprop.training import TrainingConfig
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Figure, Measurements, Series, Table, pooled
from toreqprop.verify.networks import load, looped, train
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above, above_chance, at_most, below

STEPS_BEFORE, STEPS_AFTER = 5, 40
STEPS_TO_TARGET = 500
SIZES = (0.1, 0.5, 1.0, 2.0)
"""Norm of the noise, relative to the norm of the equilibrium."""

RESOLVED = 1e-9
"""Distances below this, relative to the equilibrium, are rounding even in float64."""


@dataclass(frozen=True)
class Recovery:
    """What became of the noise, over all samples of a batch."""

    size: float
    distance: tuple[float, ...]
    worst_ratio: float
    mean_ratio: float
    remaining: float
    changed: float


def run(context: Context) -> Measurements:
    hidden, epochs, samples = context.level.pick((64, 5, 200), (128, 15, 360), (128, 30, 360))
    rows, certified, free, answers, lipschitz = [], [], [], [], []
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        for name, spectral_norm in (("with SN", True), ("without SN", False)):
            if context.sabotaged("spectral norm off"):
                spectral_norm = False
            model = looped(data, hidden, seed, spectral_norm=spectral_norm)
            # The rate at which an unconstrained network leaves the contracting regime.
            config = TrainingConfig(epochs=epochs, learning_rate=0.05, seed=seed)
            trained = train(model, data, config)
            net = model.double()
            factor = net.lipschitz()
            x = data.test_x[:samples].double()
            with torch.no_grad():
                system = System.bind(net.field, x, net.system_parameters())
                target = _iterate(system, system.initial_state()[0], STEPS_TO_TARGET)
            found = [_recover(context, net, system, target, size, seed) for size in SIZES]
            rows += [
                (
                    name, seed, r.size, factor, r.worst_ratio, r.mean_ratio, r.remaining,
                    100 * r.changed,
                )
                for r in found
            ]  # fmt: skip
            if name == "with SN":
                certified += found
                lipschitz.append(factor)
                answers.append(trained.accuracy())
            else:
                free += found
    worst = max(row[4] - row[3] for row in rows if row[0] == "with SN")
    return Measurements(
        values={
            "lipschitz": max(lipschitz),
            "ratio_above_bound": worst,
            "mean_ratio": sum(r.mean_ratio for r in certified) / len(certified),
            "remaining": max(r.remaining for r in certified),
            "changed": max(r.changed for r in certified),
            "remaining_without": max(r.remaining for r in free),
            "changed_without": max(r.changed for r in free),
            "accuracy": pooled(answers),
        },
        tables=(
            Table(
                f"Noise after {STEPS_BEFORE} steps, then {STEPS_AFTER} more; float64, worst of "
                f"{samples} test samples; distances are to the state after {STEPS_TO_TARGET} steps "
                "without noise, which is the equilibrium where there is one",
                (
                    Column("Network"),
                    Column("seed", "d"),
                    Column("noise / activity", ".1f"),
                    Column("certified L", ".4f"),
                    Column("largest ratio of one step", ".4g"),
                    Column("mean ratio of one step", ".4g"),
                    Column("distance left / noise", ".1e"),
                    Column("predictions changed, %", ".1f"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Distance to the equilibrium after noise as large as the activity",
                "steps after the noise",
                "largest distance / noise",
                (
                    *(
                        Series(name, tuple(range(len(r.distance))), r.distance)
                        for name, group in (("with SN", certified), ("without SN", free))
                        for r in [next(r for r in group if r.size == 1.0)]
                    ),
                    Series(
                        "certified bound Lᵗ",
                        tuple(range(STEPS_AFTER + 1)),
                        tuple(max(lipschitz[0] ** t, 1e-17) for t in range(STEPS_AFTER + 1)),
                    ),
                ),
                log_y=True,
            ),
        ),
    )


def _recover(
    context: Context, model: LoopedMLP, system: System, target: Tensor, size: float, seed: int
) -> Recovery:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        state = _iterate(system, system.initial_state()[0], STEPS_BEFORE)
        scale = sample_norm((target,))
        noise = torch.randn(state.shape, dtype=state.dtype, generator=generator)
        noise *= (size * scale / sample_norm((noise,)))[:, None]
        state = state + noise
        distances = [sample_norm((state - target,))]
        for _ in range(STEPS_AFTER):
            (state,) = system.map((state,))
            if context.sabotaged("noise never stops"):
                state = state + 0.1 * noise
            distances.append(sample_norm((state - target,)))
        before = model.readout_from((target,)).argmax(1)
        changed = (model.readout_from((state,)).argmax(1) != before).double().mean()
    distance = torch.stack(distances)
    shrink = distance[1:] / distance[:-1].clamp_min(1e-300)
    resolved = distance[:-1] > RESOLVED * scale
    relative = distance / distance[0]
    return Recovery(
        size,
        tuple(float(d) for d in relative.amax(1).clamp_min(1e-17)),
        float(shrink[resolved].max()),
        float(shrink[resolved].mean()),
        float(relative[-1].max()),
        float(changed),
    )


def _iterate(system: System, state: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        (state,) = system.map((state,))
    return state


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        below("lipschitz", 1.0, "certified contraction factor L"),
        at_most("ratio_above_bound", 1e-6, "largest ratio of one step, minus L"),
        at_most("remaining", 1e-3, "distance left after the noise, relative to it"),
        at_most("changed", 0.0, "share of predictions that changed"),
        above_chance("accuracy", "test accuracy of the certified network, %"),
        above("remaining_without", 1e-3, "the same in the unconstrained network", required=False),
    )


TRACK = Track(
    number=3,
    title="Self-Healing",
    claim="Noise injected in the middle of a relaxation decays at least as fast as the certified "
    "contraction factor says, and the prediction is what it was.",
    experiment="Relax digits, add noise of up to twice the activity's norm, relax on; compare the "
    "decay of the distance to the equilibrium with L, and with an unconstrained network.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("spectral norm off", "the certified network is trained without its constraint"),
        Sabotage("noise never stops", "a tenth of the noise is added again at every step"),
    ),
    statements=(
        "By certificate each step leaves at most L = {lipschitz:.4f} of the distance (largest L); "
        "measured, {mean_ratio:.4f} on average; the largest measured ratio minus its L is "
        "{ratio_above_bound:+.4f}.",
        "After the last step at most {remaining:.1e} of the noise was left and {changed:.1%} of "
        "the predictions had changed; in the unconstrained network {remaining_without:.1e} and "
        "{changed_without:.1%}.",
    ),
    cost=20,
)
