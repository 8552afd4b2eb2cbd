"""A track: a claim, an experiment that measures it, bounds, and sabotages it must not survive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from toreqprop.errors import InvalidInputError
from toreqprop.tasks import Dataset, get
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Measurements
from toreqprop.verify.verdict import Bound


@dataclass(frozen=True)
class Sabotage:
    """A fault put into the experiment on purpose; the track must FAIL with it."""

    name: str
    does: str


@dataclass(frozen=True)
class Context:
    """What an experiment is given: how much to do, with which seeds, and which fault to put in."""

    level: Level
    seeds: tuple[int, ...]
    sabotage: str | None = None
    report: Callable[[str], None] = lambda message: None
    checksums: dict[str, str] = field(default_factory=dict)
    _loaded: dict[tuple[str, int, bool], Dataset] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """The first seed, for what is done once."""
        return self.seeds[0]

    def sabotaged(self, name: str) -> bool:
        """Whether this fault is to be put in."""
        return self.sabotage == name

    def data(self, task: str, seed: int, full: bool = False) -> Dataset:
        """A task's data; what it was made from goes into the record.

        Raises:
            DataUnavailableError: it is not available; the message says what helps.
        """
        key = (task, seed, full)
        if key not in self._loaded:
            self._loaded[key] = get(task).load(seed, full)
        data = self._loaded[key]
        self.checksums.update({f"{task}: {name}": d for name, d in data.checksums.items()})
        return data


Experiment = Callable[[Context], Measurements]


@dataclass(frozen=True)
class Track:
    """One numbered claim.

    ``bounds(level)`` is asked before the experiment runs and sees no measurement. ``statements``
    are sentences with ``{names}`` of measurements in them, filled in by the report; they state
    figures and judge nothing. ``run=None`` is a stub.
    """

    number: int
    title: str
    claim: str
    experiment: str
    run: Experiment | None
    bounds: Callable[[Level], tuple[Bound, ...]] = lambda level: ()
    sabotages: tuple[Sabotage, ...] = ()
    statements: tuple[str, ...] = ()
    cost: float = 1.0
    """Roughly the seconds of its smoke test: long tracks are started first."""

    def __post_init__(self) -> None:
        if self.run is not None and not self.sabotages:
            raise InvalidInputError(
                f"Track {self.number} names no sabotage: nothing shows that it could fail."
            )

    def context(self, context: Context, sabotage: str | None) -> Context:
        """The context with one of this track's own sabotages."""
        if sabotage is not None and sabotage not in {s.name for s in self.sabotages}:
            raise InvalidInputError(f"Track {self.number} has no sabotage called {sabotage!r}.")
        return replace(context, sabotage=sabotage)
