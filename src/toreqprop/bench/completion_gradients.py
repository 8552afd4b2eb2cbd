"""Where gradients of a network that completes go wrong: criticality, several equilibria, a defect?

A network without a bound on its norms is trained with a usual nudge and tolerance. At a few points
of the training all is measured in double precision, and the exact gradient comes from linear
algebra: it shares no relaxation with EP.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from toreqprop.bench import completion as study
from toreqprop.energies import CompletionEnergy
from toreqprop.energies.pairs import Pair
from toreqprop.evidence import Measurement
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.models import CompletionNetwork
from toreqprop.solution import Solution, State

SEED, STARTS, MOST = 200, 2, 400
"""Of data and weights; random starts; steps of a phase."""
UNBOUNDED = replace(
    study.SETUP, hidden=48, drivers=48, radius=None, copies=3, dropped=0.0, epochs=8,
    batch_size=128, weight_decay=0.0, beta=1e-2, max_steps=100,
)  # fmt: skip
STRETCHES = (1.0, 1.5, 2.0)
"""What the couplings are multiplied by after the training, which brings them nearer to critical."""
GRID = tuple((beta, tol) for tol in (1e-3, 1e-10) for beta in (1e-1, 1e-2, 1e-3))
"""Nudges and tolerances."""
NEAR = (1e-2, 1e-1, 1.0)
"""Upper ends of the classes of distances ``1 − ρ`` from criticality."""
SETTLED, APART = 1e-10, 1e-3
"""The residual of an equilibrium; two of one sample are different where a neuron is by more."""


def along_training() -> dict[str, Any]:
    """Train without a bound, stretch the couplings, and measure."""
    data = study.pictures(UNBOUNDED.task, SEED, validation=True)
    model, epochs = study.trained(UNBOUNDED, study.EP, SEED, data)
    assert isinstance(model, CompletionNetwork)
    x, y = (part.double() for part in study.batch(data, SEED))
    points = []
    for stretch in STRETCHES:
        other = copy.deepcopy(model).double()
        with torch.no_grad():
            _couplings(other).mul_(stretch)
        points.append({"stretch": stretch, **measure(other, x, y, UNBOUNDED.loss(data.classes))})
    return {"loss": epochs[-1]["loss"], "points": points}


def measure(
    model: CompletionNetwork, x: Tensor, y: Tensor, loss: study.CompletionLoss
) -> dict[str, Any]:
    """Distances from criticality, other equilibria, and cosines over `GRID`, of one batch."""
    ends = _ends(model, x)
    settled = ends[0].residual <= SETTLED
    state = tuple(s[settled] for s in ends[0].state)
    x, y = x[settled], y[settled]
    gaps = [
        (_rows(end.state) - _rows(ends[0].state)).abs().amax(1) * (end.residual <= SETTLED)
        for end in ends[1:]
    ]
    several = torch.stack(gaps).amax(0)[settled] > APART
    moves, distance = exact_moves(model, x, y, loss, state)
    reference = _gradient_of(model, x, state, moves)
    compared = []
    for beta, tol in GRID:
        found, shift = estimated(model, CenteredEP(beta), tol, x, y, loss)
        own = _rows(shift)
        cosines = torch.cosine_similarity(own, _rows(moves), dim=1)
        compared.append(
            {
                "beta": beta,
                "tol": tol,
                "cosine": float(torch.cosine_similarity(found, reference, dim=0)),
                "samples": cosines.tolist(),
            }
        )
    limited, _ = estimated(model, CenteredEP(1e-2, max_gain=2), 1e-3, x, y, loss)
    return {
        "settled": int(settled.sum()),
        "several": int(several.sum()),
        "norm": float(torch.linalg.matrix_norm(_couplings(model).detach(), 2)),
        "distance": distance.tolist(),
        "size": _rows(moves).norm(dim=1).tolist(),
        "compared": compared,
        "limited": float(torch.cosine_similarity(limited, reference, dim=0)),
    }


@torch.no_grad()
def _ends(model: CompletionNetwork, x: Tensor) -> list[Solution]:
    """Where the network settles from its own start, and from random ones."""
    exact = copy.deepcopy(model)
    exact.tol, exact.max_steps = SETTLED, MOST
    found, generator = [exact.equilibrium(x)], torch.Generator().manual_seed(SEED)
    for _ in range(STARTS):
        start = tuple(
            2 * torch.rand(s.shape, dtype=s.dtype, generator=generator) - 1 for s in found[0].state
        )
        found.append(exact.equilibrium(x, start=start))
    return found


@torch.no_grad()
def exact_moves(
    model: CompletionNetwork, x: Tensor, y: Tensor, loss: study.CompletionLoss, state: State
) -> tuple[State, Tensor]:
    """``−H⁻¹g``, how an equilibrium moves per unit of nudge, and ``1 − ρ`` of each sample.

    ``H = D⁻¹ − U`` is the energy's Hessian, D the slopes of the neurons by their temperatures, U
    the couplings; ρ is the largest eigenvalue of ``√D·U·√D``: at ρ = 1 the equilibrium is no
    minimum any more.
    """
    _, weight, _, back, _, _ = model.system_parameters()
    top, visible = weight.shape
    drivers = visible + top
    couplings = x.new_zeros(len(x), drivers + back.shape[1], drivers + back.shape[1])
    couplings[:, visible:drivers, :visible] = weight * (1 - x.chunk(2, 1)[1])[:, None, :]
    couplings[:, visible:drivers, drivers:] = back
    couplings = couplings + couplings.mT
    slopes = torch.ones_like(state[0]), 1 - state[1].square(), 1 - state[2].square()
    field = model.field
    slope = torch.cat([s / field.temperature(layer) for layer, s in enumerate(slopes)], 1)
    root = slope.sqrt()
    distance = 1 - torch.linalg.eigvalsh(root[:, :, None] * couplings * root[:, None, :])[:, -1]
    with torch.enable_grad():
        leaf = state[0].detach().requires_grad_()
        value = len(x) * loss(model.readout_from((leaf,)), y)  # each sample's own loss
        (pushed,) = torch.autograd.grad(value, leaf)
    force = torch.cat([pushed, torch.zeros_like(slope[:, visible:])], 1)
    moved = -torch.linalg.solve(torch.diag_embed(1 / slope) - couplings, force)
    return tuple(moved.split([visible, top, back.shape[1]], 1)), distance


def _gradient_of(model: CompletionNetwork, x: Tensor, state: State, moves: State) -> Tensor:
    """The gradient of the couplings that these moves make, of a mean over the batch."""
    params = tuple(p.detach() for p in model.system_parameters())
    phases = tuple(Pair(s, d) for s, d in zip(state, moves, strict=True))
    weight = x.new_full((len(x),), 1 / len(x))
    wants = (False, False, True, False, True, False, False)
    with torch.no_grad():
        field = model.field
        assert isinstance(field, CompletionEnergy)
        found = field.energy_gradients(phases, weight, model.field_input(x), params, wants)
    assert found[2] is not None
    assert found[4] is not None
    return torch.cat([found[2], found[4] / model.feedback**0.5], 1).flatten()


def estimated(
    model: CompletionNetwork,
    estimator: GradientEstimator,
    tol: float,
    x: Tensor,
    y: Tensor,
    loss: study.CompletionLoss,
) -> tuple[Tensor, State]:
    """A gradient of the couplings, and the shift of its phases where there are any."""
    other = copy.deepcopy(model)
    other.gradient, other.tol, other.max_steps = estimator, tol, MOST
    shifts: list[State] = []
    other.register_relaxation_hook(
        lambda phase, found: shifts.append(found.shift) if phase == "nudged" else None
    )
    weight, bias = _couplings(other).detach(), model.couplings.bias
    assert isinstance(bias, Tensor)
    plain = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    with torch.no_grad():
        plain.weight.copy_(weight)
        plain.bias.copy_(bias)
    other.couplings = plain
    loss(other(x), y).backward()
    grad = plain.weight.grad
    assert isinstance(grad, Tensor)
    return grad.flatten(), shifts[-1] if shifts else ()


def _couplings(model: CompletionNetwork) -> Tensor:
    """``(W, √γB)``, those of hidden neurons with features and drivers."""
    weight = model.couplings.weight
    assert isinstance(weight, Tensor)
    return weight


def _rows(state: State) -> Tensor:
    return torch.cat([s.flatten(1) for s in state], 1)


def measurements() -> list[Measurement]:
    """The one measurement."""
    where, data = f"{__name__}:along_training", (study.SETUP.task,)
    return [Measurement("completion", "gradients", where, tasks=data)]
