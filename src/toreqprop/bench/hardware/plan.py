"""Which cells make up a sweep: first the search on held-out data, then every method and chip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from toreqprop.bench.hardware.cell import DEPLOYED, Cell
from toreqprop.bench.hardware.faults import FAULTS, Fault
from toreqprop.bench.hardware.methods import METHODS, Method, Recipe
from toreqprop.evidence.job import Record
from toreqprop.evidence.statistics import Summary, summarise

RATES = {"digits": (0.01, 0.03), "mnist": (0.0015, 0.003)}
"""What the search tries, by task. On MNIST 0.03 and 0.01 lost under every fault and method."""

TIMES = {"digits": (1, 2), "mnist": (1,)}
"""How many times the recipe's epochs a method may take. Digits whose phases are run one by one,
which takes long, and where nothing is claimed against a rival, get the first alone; on MNIST that
was no fair comparison with the network without faults, and all get the same."""

SEARCHED: tuple[Method, ...] = ("in situ", "clean EP", "clean backprop", "aware backprop")
"""Methods with a search of their own; the frozen control takes what learning in place found."""

SEARCH_SEEDS = {"digits": (100, 101), "mnist": (100,)}
"""Of data, weights and, among other chips, chips; none is a seed of a result. What digits hold out
are 200 scans, what MNIST does over 4,000 images."""

WEAKER = ({"feedback": 1.0}, {"feedback": 0.25})
"""Strengths of the way down, and with them of the ball: ``radius/√feedback``."""

SECOND: dict[tuple[str, str], tuple[dict[str, Any], ...]] = {
    ("mnist", "up/down mismatch 30 %"): WEAKER,
    ("mnist", "weights 2 bit"): WEAKER,
    ("digits", "weights 2 bit"): tuple(
        {"learning_rate": rate, "epochs": epochs} for rate in (0.01, 0.03) for epochs in (10, 20)
    ),
}
"""What a second search tries, of every method, next to what the first one found: under the faults
with claims that were open after the first. On 200 scans two seeds tell no rates apart."""

SECOND_SEEDS = range(100, 112)
"""Of the second search: single runs scatter by more than it has to tell apart."""

THIRD: dict[tuple[str, str], tuple[dict[str, Any], ...]] = {
    ("mnist", "up/down mismatch 30 %"): tuple(
        {"learning_rate": rate, "feedback": feedback}
        for feedback in (1.0, 0.25, 0.1)
        for rate in (0.003, 0.005)
    ),
}
"""What a third search tries, of every method, where the second left a claim open. Its rule was
fixed before it began: all of these on `HEAT_SEEDS`; the best mean, but for what is in force, is the
one challenger; on `FINAL_SEEDS`, which are fresh, it is taken over where the paired 95 % interval
of its gain is above zero. Held out are `methods.WIDE` images."""

HEAT_SEEDS, FINAL_SEEDS = range(200, 205), range(208, 228)
"""Of the third search. The differences between methods on the latter say how many chips the test
takes: as many as `claims.chips_needed` asks for against every rival, in tens, from 30 to 60."""

CLAIM_CHIPS = {"digits": 20, "mnist": 10}
"""Seeds, each with a chip of its own, where learning in place has to beat deployment: digits have
few test scans."""

MORE_CHIPS = {("mnist", "up/down mismatch 30 %"): 40, ("mnist", "weights 2 bit"): 20}
"""The same where held-out data say that the difference is a few tenths of a point; under the
mismatch as many as the third search asks for."""

MOVING_CHIPS = 10
"""The same where phases are run one by one, which takes long; there the claim has a margin."""

OTHER_CHIPS = {"digits": 3, "mnist": 1}
"""Where nothing is claimed."""

CONTROL_CHIPS = 10, 1
"""Of the frozen control, which no verdict is about: where something is claimed, and where not."""

Chosen = dict[tuple[str, Method], Recipe]


@dataclass(frozen=True)
class Plan:
    """A sweep to be run; ``seeds`` replaces the numbers of chips."""

    base: Recipe
    faults: tuple[Fault, ...] = FAULTS
    methods: tuple[Method, ...] = METHODS
    seeds: int | None = None
    first_seed: int = 0

    @property
    def whole(self) -> bool:
        """Whether all that the documents say comes of it."""
        return self == Plan(self.base)

    def seeds_of(self, fault: Fault, method: Method) -> range:
        """The seeds, and chips, of a fault."""
        task = self.base.task
        if self.seeds is not None:
            count = self.seeds
        elif method == "frozen":
            count = CONTROL_CHIPS[0 if fault.claimed else 1]
        elif not fault.claimed:
            count = OTHER_CHIPS[task]
        elif fault.device.moving:
            count = MOVING_CHIPS
        else:
            count = MORE_CHIPS.get((task, fault.name), CLAIM_CHIPS[task])
        return range(self.first_seed, self.first_seed + count)

    def trials(self) -> list[Cell]:
        """The search: the same rates for all, under every fault of which something is claimed."""
        faults = [f for f in self.faults if f.claimed]
        if len(faults) < len(self.faults):
            faults = list(dict.fromkeys([FAULTS[0], *faults]))  # whose settings the others take
        wanted = {"in situ" if m == "frozen" else m for m in self.methods}
        seeds = SEARCH_SEEDS[self.base.task]
        return [
            Cell(fault, method, recipe, seed, held_out=True)
            for method in SEARCHED
            if method in wanted
            for times in TIMES[self.base.task]
            for recipe in grid(self.base, times)
            for seed in seeds
            for fault in faults
            if times == TIMES[self.base.task][0] or not fault.device.moving
        ]

    def refinements(self, chosen: Chosen) -> list[Cell]:
        """The second search: other settings on more seeds, the same for all methods."""
        return [
            Cell(fault, method, replace(recipe, **change), seed, held_out=True)
            for fault in self.faults
            for (name, method), recipe in chosen.items()
            if name == fault.name
            for change in SECOND.get((self.base.task, name), ())
            for seed in SECOND_SEEDS
        ]

    def heats(self, chosen: Chosen) -> list[Cell]:
        """The third search's first round: all its settings, the same for all methods."""
        return [
            Cell(fault, method, tried, seed, held_out=True, wide=True)
            for fault in self.faults
            if (changes := THIRD.get((self.base.task, fault.name)))
            for seed in HEAT_SEEDS
            for (name, method), recipe in chosen.items()
            if name == fault.name
            for tried in dict.fromkeys([recipe, *(replace(recipe, **c) for c in changes)])
        ]

    def finals(self, chosen: Chosen, others: Chosen) -> list[Cell]:
        """Its second round: what is in force and its challenger, on fresh seeds."""
        return [
            Cell(fault, method, recipe, seed, held_out=True, wide=True)
            for fault in self.faults
            for seed in FINAL_SEEDS
            for (name, method), other in others.items()
            if name == fault.name
            for recipe in (chosen[name, method], other)
        ]

    @property
    def size(self) -> int:
        """How many cells there are, the search aside."""
        return sum(len(self.seeds_of(f, m)) for f in self.faults for m in self.methods)

    def cells(self, chosen: Chosen) -> list[Cell]:
        """Every method on every chip, with the settings its search found, if it found any."""
        return [
            Cell(fault, method, settings, seed)
            for method in self.methods
            for fault, seed in self._pairs(method)
            if (settings := settings_of(chosen, fault, method)) is not None
        ]

    def _pairs(self, method: Method) -> list[tuple[Fault, int]]:
        found = [(f, s) for f in self.faults for s in self.seeds_of(f, method)]
        # What is trained once and deployed everywhere is deployed before the next is trained.
        return sorted(found, key=lambda pair: pair[1]) if method in DEPLOYED else found


