"""Layers of neurons read off a sequential network, as a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies import Params
from toreqprop.errors import InvalidInputError, TorEqPropError
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.models.base import EquilibriumModel, OnFailure, check_samples, check_tensor
from toreqprop.models.constrained import weight_and_bias
from toreqprop.models.module_data import built, describe
from toreqprop.models.neurons import Neurons, read
from toreqprop.solution import State
from toreqprop.solvers import GaussSeidel, Solver

FEEDBACK = 0.1
"""Weak enough that networks as torch initialises them settle in a few sweeps, also after training;
strong enough that what settles is no feed-forward pass."""


BETA = 1e-4
"""Of the default estimator: activations with kinks are linear only as far as the next neuron's
kink. The difference of the phases is carried, so that a weak nudge costs no digits."""


class NeuronNetwork(EquilibriumModel):
    """What a converted network and a block share: their layers read off an ``nn.Sequential``.

    Arguments as in `ConvertedNetwork`.
    """

    def __init__(
        self,
        net: nn.Sequential | Sequence[Any],
        *,
        feedback: float = FEEDBACK,
        encoder: nn.Module | Sequence[Any] | None = None,
        shape: Sequence[int] | None = None,
        gradient: GradientEstimator | None = None,
        solver: Solver | None = None,
        tol: float | None = None,
        max_steps: int | None = None,
        on_failure: OnFailure = "warn",
    ) -> None:
        network, front = built(net), None if encoder is None else built(encoder)
        checks.instance("net", network, nn.Sequential, "put its modules into one")
        if front is not None:
            checks.module("encoder", front)
        neurons = read(network)
        _check_feedback(feedback, len(neurons.ways))
        super().__init__(
            neurons.energy(feedback),
            gradient=CenteredEP(BETA) if gradient is None else gradient,
            solver=_in_turn(neurons) if solver is None else solver,
            tol=tol,
            max_steps=max_steps,
            on_failure=on_failure,
        )
        self.net: nn.Sequential = network
        self.encoder: nn.Module | None = front
        self.neurons = neurons
        self.feedback = float(feedback)
        self.shape = None if shape is None else checks.sizes("shape", shape, 1, "(3, 32, 32)")
        self._check_layers()
        self._fitting: set[tuple[int, ...]] = set()
        if self.shape is not None:
            self._check_fit(self.shape)

    def _check_layers(self) -> None:
        """Refuse layers that are not what the model is for."""

    def config(self) -> dict[str, Any]:
        found = super().config()
        return {**found, "net": describe(self.net), "encoder": describe(self.encoder)}

    def field_input(self, x: Tensor) -> Tensor:
        return _through(self.net, self.neurons.before, self._encoded(x))

    def _encoded(self, x: Tensor) -> Tensor:
        if self.encoder is None:
            return x
        code = self.encoder(x)
        # A module of the user's may make numbers of a precision of its own.
        return code.to(next(self.net.parameters()).dtype) if code.is_floating_point() else code

    def system_parameters(self) -> Params:
        found = []
        for name in self.neurons.names():
            weight, bias = weight_and_bias(self.net.get_submodule(name))
            found += [weight, weight.new_zeros(len(weight)) if bias is None else bias]
        return tuple(found)

    def readout_from(self, state: State) -> Tensor:
        return _through(self.net, self.neurons.after, state[-1])

    def feedforward(self, x: Tensor) -> Tensor:
        return self.net(self._encoded(x))

    def check_input(self, x: Tensor) -> None:
        check_tensor(x)
        if x.dim() == 0:
            raise InvalidInputError(
                "The input must have samples along its first dimension, got a single number: add "
                "dimensions with x.reshape."
            )
        front = self._modules_in_front()
        first = front[0] if front else None
        while isinstance(first, nn.Sequential) and len(first):
            first = first[0]
        if isinstance(first, nn.Embedding):
            _check_tokens(x, first)
        elif x.is_floating_point() or not front:
            check_samples(x, next(self.parameters()).dtype)
        if (shape := tuple(x.shape[1:])) not in self._fitting:
            self._check_fit(shape, x.dtype)

    def layer_shapes(self) -> list[tuple[int, ...]]:
        if self.shape is None or (inner := self._check_fit(self.shape)) is None:
            return []
        params = tuple(_on_meta(p) for p in self.system_parameters())
        drive = self.field.prepare(inner, params)
        return [tuple(s.shape[1:]) for s in self.field.initial_state(drive, params)]

    def _modules_in_front(self) -> list[nn.Module]:
        front = [] if self.encoder is None else [self.encoder]
        return front + [self.net.get_submodule(name) for name in self.neurons.before]

    def _embedded(self) -> list[Tensor]:
        return [p for module in self._modules_in_front() for p in module.parameters()]

    def _check_fit(self, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor | None:
        """Refuse samples of a shape that a module cannot take, by its name, before any work.

        Only torch's own modules are tried, without numbers; what the first layer would be given, or
        None where a module in front is not one of them.
        """
        x = torch.zeros((2, *shape), dtype=dtype or next(self.parameters()).dtype, device="meta")
        inner = None if self._modules_in_front() else x
        neurons = self.neurons
        steps: list[tuple[str, nn.Module]] = []
        if self.encoder is not None:
            steps.append(("encoder", self.encoder))
        for name in (*neurons.before, *neurons.inside, *neurons.after):
            steps.append((name, self.net.get_submodule(name)))
        for name, module in steps:
            if isinstance(describe(module), nn.Module):
                break
            if name == neurons.inside[0]:
                inner = x
            x = _tried(module, name, x, shape)
        self._fitting.add(shape)
        return inner

    def extra_repr(self) -> str:
        lines = [str(self.neurons)]
        front = [type(m).__name__ for m in self._modules_in_front()]
        after = [type(self.net.get_submodule(name)).__name__ for name in self.neurons.after]
        if front:
            lines.insert(0, f"in front, by autograd: {', '.join(front)}")
        if after:
            lines.append(f"readout: {', '.join(after)} of layer {len(self.neurons.ways) - 1}")
        lines.append(
            f"feedback={self.feedback:g}, gradient={self.gradient}, solver={self.solver}, "
            f"tol={self.tol:g}, max_steps={self.max_steps}"
        )
        return "\n".join(lines)


def _in_turn(neurons: Neurons) -> Solver:
    """Layer by layer: a nudge crosses all of them in one sweep, and so does the free phase.

    Down and up again where no layer is skipped: passes (`solvers.passes`) then take both ways for
    the products of one.
    """
    return GaussSeidel("sequential" if neurons.skips else "symmetric", max_steps=200)


def _through(net: nn.Sequential, names: Sequence[str], x: Tensor) -> Tensor:
    for name in names:
        x = net.get_submodule(name)(x)
    return x


def _tried(module: nn.Module, name: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The module's output on tensors without numbers, or a sentence about what does not fit."""
    before = tuple(x.shape[1:])
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    without = {key: _on_meta(t) for key, t in tensors.items()}
    try:
        with torch.no_grad():
            return torch.func.functional_call(module, without, (x,))
    except TorEqPropError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InvalidInputError(
            f"Samples of shape {shape} do not fit: module {name}, {module}, cannot take "
            f"{before} ({reason})."
        ) from None


