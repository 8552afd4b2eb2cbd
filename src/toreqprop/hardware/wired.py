"""A resistive network bound to its tensors: the currents at its nodes in one simple form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop.errors import InvalidInputError
from toreqprop.hardware.faults import Faults
from toreqprop.hardware.resistive import (
    Conductances,
    Pair,
    ResistiveNetwork,
    Voltages,
    diode_pairs,
)


@dataclass(frozen=True)
class Wired:
    """``F_l = T_l·v_l + pair_l(v_l) − U_l v_{l−1} − N_l v_{l+1} − K_l``, the current that leaves.

    Attributes:
        total: T_l, (n,) or (batch, n) siemens.
        source: K_l, (n,) or (batch, n) amperes.
        up: U_l, (n_l, n_{l−1}) siemens; layers above the first.
        down: N_l, (n_l, n_{l+1}) siemens; layers below the last.
        pairs: the diodes of every layer but the last.
        rows: samples in the batch.
    """

    total: tuple[Tensor, ...]
    source: tuple[Tensor, ...]
    up: tuple[Tensor, ...]
    down: tuple[Tensor, ...]
    pairs: tuple[Pair, ...]
    rows: int

    @property
    def depth(self) -> int:
        return len(self.total)

    def rest(self, layer: int, nodes: Voltages) -> Tensor:
        """Current into a layer's nodes from its sources and neighbours."""
        current = self.source[layer]
        if layer > 0:
            current = current + nodes[layer - 1] @ self.up[layer - 1].mT
        if layer + 1 < self.depth:
            current = current + nodes[layer + 1] @ self.down[layer].mT
        return current

    def residual(self, nodes: Voltages) -> tuple[Voltages, Voltages]:
        """Net current that leaves each node, zero at an operating point, and its own slope.

        Both (batch, n) per layer, amperes and siemens; the slopes are the Jacobian's diagonal.
        """
        currents, slopes = [], []
        for layer, v in enumerate(nodes):
            current = self.total[layer] * v - self.rest(layer, nodes)
            slope = self.total[layer].expand_as(v)
            if layer < len(self.pairs):
                through, steepness = self.pairs[layer].law(v)
                current, slope = current + through, slope + steepness
            currents.append(current)
            slopes.append(slope)
        return tuple(currents), tuple(slopes)

    def take(self, rows: Tensor) -> Wired:
        """The same for some of the samples."""

        def taken(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(t[rows] if t.ndim == 2 and len(t) > 1 else t for t in tensors)

        return Wired(
            taken(self.total),
            taken(self.source),
            self.up,
            self.down,
            self.pairs,
            int(rows.numel()),
        )

    def settle_layer(self, layer: int, nodes: Voltages, tol: float) -> Tensor:
        """A layer's voltages given its neighbours', to ``tol`` volts or rounding.

        ``T·v + pair(v) = rest`` at each node.
        """
        current, total = self.rest(layer, nodes), self.total[layer]
        linear = (current / total).expand(self.rows, -1)
        if layer == len(self.pairs):
            return linear
        return _clamped(linear, current, total, self.pairs[layer], tol)


def _clamped(linear: Tensor, current: Tensor, total: Tensor, pair: Pair, tol: float) -> Tensor:
    """Newton from outside: the equation is convex beyond the knee, so it cannot overshoot."""
    positive = torch.as_tensor(pair.positive, dtype=linear.dtype, device=linear.device)
    negative = torch.as_tensor(pair.negative, dtype=linear.dtype, device=linear.device)
    reach = (current.abs() + positive + negative) / torch.minimum(positive, negative)
    bound = pair.clamp + pair.scale * torch.log1p(reach)
    v = torch.maximum(torch.minimum(linear, bound), -bound)
    tiny = 4 * torch.finfo(v.dtype).eps
    for _ in range(60):
        through, slope = pair.law(v)
        step = (total * v + through - current) / (total + slope)
        v = torch.maximum(torch.minimum(v - step, bound), -bound)
        if bool((step.abs() <= tol + tiny * v.abs()).all()):
            break
    return v


def wire(
    network: ResistiveNetwork,
    conductances: Conductances,
    x: Tensor,
    target: Tensor | None = None,
    beta: float | Tensor = 0.0,
    faults: Faults | None = None,
) -> Wired:
    """Bind a network to conductances, inputs and a nudge; β a number or (batch,), in siemens."""
    network.check(conductances, x, target)
    faults = (faults or Faults()).to(x)
    faults.check(network)
    actual = faults.conductances(conductances)
    total = [g.sum(1) for g in actual]
    source: list[Tensor] = [network.input_rails(x) @ actual[0].mT]
    up, down = [], []
    for layer in range(1, network.depth):
        g, n = actual[layer], network.sizes[layer]
        rising = faults.up_gain(layer - 1, network.gain)
        falling = faults.down_gain(layer - 1, network.gain)
        offset = faults.offset_of(layer - 1)
        coupling, drawn = g[:, :n], g[:, :n].sum(0)
        if network.inverting:
            coupling, drawn = coupling - g[:, n : 2 * n], drawn + g[:, n : 2 * n].sum(0)
        up.append(coupling * rising)
        down.append((coupling * falling).mT)
        total[layer - 1] = total[layer - 1] + rising * falling * drawn
        source[layer - 1] = source[layer - 1] - rising * falling * drawn * offset
        fixed = up[-1] @ (x.new_zeros(n) + offset)
        if network.upper_bias:
            fixed = fixed + network.bias * (g[:, -2] - g[:, -1])
        source.append(fixed)
    if target is not None:
        strength = torch.as_tensor(beta, dtype=x.dtype).reshape(-1, 1)
        total[-1] = total[-1] + strength
        source[-1] = source[-1] + strength * target
        if not bool((total[-1] > 0).all()):
            raise InvalidInputError(
                f"beta = {float(strength.min()):g} S makes an output's conductance negative: its "
                f"size must stay well below {float(actual[-1].sum(1).min()):.3g} S"
            )
    pairs = diode_pairs(network, faults)
    return Wired(tuple(total), tuple(source), tuple(up), tuple(down), pairs, len(x))
