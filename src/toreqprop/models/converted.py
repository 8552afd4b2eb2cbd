"""Any sequential network as layers of neurons that settle, trained by equilibrium propagation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import GradientEstimator
from toreqprop.models import example_networks
from toreqprop.models.base import OnFailure
from toreqprop.models.neuron_network import FEEDBACK, NeuronNetwork
from toreqprop.solvers import Solver


class ConvertedNetwork(NeuronNetwork):
    """A sequential network whose layers of neurons hear the ones above, and settle.

    ``s_l = σ(F_l(s_{l−1}) + feedback·F'_{l+1}(s_l)ᵀ s_{l+1})`` with the network's own modules as F.
    Every run of affine modules and poolings up to an activation is a layer; max pooling right after
    an activation counts as in front of it, which is the same. What stands in front of the first
    affine module (an embedding, batch norm) and behind the last activation (the readout) is
    ordinary torch and trained by autograd.

    Args:
        net: the network; its parameters are the model's. Beside torch's modules it may have
            `Residual` blocks.
        feedback: strength of the way back, in (0, 1], against one for the way up. With weaker and
            weaker feedback the equilibrium becomes the feed-forward pass and EP's gradient that of
            backpropagation; the certificate prints the cosine of both.
        encoder: a module in front of the network, by autograd: what cannot be among the neurons.
        shape: of one sample, without the batch. Optional: given, shapes that do not fit are refused
            at once, and `lipschitz` is tighter.
        gradient, solver, tol, max_steps, on_failure: see `EquilibriumModel`.

    Shapes: those of the network.

    Raises:
        UnsupportedModelError: a module inside cannot be part of a layer; says what to do instead.
    """

    variants: ClassVar[tuple[dict[str, Any], ...]] = tuple(
        {"net": name} for name in example_networks.NETWORKS
    )

    def to_sequential(self) -> nn.Sequential:
        """The feed-forward network, with the encoder if there is one; parameters are shared."""
        front = [] if self.encoder is None else [self.encoder]
        return nn.Sequential(*front, *self.net)

    @classmethod
    def for_rows(
        cls, features: int, hidden: int, outputs: int, *, layers: int | None = None, **options: Any
    ) -> ConvertedNetwork:
        depth = 2 if layers is None else checks.whole_number("layers", layers, 1)
        numbers = {"features": features, "hidden": hidden, "outputs": outputs}
        features, hidden, outputs = (checks.whole_number(n, v, 1) for n, v in numbers.items())
        sizes = [features, *[hidden] * depth]
        modules: list[nn.Module] = []
        for below, above in itertools.pairwise(sizes):
            modules += [nn.Linear(below, above), nn.Tanh()]
        return cls(nn.Sequential(*modules, nn.Linear(sizes[-1], outputs)), **options)

    @classmethod
    def example(cls, net: str = "lenet", **options: Any) -> tuple[ConvertedNetwork, Tensor, Tensor]:
        network = example_networks.NETWORKS[net](3, 4)
        x = torch.randn(5, *example_networks.SHAPE)
        return cls(network, **options), x, torch.randint(0, 4, (5,))


class Block(NeuronNetwork):
    """Layers of neurons inside an ordinary network: maps in, the states of the last layer out.

    ``nn.Sequential(conv, batch_norm, relu, Block(nn.Sequential(conv, tanh, conv, tanh)), pool,
    linear)`` trains end to end by one ``loss.backward()``: the modules around the block by
    autograd, its own by EP, which also hands the gradient of its input on to what stands in front.

    Args:
        net, feedback, encoder, shape: see `ConvertedNetwork`; it begins with an affine module or a
            residual block and ends with an activation or a residual block.
        gradient, solver, tol, max_steps, on_failure: see `EquilibriumModel`.
    """

    def _check_layers(self) -> None:
        around = (*self.neurons.before, *self.neurons.after)
        if around:
            name = type(self.net.get_submodule(around[0])).__name__
            raise InvalidInputError(
                f"A block is layers of neurons from end to end, and {name} (module {around[0]}) is "
                "not one of them: put it before or after the block in the network around it."
            )


def convert(
    net: nn.Sequential,
    *,
    feedback: float = FEEDBACK,
    encoder: nn.Module | Sequence[Any] | None = None,
    shape: Sequence[int] | None = None,
    gradient: GradientEstimator | None = None,
    solver: Solver | None = None,
    tol: float | None = None,
    max_steps: int | None = None,
    on_failure: OnFailure = "warn",
) -> ConvertedNetwork:
    """The network with its layers as neurons that settle; the same parameters, trained by EP.

    Arguments, and what is raised, as in `ConvertedNetwork`.
    """
    return ConvertedNetwork(
        net,
        feedback=feedback,
        encoder=encoder,
        shape=shape,
        gradient=gradient,
        solver=solver,
        tol=tol,
        max_steps=max_steps,
        on_failure=on_failure,
    )
