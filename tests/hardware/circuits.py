"""Random circuits and the measures the tests share."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop.hardware import CircuitSolution, Diode, Faults, ResistiveNetwork
from toreqprop.hardware.in_situ import Simulator
from toreqprop.hardware.resistive import Conductances

STRONG = {"conductance": 0.4, "saturation": 0.7, "up": 0.1, "down": 0.2, "offset": 0.05}


@dataclass(frozen=True)
class Problem:
    """A circuit with samples at ±β, one per row."""

    network: ResistiveNetwork
    conductances: Conductances
    x: Tensor
    target: Tensor
    beta: Tensor
    faults: Faults

    def solve(self, simulator: Simulator, **options: object) -> CircuitSolution:
        return simulator(
            self.network,
            self.conductances,
            self.x,
            self.target,
            self.beta,
            self.faults,
            **options,  # type: ignore[arg-type]
        )


def random_problem(seed: int, rows: int = 10) -> Problem:
    """Any depth from one to four crossbars, any option, faults in every second circuit."""
    choose = random.Random(seed)
    sizes = tuple(choose.randint(1, 10) for _ in range(choose.randint(2, 5)))
    network = ResistiveNetwork(
        sizes,
        gain=10 ** choose.uniform(0, 1),
        diode=Diode(10 ** choose.uniform(-14, -6), choose.uniform(1, 2)),
        clamp=choose.choice([0.0, 0.0, 0.1, 0.3]),
        bias=choose.choice([0.0, 1.0]),
        input_gain=10 ** choose.uniform(0, 2),
        inverting=choose.random() < 0.5,
        upper_bias=choose.random() < 0.5,
        celsius=choose.choice([27.0, -20.0, 80.0]),
    )
    conductances = network.random_conductances(seed, 1e-7, 10 ** choose.uniform(-6, -3))
    faults = Faults.draw(network, seed, **(STRONG if seed % 2 else {}))
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, sizes[0], generator=generator, dtype=torch.float64)
    target = torch.rand(rows, sizes[-1], generator=generator, dtype=torch.float64)
    weakest = float(faults.conductances(conductances)[-1].sum(1).min())
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(rows // 2)
    return Problem(network, conductances, x, target, 0.01 * weakest * signs, faults)


def difference(a: CircuitSolution, b: CircuitSolution) -> float:
    """Largest difference of any voltage, at nodes and rails."""
    pairs = zip(a.nodes + a.rails, b.nodes + b.rails, strict=True)
    return max(float((p - q).abs().max()) for p, q in pairs)


def small_problem() -> tuple[ResistiveNetwork, Conductances, Tensor, Tensor]:
    """4-6-3 with voltages beyond the knee of its diodes."""
    network = ResistiveNetwork((4, 6, 3), input_gain=3.0)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    target = torch.rand(5, 3, generator=generator, dtype=torch.float64)
    return network, network.random_conductances(0), x, target


def finite_differences(
    network: ResistiveNetwork,
    conductances: Conductances,
    x: Tensor,
    target: Tensor,
    solve: Simulator,
    faults: Faults | None = None,
    step: float = 1e-3,
) -> Conductances:
    """``dC/dg`` of the mean of ``½‖v − y‖²`` by central differences, each g moved by ``step·g``."""

    def cost(moved: Conductances) -> float:
        output = solve(network, moved, x, faults=faults).output
        return float(0.5 * ((output - target) ** 2).sum(1).mean())

    found = []
    for layer, g in enumerate(conductances):
        slope = torch.zeros_like(g)
        for at in torch.cartesian_prod(*(torch.arange(n) for n in g.shape)).tolist():
            costs = []
            for sign in (1, -1):
                moved = [part.clone() for part in conductances]
                moved[layer][tuple(at)] += sign * step * g[tuple(at)]
                costs.append(cost(tuple(moved)))
            slope[tuple(at)] = (costs[0] - costs[1]) / (2 * step * g[tuple(at)])
        found.append(slope)
    return tuple(found)


def cosines(a: Conductances, b: Conductances) -> list[float]:
    """Signed, one per crossbar."""
    return [
        float(torch.nn.functional.cosine_similarity(p.flatten(), q.flatten(), 0))
        for p, q in zip(a, b, strict=True)
    ]


def cosine(a: Conductances, b: Conductances) -> float:
    """Signed, over all crossbars together: sees the scale of one against another."""
    whole = [torch.cat([p.flatten() for p in parts]) for parts in (a, b)]
    return float(torch.nn.functional.cosine_similarity(whole[0], whole[1], 0))
