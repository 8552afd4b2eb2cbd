"""A stack of convolutional layers: a kernel couples two maps both ways, through a pooling."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

from toreqprop.energies.activations import Activation, Tanh
from toreqprop.energies.base import Energy, Gradients, Params, Wants
from toreqprop.energies.pooling import Pooling
from toreqprop.energies.system import per_sample
from toreqprop.solution import State

Shape = tuple[int, int, int]
"""Channels, height, width of a map."""
Phases = tuple[tuple[Tensor, State], ...]


@dataclass(frozen=True)
class PooledConvolution:
    """``P(K ⋆ s)`` and its local derivatives; kernels come with the pooling's `fold` applied."""

    pooling: Pooling
    padding: int

    def convolve(self, below: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.conv2d(below, kernel, bias, stride=self.pooling.stride, padding=self.padding)

    def up(self, below: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
        """``P(K ⋆ below) + b``; the bias of a channel passes every pooling unchanged."""
        fine = self.convolve(below, kernel, bias)
        return fine if self.pooling.linear else self.pooling.pool(fine)

    def spread(self, above: Tensor, below: Tensor, kernel: Tensor) -> Tensor:
        """``P'(K ⋆ below)ᵀ above``; a linear pooling is in the kernel already."""
        if self.pooling.linear:
            return above
        return self.pooling.spread(above, self.convolve(below, kernel))

    def transposed(self, fine: Tensor, kernel: Tensor, size: torch.Size) -> Tensor:
        """``Kᵀ ⋆ fine``, a map of this height and width."""
        stride = self.pooling.stride
        left = [
            (pixels + 2 * self.padding - side) % stride
            for pixels, side in zip(size, kernel.shape[-2:], strict=True)
        ]
        return F.conv_transpose2d(
            fine, kernel, stride=stride, padding=self.padding, output_padding=left
        )

    def down(self, above: Tensor, below: Tensor, kernel: Tensor) -> Tensor:
        """``∂/∂below ⟨above, P(K ⋆ below)⟩``."""
        return self.transposed(self.spread(above, below, kernel), kernel, below.shape[-2:])

    def kernel_gradient(self, post: Tensor, pre: Tensor, kernel: Tensor) -> Tensor:
        """``∂/∂K ⟨post, K ⋆ pre⟩`` for the kernel before folding."""
        found = conv2d_weight(
            pre, list(kernel.shape), post, stride=self.pooling.stride, padding=self.padding
        )
        return self.pooling.unfold(found)


@dataclass(frozen=True)
class ConvolutionalEnergy(Energy):
    """``Φ = Σ_l ⟨s_l, P_l(K_l ⋆ s_{l−1}) + b_l⟩`` with ``s₀ = x``; params ``(K₁, b₁, K₂, b₂, …)``.

    ``u_l = P_l(K_l ⋆ s_{l−1}) + b_l + K_{l+1}ᵀ ⋆ P'_{l+1}(K_{l+1} ⋆ s_l)ᵀ s_{l+1}``: convolution
    and pooling upwards, their transposes downwards. ``x`` holds images of the shape ``image``,
    flat or not.

    With ``feedback`` f < 1 the states of a layer have √f times the range of those below it:
    ``s_l = a_l·σ(u_l/a_l)``, ``a_l = f^{(l−1)/2}``. Measured in units of the ranges, the way up
    then gains 1/√f and the way down loses √f: the network is dominated by its forward pass and
    settles fast, and has an energy as before.
    """

    image: Shape
    couplings: tuple[PooledConvolution, ...]
    activation: Activation = Tanh()
    feedback: float = 1.0

    @property
    def analytic(self) -> bool:
        """The first layer's drive is a constant; the poolings above must be analytic."""
        return self.activation.analytic and all(c.pooling.analytic for c in self.couplings)

    def prepare(self, x: Tensor, params: Params) -> Params:
        """The first layer's drive, then the kernels of the upper layers with pooling folded in."""
        first, *upper = self._folded(params)
        return (self.couplings[0].up(self.as_images(x), first, params[1]), *upper)

    def initial_state(self, drive: Params, params: Params) -> State:
        """A feed-forward pass: what the equilibrium would be without feedback."""
        state = [self.activate_layer(0, drive[0])]
        upper = zip(self.couplings[1:], drive[1:], params[3::2], strict=True)
        for layer, (coupling, kernel, bias) in enumerate(upper, start=1):
            u = coupling.up(state[-1], kernel, bias)
            state.append(self.activate_layer(layer, u))
        return tuple(state)

    def layer_preactivation(
        self, layer: int, state: State, drive: Params, params: Params
    ) -> Tensor:
        """``u_l`` for one layer, counted from zero."""
        if layer == 0:
            below = drive[0]
        else:
            coupling, bias = self.couplings[layer], params[2 * layer + 1]
            below = coupling.up(state[layer - 1], drive[layer], bias)
        if layer + 1 == len(state):
            return below
        coupling, kernel = self.couplings[layer + 1], drive[layer + 1]
        return below + coupling.down(state[layer + 1], state[layer], kernel)

    def range_of(self, layer: int) -> float:
        """``a_l``, counted from zero."""
        return self.feedback ** (layer / 2)

    def activate_layer(self, layer: int, preactivation: Tensor) -> Tensor:
        span = self.range_of(layer)
        if span == 1:
            return self.activation(preactivation)
        return span * self.activation(preactivation / span)

    def deactivate(self, state: State) -> State:
        spans = [self.range_of(layer) for layer in range(len(state))]
        return tuple(a * self.activation.inverse(s / a) for a, s in zip(spans, state, strict=True))

    def potential(self, state: State) -> Tensor:
        parts = []
        for layer, s in enumerate(state):
            span = self.range_of(layer)
            parts.append(span**2 * self.activation.potential(s / span).flatten(1).sum(1))
        return torch.stack(parts).sum(0)

    def preactivation(self, state: State, drive: Params, params: Params) -> State:
        return tuple(
            self.layer_preactivation(layer, state, drive, params) for layer in range(len(state))
        )

    def interaction(self, state: State, x: Tensor, params: Params) -> Tensor:
        below, terms = self.as_images(x), []
        for s, coupling, kernel, bias in zip(
            state, self.couplings, self._folded(params), params[1::2], strict=True
        ):
            terms.append((s * coupling.up(below, kernel, bias)).flatten(1).sum(1))
            below = s
        return torch.stack(terms).sum(0)

    def energy_gradients(
        self, phases: Phases, x: Tensor, params: Params, wants: Wants
    ) -> Gradients:
        """The Hebbian form: a kernel sees the activities at its two ends, with one local
        derivative of the pooling between them."""
        if phases[0][1][0].is_complex():
            return super().energy_gradients(phases, x, params, wants)
        posts = [_weighted_sum(phases, layer) for layer in range(len(phases[0][1]))]
        kernels, images, first = self._folded(params), self.as_images(x), self.couplings[0]
        post = first.spread(posts[0], images, kernels[0])
        found: list[Tensor | None] = [None, None, None]
        if wants[0]:
            found[0] = -first.transposed(post, kernels[0], images.shape[-2:]).reshape(x.shape)
        if wants[1]:
            found[1] = -first.kernel_gradient(post, images, kernels[0])
        if wants[2]:
            found[2] = -posts[0].sum((0, 2, 3))
        for layer in range(1, len(posts)):
            kernel_wanted, bias_wanted = wants[2 * layer + 1 : 2 * layer + 3]
            found += [
                -self._contrast(phases, layer, kernels[layer]) if kernel_wanted else None,
                -posts[layer].sum((0, 2, 3)) if bias_wanted else None,
            ]
        return tuple(found)

    def as_images(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width), whatever the shape of a sample was."""
        return x.reshape(-1, *self.image)

    def _folded(self, params: Params) -> list[Tensor]:
        pairs = zip(self.couplings, params[::2], strict=True)
        return [coupling.pooling.fold(kernel) for coupling, kernel in pairs]

    def _contrast(self, phases: Phases, layer: int, kernel: Tensor) -> Tensor:
        """``Σ_k w_k ∂/∂K ⟨s_l, P(K ⋆ s_{l−1})⟩`` over phases, in one product."""
        coupling = self.couplings[layer]
        pres = [s[layer - 1] for _, s in phases]
        posts = [
            coupling.spread(per_sample(w, s[layer]) * s[layer], s[layer - 1], kernel)
            for w, s in phases
        ]
        if len(phases) == 2 and torch.equal(phases[0][0], -phases[1][0]):
            # q₊p₊ + q₋p₋ = (q₊ + q₋)·p̄ + ½(q₊ − q₋)·(p₊ − p₋): the weights are opposite, so the
            # sum of posts is a difference of activities, taken where float32 still resolves it.
            post = torch.cat([posts[0] + posts[1], 0.5 * (posts[0] - posts[1])])
            pre = torch.cat([0.5 * (pres[0] + pres[1]), pres[0] - pres[1]])
        else:
            post, pre = torch.cat(posts), torch.cat(pres)
        return coupling.kernel_gradient(post, pre, kernel)


def _weighted_sum(phases: Phases, layer: int) -> Tensor:
    return torch.stack([per_sample(w, s[layer]) * s[layer] for w, s in phases]).sum(0)