def grid(base: Recipe, times: int) -> list[Recipe]:
    """What the search tries with so many times the epochs."""
    return [
        replace(base, learning_rate=rate, epochs=times * base.epochs) for rate in RATES[base.task]
    ]


def choose(trials: Mapping[Cell, Record]) -> Chosen:
    """For every fault that was searched and every method, the recipe with the best mean."""
    return challengers({}, trials)


def challengers(chosen: Chosen, trials: Mapping[Cell, Record]) -> Chosen:
    """The same, of those that are not in force."""
    scores: dict[tuple[str, Method], dict[Recipe, list[float]]] = {}
    for cell, record in trials.items():
        key = cell.fault.name, cell.method
        if cell.recipe != chosen.get(key):
            own = scores.setdefault(key, {})
            own.setdefault(cell.recipe, []).append(record["accuracy"])
    return {
        key: max(own, key=lambda recipe: sum(own[recipe]) / len(own[recipe]))
        for key, own in scores.items()
    }


@dataclass(frozen=True)
class Gain:
    """What other settings brought a method under a fault, seed by seed, on held-out data."""

    fault: str
    method: Method
    first: Recipe
    tried: Recipe
    held_out: tuple[float, float]
    gain: Summary

    @property
    def shown(self) -> bool:
        """Whether the paired interval is above zero."""
        return self.gain.low is not None and self.gain.low > 0


def gains(chosen: Chosen, trials: Mapping[Cell, Record]) -> list[Gain]:
    """Every setting of the second search against that of the first."""
    scores: dict[tuple[str, Method, Recipe], dict[int, float]] = {}
    for cell, record in trials.items():
        own = scores.setdefault((cell.fault.name, cell.method, cell.recipe), {})
        own[cell.seed] = record["accuracy"]
    found = []
    for (fault, method, tried), after in scores.items():
        first = chosen[fault, method]
        before = scores.get((fault, method, first), {})
        pairs = [(before[seed], after[seed]) for seed in after if seed in before]
        if tried != first and pairs:
            means = fmean(a for a, _ in pairs), fmean(b for _, b in pairs)
            gain = summarise([b - a for a, b in pairs])
            found.append(Gain(fault, method, first, tried, means, gain))
    return found


def expected(chosen: Chosen, trials: Mapping[Cell, Record]) -> dict[tuple[str, Method], Summary]:
    """What learning in place wins over every other method with the chosen settings, on held-out
    data, by fault and rival, over the seeds that both have."""
    scores: dict[tuple[str, Method], dict[int, float]] = {}
    for cell, record in trials.items():
        if cell.recipe == chosen[key := (cell.fault.name, cell.method)]:
            scores.setdefault(key, {})[cell.seed] = record["accuracy"]
    found: dict[tuple[str, Method], Summary] = {}
    for (fault, method), theirs in scores.items():
        own = scores.get((fault, "in situ"), {})
        gaps = [own[seed] - theirs[seed] for seed in theirs if seed in own]
        if method != "in situ" and gaps:
            found[fault, method] = summarise(gaps)
    return found


def refine(chosen: Chosen, found: Iterable[Gain]) -> Chosen:
    """What was chosen, or what is shown to beat it by most: of two settings that cannot be told
    apart the first stays."""
    better = sorted((g for g in found if g.shown), key=lambda g: g.gain.mean)
    return chosen | {(g.fault, g.method): g.tried for g in better}


def settings_of(chosen: Chosen, fault: Fault, method: Method) -> Recipe | None:
    """The recipe of a cell: its own search's, or that without faults."""
    searched: Method = "in situ" if method == "frozen" else method
    return chosen.get((fault.name if fault.claimed else FAULTS[0].name, searched))