def _on_meta(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device="meta")


def _check_feedback(feedback: float, layers: int) -> None:
    plain = isinstance(feedback, int | float) and not isinstance(feedback, bool)
    if not plain or not 0 < feedback <= 1:
        raise InvalidInputError(
            f"feedback must be in (0, 1], got {checks.shown(feedback)}: typical is {FEEDBACK:g}, "
            "and without any the network itself trains by backpropagation."
        )
    if feedback ** (layers - 1) < SMALLEST:
        least = SMALLEST ** (1 / (layers - 1))
        raise InvalidInputError(
            f"feedback={feedback:g} leaves nothing of a nudge after {layers} layers in float32: "
            f"use {least:.1g} or more."
        )


SMALLEST = 1e-25
"""What a nudge may shrink to on its way down: float32 ends at 1e-38, and β and slopes need room."""


def _check_tokens(x: Tensor, embedding: nn.Embedding) -> None:
    if x.numel() == 0:
        raise InvalidInputError("The batch is empty: pass at least one sample.")
    if x.dtype != torch.int64:
        raise InvalidInputError(
            f"Tokens must be torch.int64, got {x.dtype}: convert them with x.long()."
        )
    low, high = (int(v) for v in torch.aminmax(x))
    if low < 0 or high >= embedding.num_embeddings:
        raise InvalidInputError(
            f"Tokens must be 0 to {embedding.num_embeddings - 1}, got "
            f"{low if low < 0 else high}: use a larger nn.Embedding or map the tokens."
        )
