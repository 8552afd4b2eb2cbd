"""Random resistive networks: PyTorch's voltages against ngspice's."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from toreqprop.energies import LinearNudge, Opposed, System
from toreqprop.energies.circuits import ConductanceNudge, Diode
from toreqprop.energies.devices import Device
from toreqprop.models import ResistiveMLP
from toreqprop.solution import State
from toreqprop.solvers import Newton, Solver, relax, relax_pair

STRONG = Device(spread=0.4, diode_spread=0.7, neuron_gain=0.1, up_down=0.2, neuron_offset=0.05)
"""The spread of a circuit with strong mismatch."""

TIGHT = Newton(tol=1e-13, max_steps=200)


@dataclass(frozen=True)
class RandomCircuit:
    """A circuit with inputs and a nudge of one of the two kinds, in double precision."""

    model: ResistiveMLP
    x: Tensor
    nudge: Opposed

    def voltages(self, solver: Solver) -> tuple[State, State, State]:
        """Of the free phase and of the two nudged ones."""
        with torch.no_grad():
            params = self.model.system_parameters()
            system = System.bind(self.model.field, self.x, params)
            free = relax(system, solver)
            pair = relax_pair(system, self.nudge, solver, free.state)
        return free.state, pair.up, pair.down


def random_circuit(seed: int, rows: int = 6) -> RandomCircuit:
    """Any depth from one to four crossbars, any option, faults in every second circuit."""
    choose = random.Random(seed)
    sizes = [choose.randint(1, 10) for _ in range(choose.randint(2, 5))]
    faults = replace(STRONG, wire=20.0, seed=seed) if seed % 2 else None
    model = ResistiveMLP(
        sizes,
        gain=10 ** choose.uniform(0, 1),
        diode=Diode(10 ** choose.uniform(-14, -6), choose.uniform(1, 2)),
        clamp=choose.choice([0.0, 0.0, 0.1, 0.3]),
        bias=choose.choice([0.0, 1.0]),
        input_gain=10 ** choose.uniform(0, 2),
        inverting=choose.random() < 0.5,
        upper_bias=choose.random() < 0.5,
        unit=10 ** choose.uniform(-6, -3),
        device=faults,
        celsius=choose.choice([27.0, -20.0, 80.0]),
    ).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for raw in model.parameters():
            raw.copy_(0.01 + torch.rand(raw.shape, generator=generator, dtype=raw.dtype))
    x = torch.randn(rows, sizes[0], generator=generator, dtype=torch.float64)
    target = torch.rand(rows, sizes[-1], generator=generator, dtype=torch.float64)
    if choose.random() < 0.5:
        nudge = Opposed(ConductanceNudge(target, 0.01), ConductanceNudge(target, -0.01))
    else:
        shapes = [(rows, n) for n in sizes[1:]]
        forces = tuple(torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
        nudge = Opposed(LinearNudge(forces, 0.01), LinearNudge(forces, -0.01))
    return RandomCircuit(model, x, nudge)


def difference(a: tuple[State, ...], b: tuple[State, ...]) -> float:
    """The largest difference of any voltage, in volts."""
    worst = 0.0
    for one, two in zip(a, b, strict=True):
        for p, q in zip(one, two, strict=True):
            worst = max(worst, float((p - q).abs().max()))
    return worst
