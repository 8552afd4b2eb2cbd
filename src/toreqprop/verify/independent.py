"""Equilibria and gradients of tanh stacks in NumPy alone: nothing here is shared with the library.

A stack is ``s_l = tanh(W_l s_{l−1} + b_l + γ·W_{l+1}ᵀ s_{l+1})`` with ``s_{−1} = x``, read out
linearly; a looped network is one layer whose weight feeds it back. Everything is float64, plain
iteration, to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.models import EquilibriumModel, HopfieldMLP, LoopedMLP

Array = np.ndarray
LARGEST_PUSH = 4.0
ENOUGH = 5_000


@dataclass(frozen=True)
class Stack:
    """Weights and biases by layer, feedback γ, a loop of the last layer (or None), a readout."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    feedback: float
    loop: Array | None
    readout: tuple[Array, Array]

    @classmethod
    def of(cls, model: EquilibriumModel) -> Stack:
        """The numbers of a looped or layered model."""
        params = [p.detach().double().numpy() for p in model.system_parameters()]
        if isinstance(model, LoopedMLP):
            head = model.readout.weight, model.readout.bias
            scale, loop, feedback = model.gain, params[2], 1.0
            weights, biases = tuple(params[:1]), tuple(params[1:2])
        elif isinstance(model, HopfieldMLP) and model.readout is not None:
            head = model.readout.weight, model.readout.bias
            scale, loop, feedback = model.gain, None, model.feedback
            weights, biases = tuple(params[0::2]), tuple(params[1::2])
        else:
            raise TypeError(f"no stack of tanh layers: {type(model).__name__}")
        weight, bias = (t.detach().double().numpy() for t in head)
        # A looped network's gain multiplies the bias too; a stack's, its states alone.
        bias = scale * bias if isinstance(model, LoopedMLP) else bias
        return cls(weights, biases, feedback, loop, (scale * weight, bias))

    def relax(self, x: Array, push: Array | None = None) -> list[Array]:
        """Every layer at rest; ``push`` is subtracted from the top's preactivation."""
        state = [np.zeros((len(x), len(b))) for b in self.biases]
        for _ in range(ENOUGH):
            new = [np.tanh(u) for u in self.inputs(x, state, push)]
            moved = max(float(np.abs(a - b).max()) for a, b in zip(new, state, strict=True))
            state = new
            if moved < 1e-14:
                break
        return state

    def inputs(self, x: Array, state: list[Array], push: Array | None = None) -> list[Array]:
        """Every layer's preactivation."""
        found = []
        top = len(state) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            u = (x if layer == 0 else state[layer - 1]) @ weight.T + bias
            if layer < top:
                u = u + self.feedback * state[layer + 1] @ self.weights[layer + 1]
            elif self.loop is not None:
                u = u + state[layer] @ self.loop
            if layer == top and push is not None:
                u = u - push
            found.append(u)
        return found

    def output(self, state: list[Array]) -> Array:
        return state[-1] @ self.readout[0].T + self.readout[1]

    def cotangent(self, state: list[Array], y: Array) -> Array:
        """``∂C/∂s`` of the mean cross-entropy at the top."""
        logits = self.output(state)
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        shares[np.arange(len(y)), y] -= 1
        return shares / len(y) @ self.readout[0]

    def contrast(self, x: Array, y: Array, beta: float) -> dict[str, Array]:
        """``(1/2β)[∂E/∂θ(s_β) − ∂E/∂θ(s_−β)]`` from two equilibria found apart.

        β is in units of a cotangent of root mean square one, no neuron's push above `LARGEST_PUSH`.
        """
        free = self.relax(x)
        teaching = self.cotangent(free, y)
        size = np.maximum(np.sqrt((teaching**2).mean(1)), np.abs(teaching).max(1) / LARGEST_PUSH)[
            :, None
        ]
        direction = teaching / size
        up, down = (self.relax(x, sign * beta * direction) for sign in (1, -1))
        scale, found = size / (2 * beta), {}
        for layer in range(len(self.weights)):
            heat = self.feedback ** (layer + 1 - len(self.weights))
            ends = [(x if layer == 0 else s[layer - 1], s[layer]) for s in (up, down)]
            (below, above), (below_, above_) = ends
            found[f"W{layer}"] = -heat * ((scale * above).T @ below - (scale * above_).T @ below_)
            found[f"b{layer}"] = -heat * (scale * (above - above_)).sum(0)
        if self.loop is not None:
            top, top_ = up[-1], down[-1]
            found["loop"] = -0.5 * ((scale * top).T @ top - (scale * top_).T @ top_)
        return found


def effective_gradients(model: EquilibriumModel, x: Tensor, y: Tensor) -> dict[str, Array]:
    """The model's own gradient by the effective (constrained) parameters, named as `contrast`'s."""
    params = [p.detach().requires_grad_() for p in model.system_parameters()]
    kept = model.system_parameters
    model.system_parameters = lambda: tuple(params)  # type: ignore[method-assign]
    try:
        grads = torch.autograd.grad(F.cross_entropy(model(x), y), params)
    finally:
        model.system_parameters = kept  # type: ignore[method-assign]
    arrays = [g.double().numpy() for g in grads]
    if isinstance(model, LoopedMLP):
        loop = 0.5 * (arrays[2] + arrays[2].T)
        return {"W0": arrays[0], "b0": arrays[1], "loop": loop}
    names = [f"{kind}{layer}" for layer in range(len(arrays) // 2) for kind in ("W", "b")]
    return dict(zip(names, arrays, strict=True))


def apart(found: dict[str, Array], wanted: dict[str, Array]) -> float:
    """The largest relative distance of any tensor."""
    return max(
        float(np.linalg.norm(found[name] - wanted[name]) / np.linalg.norm(wanted[name]))
        for name in wanted
    )


def slopes(
    loss: Callable[[], float], tensors: list[Tensor], directions: list[list[Tensor]], step: float
) -> Array:
    """Directional derivatives of a loss by central differences; the tensors end as they were."""
    found = []
    with torch.no_grad():
        for direction in directions:
            values = []
            for sign in (1, -1):
                for tensor, along in zip(tensors, direction, strict=True):
                    tensor.add_(along, alpha=sign * step)
                values.append(loss())
                for tensor, along in zip(tensors, direction, strict=True):
                    tensor.sub_(along, alpha=sign * step)
            found.append((values[0] - values[1]) / (2 * step))
    return np.array(found)
