"""How symmetric the coupling is, and how much the map contracts, at the equilibria of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from toreqprop.energies import System
from toreqprop.energies.system import sample_norm
from toreqprop.gradients.vector_field import jacobian_products
from toreqprop.models import EquilibriumModel
from toreqprop.solution import State

PROBES = 8


def jacobian_figures(model: EquilibriumModel, x: Tensor, state: State) -> tuple[float, float]:
    """Asymmetry of U = ∂u/∂s by random probes, and ‖∂f/∂s‖ by power iteration on JᵀJ.

    The norm is the one the field's Lipschitz constant holds in.
    """
    with torch.no_grad():
        system = System.bind(model.field, model.field_input(x), model.system_parameters())
    forward, transposed = jacobian_products(system, state)
    generator = torch.Generator().manual_seed(0)
    skew = size = 0.0
    for _ in range(PROBES):
        v = tuple(torch.randn(s.shape, dtype=s.dtype, generator=generator) for s in state)
        a, b = forward(v), transposed(v)
        skew += sum(float((p - q).square().sum()) for p, q in zip(a, b, strict=True))
        size += sum(float(p.square().sum()) for p in a)
    asymmetry = (skew / size) ** 0.5 if size > 0 else 0.0

    leaves = tuple(s.detach().requires_grad_() for s in state)
    with torch.enable_grad():
        dummy = system.field.preactivation(leaves, system.drive, system.params)
        inputs = tuple(u.detach().requires_grad_() for u in dummy)
        slopes = torch.autograd.grad(
            [s.sum() for s in system.field.activate(inputs)], inputs, materialize_grads=True
        )
    heat = [system.field.temperature(layer) ** 0.5 for layer in range(len(state))]

    def weighted(v: State, factors: list[float]) -> State:
        return tuple(h * t for h, t in zip(factors, v, strict=True))

    cold = [1 / h for h in heat]
    v = tuple(torch.randn(s.shape, dtype=s.dtype, generator=generator) for s in state)
    norm = torch.zeros(x.shape[0], dtype=state[0].dtype)
    for _ in range(50):
        v = tuple(t / sample_norm(v).clamp_min(1e-300).reshape(-1, *[1] * (t.dim() - 1)) for t in v)
        image = forward(weighted(v, cold))
        w = weighted(tuple(d * u for d, u in zip(slopes, image, strict=True)), heat)
        norm = sample_norm(w)
        back = tuple(d * u for d, u in zip(slopes, weighted(w, heat), strict=True))
        v = weighted(transposed(back), cold)
    return asymmetry, float(norm.max())
