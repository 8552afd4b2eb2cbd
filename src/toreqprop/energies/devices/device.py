"""One chip: every fault with its formula, its unit, and the place where it acts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.devices.converter import Converter
from toreqprop.energies.devices.weights import Analog, Store
from toreqprop.errors import InvalidInputError

StuckAt = Literal["zero", "bound", "either"]


@dataclass(frozen=True)
class Device:
    """A chip that a network runs on: how wide its parts spread, and which one of many it is.

    Faults that last (spread, stuck weights, gains, offsets) are a sample: the same ``seed`` is the
    same chip. What is left to chance at every step (noise) is not part of the sample; it comes from
    the generator of `fit`, or from torch's global one. z is standard normal, drawn once for each
    weight or neuron; ξ is standard normal and drawn anew.

    Weights, once they are programmed (matrices and kernels; biases are the neurons' own sources):

    Attributes:
        weights: how they are stored: `Analog`, `Quantised`, `Ternary`, `Binary`.
        write_noise: ``w + write_noise·max|w|·ξ`` whenever the weights have been changed.
        spread: ``w·exp(spread·z)``, device to device.
        stuck: part of the weights that stay where they are whatever is written.
        stuck_at: "zero", "bound" (either sign, at the largest weight), or "either" (half of each).
        up_down: a weight is used twice, ``w·exp(½·up_down·z)`` on the way up and
            ``w·exp(−½·up_down·z)`` on the way down: the two directions are no longer transposed.
        drift: ν of ``w·(1 + age + k)^−ν`` in phase k after programming, 0 for the free one, 1 and 2
            for the nudged ones: conductances of phase-change memory.
        age: phases that have passed since programming before the free one.

    States, at every step of every phase:

        states: the converter between neurons; None is an analog line.
        read_noise: every neuron is read as ``s + read_noise·ξ``, by its neighbours and by the one
            who measures, before it is converted.
        thermal_noise: rms of a preactivation's own fluctuation: ``v ← ρ·v + (1 − ρ)·u +
            thermal_noise·√(1 − ρ²)·ξ``, ``s = σ(v)``, ``ρ = exp(−time_step)``.
        time_step: of one evaluation, in time constants of a neuron; None is a neuron that follows
            at once (ρ = 0).
        neuron_gain, neuron_offset: ``σ(exp(neuron_gain·z)·u + neuron_offset·z')``.
        inputs: converter of the inputs; None is exact.

    Phases and measurement:

        settle: evaluations of the map before a phase is read.
        settle_free: the same for the free phase; None is ``settle``. Few cut it short.
        average: readings of the settled network whose mean is what is measured.
        phase_offset: ``u + k·phase_offset·z`` in phase k: what changes from one phase to the next.

    Circuits (resistive networks; the neurons' gain and offset are their amplifiers'):

        diode_spread: ``I_s·exp(diode_spread·z)``.
        wire: ohms of one segment of a crossbar's wires.
        amplifier_time: seconds; only transients see it.

    And:

        seed: of this chip.

    Units: weights, states and preactivations are those of the network, where a tanh neuron is
    within ±1; ``spread``, ``up_down``, ``neuron_gain`` and ``diode_spread`` are standard deviations
    of a logarithm, so that 0.3 is 30 %; ``stuck`` is a share; times are evaluations of the map.

    Sources: how wide devices spread as in Gokmen and Vlasov 2016 (10.3389/fnins.2016.00333), there
    of steps and bounds; stuck devices as counted in arrays (aihwkit's ``ReRamArray`` presets);
    converters and read noise as in aihwkit's ``IOParameters`` (Rasch et al. 2021, 2104.02184);
    drift and write noise as in Joshi et al. 2020 (10.1038/s41467-020-16108-9); gains and offsets
    of neurons by the mismatch of transistors (Pelgrom et al. 1989, 10.1109/JSSC.1989.572629);
    thermal noise by Nyquist 1928 (10.1103/PhysRev.32.110); what weights that are not the same both
    ways do to EP: Scellier et al. 2018 (1808.04873). An offset between phases is what remains of
    any of these where a phase lasts long enough to drift.
    """

    weights: Store = Analog()
    write_noise: float = 0.0
    spread: float = 0.0
    stuck: float = 0.0
    stuck_at: StuckAt = "zero"
    up_down: float = 0.0
    drift: float = 0.0
    age: float = 0.0
    states: Converter | None = None
    read_noise: float = 0.0
    thermal_noise: float = 0.0
    time_step: float | None = None
    neuron_gain: float = 0.0
    neuron_offset: float = 0.0
    inputs: Converter | None = None
    settle: int = 30
    settle_free: int | None = None
    average: int = 1
    phase_offset: float = 0.0
    diode_spread: float = 0.0
    wire: float = 0.0
    amplifier_time: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.instance("weights", self.weights, Store, "use Quantised(bits=4)")
        for name in ("states", "inputs"):
            checks.instance(
                name, getattr(self, name), Converter, "use Converter(bits=8)", optional=True
            )
        for name in SIZES:
            value = checks.number(name, getattr(self, name), 0, typical="0.01 to 0.5")
            if name in EXPONENTS and value >= 10:
                raise InvalidInputError(f"{name} must be below 10, got {value}. Typical: 0.3.")
        if not 0 <= checks.number("stuck", self.stuck, 0) <= 1:
            raise InvalidInputError(f"stuck is a part of all weights, 0 to 1, got {self.stuck}.")
        checks.choice("stuck_at", self.stuck_at, get_args(StuckAt))
        if self.time_step is not None:
            checks.number("time_step", self.time_step, 0, above=True, typical="0.1 to 1")
        checks.whole_number("settle", self.settle, 1)
        if self.settle_free is not None:
            checks.whole_number("settle_free", self.settle_free, 1)
        checks.whole_number("average", self.average, 1)
        checks.whole_number("seed", self.seed, 0, 2**63 - 1)

    @property
    def moving(self) -> bool:
        """Whether phases have to be run one by one, as the chip runs them: something in them is
        noisy, coarse, cut short, or differs from phase to phase."""
        return bool(
            self.states or self.read_noise or self.thermal_noise or self.time_step is not None
            or self.settle_free is not None or self.phase_offset or self.drift
        )  # fmt: skip

    @property
    def neurons_differ(self) -> bool:
        return bool(self.neuron_gain or self.neuron_offset)

    @property
    def weights_differ(self) -> bool:
        """Whether what is stored is not what was written."""
        return bool(
            self.weights != Analog() or self.write_noise or self.spread or self.stuck
            or self.up_down or (self.drift and self.age)
        )  # fmt: skip

    def chips(self, count: int) -> list[Device]:
        """So many chips of this production; the first is this one."""
        checks.whole_number("count", count, 1)
        return [self, *(replace(self, seed=_seed(self.seed, "chip", k)) for k in range(1, count))]

    def normal(self, kind: str, index: int, shape: tuple[int, ...]) -> Tensor:
        """z of a kind of fault in one layer, in double precision: the same at every call."""
        return _drawn(torch.randn, _seed(self.seed, kind, index), shape).clone()

    def uniform(self, kind: str, index: int, shape: tuple[int, ...]) -> Tensor:
        """As `normal`, from 0 to 1."""
        return _drawn(torch.rand, _seed(self.seed, kind, index), shape).clone()

    def decay(self, phase: int) -> float:
        """``(1 + age + k)^−ν`` of phase k, relative to its free phase."""
        return ((1 + self.age + phase) / (1 + self.age)) ** -self.drift

    @property
    def follow(self) -> float:
        """ρ: how much of a preactivation is left after one evaluation."""
        return 0.0 if self.time_step is None else math.exp(-self.time_step)

    def __str__(self) -> str:
        ideal = Device()
        changed = {k: v for k, v in vars(self).items() if v != getattr(ideal, k)}
        return f"Device({', '.join(f'{k}={v}' for k, v in changed.items())})"

    def faults(self) -> Iterator[tuple[str, Any]]:
        """What is not ideal, by name; the seed and how long phases last are no faults."""
        ideal = Device()
        for name, value in vars(self).items():
            if name not in ("seed", "settle", "average") and value != getattr(ideal, name):
                yield name, value


SIZES = (
    "write_noise", "spread", "up_down", "drift", "age", "read_noise", "thermal_noise",
    "neuron_gain", "neuron_offset", "phase_offset", "diode_spread", "wire", "amplifier_time",
)  # fmt: skip
EXPONENTS = ("spread", "up_down", "neuron_gain", "diode_spread")


@lru_cache(maxsize=16)
def _drawn(draw: Callable[..., Tensor], seed: int, shape: tuple[int, ...]) -> Tensor:
    """A chip's matrices are asked for at every step: those of the last few are kept."""
    return draw(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _seed(seed: int, kind: str, index: int) -> int:
    """A seed of its own for each kind and layer: one fault does not change the others' values."""
    digest = hashlib.sha256(f"{seed}/{kind}/{index}".encode()).digest()
    return int.from_bytes(digest[:7], "little")
