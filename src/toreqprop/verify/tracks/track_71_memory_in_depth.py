"""Track 71: what depth costs in memory, next to what relaxation steps cost."""

from __future__ import annotations

from toreqprop.bench.memory_probe import LAYERED_BATCH, peaks
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Figure, Measurements, Series, Table
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

WIDTH = 64
STATE_MB = LAYERED_BATCH * WIDTH * 4 / 2**20
"""Megabytes of one layer's state."""


def run(context: Context) -> Measurements:
    depths = context.level.pick((4, 16, 40), (4, 16, 40), (4, 8, 16, 32, 64))
    # From where every slot of the passes that are remembered is in use.
    passes = context.level.pick((20, 60), (20, 60), (20, 60, 200))
    method = "unrolled, passes" if context.sabotaged("graph kept") else "EP, passes"
    context.report("EP over depth")
    ep = peaks("EP, layers", WIDTH, depths)
    context.report("EP over passes")
    longer = peaks(method, WIDTH, passes)
    context.report("backprop over depth")
    twin = peaks("backprop, layers", WIDTH, depths)
    # Peaks of shallow stacks are set in part by what does not depend on depth.
    whole = _states((depths[0], depths[-1]), (ep[0], ep[-1]))
    last = _states(depths[-2:], ep[-2:])
    return Measurements(
        {"layers_from": depths[0], "layers_to": depths[-1], "passes_from": passes[0],
         "passes_to": passes[-1]},
        timings={
            "growth": ep[-1] / ep[0],
            "twin_growth": twin[-1] / twin[0],
            "states": whole,
            "twin_states": _states((depths[0], depths[-1]), (twin[0], twin[-1])),
            "bend": last / whole,
            "passes_growth": longer[-1] / longer[0],
            "mb": ep[-1],
            "twin_mb": twin[-1],
        },
        tables=(
            Table(
                f"Peak memory of a training step in MB, batch {LAYERED_BATCH}, width {WIDTH}: one "
                f"layer's state is {STATE_MB:.3f} MB",
                (
                    Column("layers", "d"), Column("EP", ".1f"), Column("backprop", ".1f"),
                    Column("EP / backprop", ".1f"),
                ),
                tuple((d, a, b, a / b) for d, a, b in zip(depths, ep, twin, strict=True)),
                volatile=True,
            ),
        ),
        figures=(
            Figure(
                "Peak memory of a training step against depth",
                "layers",
                "MB",
                (Series("EP", depths, ep), Series("backprop", depths, twin)),
                volatile=True,
            ),
        ),
    )  # fmt: skip


def _states(depths: tuple[int, ...], found: tuple[float, ...]) -> float:
    """Megabytes a further layer takes, in states of a layer."""
    return (found[1] - found[0]) / (depths[1] - depths[0]) / STATE_MB


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        # Anderson's three slots of states, products and gaps, for one phase and for two.
        at_most("states", 80.0, "states that EP keeps for each further layer"),
        at_least("growth", 1.5, "peak memory of EP, deepest over shallowest: it does grow"),
        at_most("bend", 1.5, "what a layer takes in the deepest stacks over the mean"),
        at_most("passes_growth", 1.1, "peak memory of EP, most over fewest passes"),
        at_least("twin_growth", 1.2, "peak memory of backprop, deepest over shallowest"),
    )


TRACK = Track(
    number=71,
    title="Memory in Depth",
    claim="EP's memory does not depend on how many passes a stack takes; it does depend on depth, "
    "in proportion, as a fixed number of states is kept for every layer.",
    experiment="The resident set's high-water mark over one training step in a process of its own, "
    "for stacks of growing depth and growing passes, and for backprop.",
    run=run,
    bounds=bounds,
    sabotages=(Sabotage("graph kept", "the graph of every pass is kept, as unrolling does"),),
    statements=(
        "From {layers_from} to {layers_to} layers EP's peak grew {growth:.1f}-fold to {mb:.1f} MB, "
        "by {states:.1f} states a layer; backprop's {twin_growth:.1f}-fold to {twin_mb:.1f} MB, by "
        "{twin_states:.1f} states a layer. From {passes_from} to {passes_to} passes it grew by a "
        "factor of {passes_growth:.2f}.",
    ),
    cost=9,
)
