"""A circuit's gradient, by EP from its voltages and by finite differences of its loss."""

from __future__ import annotations

import torch
from torch import Tensor

from toreqprop.energies import Opposed, System
from toreqprop.energies.circuits import ConductanceNudge
from toreqprop.energies.devices import Device
from toreqprop.gradients.base import as_pairs
from toreqprop.models import ResistiveMLP
from toreqprop.solvers import Solver, relax, relax_pair


def small_circuit(
    sizes: tuple[int, ...] = (4, 6, 3), device: Device | None = None, **options: object
) -> tuple[ResistiveMLP, Tensor, Tensor]:
    """4-6-3 in double precision with voltages beyond its diodes' knee, inputs and target volts."""
    torch.manual_seed(0)
    chosen = {"input_gain": 3.0, "inverting": False, "upper_bias": False, **options}
    model = ResistiveMLP(sizes, device=device, **chosen).double()  # type: ignore[arg-type]
    if "solver" not in chosen:
        model.tol = 1e-12
    x, target = torch.randn(5, sizes[0]).double(), torch.rand(5, sizes[-1]).double()
    return model, x, target


def squared(model: ResistiveMLP, x: Tensor, target: Tensor) -> Tensor:
    """The mean of ``½‖v − y‖²`` in V²."""
    volts = model.equilibrium(x).state[-1]
    return 0.5 * (volts - target).square().sum(1).mean()


def slopes(model: ResistiveMLP, x: Tensor, target: Tensor) -> list[Tensor]:
    """Of `squared` by each raw conductance, by the model's own estimator."""
    model.zero_grad()
    squared(model, x, target).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def conductance_slopes(
    model: ResistiveMLP, x: Tensor, target: Tensor, beta: float, solver: Solver
) -> list[Tensor]:
    """Of `squared` by each conductance in siemens, outputs pulled through a conductance ±β·S."""
    with torch.no_grad():
        params = model.system_parameters()
        system = System.bind(model.field, x, params)
        nudge = Opposed(ConductanceNudge(target, beta), ConductanceNudge(target, -beta))
        found = relax_pair(system, nudge, solver, relax(system, solver).state)
        weight = x.new_full((len(x),), 1 / (beta * len(x)))
        crossbars = len(model.sizes) - 1
        wants = (False, *(number < crossbars for number in range(len(params))))
        local = model.field.energy_gradients(as_pairs(found), weight, x, params, wants)
    return [g for g in local if g is not None]


def finite_differences(
    model: ResistiveMLP, x: Tensor, target: Tensor, step: float = 1e-3
) -> list[Tensor]:
    """Of `squared` by each raw conductance, each moved by ``step`` of itself both ways."""
    found = []
    with torch.no_grad():
        for raw in model.parameters():
            slope = torch.zeros_like(raw)
            flat, values = slope.view(-1), raw.view(-1)
            for i in range(len(values)):
                kept, costs = float(values[i]), []
                for sign in (1, -1):
                    values[i] = kept * (1 + sign * step)
                    costs.append(float(squared(model, x, target)))
                values[i] = kept
                flat[i] = (costs[0] - costs[1]) / (2 * step * kept)
            found.append(slope)
    return found


def cosines(a: list[Tensor], b: list[Tensor]) -> list[float]:
    """Signed, one per crossbar."""
    return [
        float(torch.nn.functional.cosine_similarity(p.flatten(), q.flatten(), 0))
        for p, q in zip(a, b, strict=True)
    ]


def cosine(a: list[Tensor], b: list[Tensor]) -> float:
    """Signed, over all crossbars together: sees the scale of one against another."""
    whole = [torch.cat([p.flatten() for p in parts]) for parts in (a, b)]
    return float(torch.nn.functional.cosine_similarity(whole[0], whole[1], 0))


def states_apart(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> float:
    """The largest difference of any voltage."""
    return max(float((p - q).detach().abs().max()) for p, q in zip(a, b, strict=True))
