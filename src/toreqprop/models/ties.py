"""What a compiled step holds on to: where a model's parameters and buffers are in memory.

To look all of them up at every step took as long as the products of a small network. They are
looked up once, and asked at every step whether they are still where they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from toreqprop.energies.bounded import Layout, stays
from toreqprop.energies.tight_ball import TightBall
from toreqprop.models.constrained import HOOKS, Constrained, hooks_of
from toreqprop.models.readout import Readout
from toreqprop.tracing import all_plain

Named = tuple[Mapping[str, Any], str, Any]
"""A table, a name in it, and what has that name; None where nothing has."""


class Matrices(NamedTuple):
    """The parameters of layers, as the optimizer moves them; the balls that some of them are
    brought into, and which these are."""

    params: tuple[Tensor, ...]
    balls: tuple[TightBall, ...]
    inside: tuple[int, ...]


def matrices_of(layers: Sequence[nn.Module]) -> Matrices | None:
    """Weights and biases of layers in turn; None where somebody waits for a call of one, or where
    constraints are others than one tight ball."""
    params: list[Any] = []
    balls: list[TightBall] = []
    inside: list[int] = []
    for layer in layers:
        own, kind = layer._parameters, type(layer)
        if layer._forward_pre_hooks or (kind is not nn.Linear and kind is not Constrained):
            return None
        if kind is nn.Linear:
            params += (own.get("weight"), own.get("bias"))
            continue
        parts: Any = layer._modules
        limits = tuple(parts["constraints"]._modules.values())
        if len(limits) != 1 or parts["bias_constraints"]._modules:
            return None
        ball = limits[0]
        if type(ball) is not TightBall or any(hooks_of(ball)):
            return None
        balls.append(ball)
        inside.append(len(params))
        params.append(own["raw"])
        if own.get("raw_bias") is not None:
            params.append(own["raw_bias"])
    if not _learn(params):
        return None
    return Matrices(tuple(params), tuple(balls), tuple(inside))


def _learn(params: Iterable[Any]) -> bool:
    """Whether all are there, learn, and lie in rows."""
    return all(p is not None and p.requires_grad and p.is_contiguous() for p in params)


class Ties:
    """Parameters and buffers at their addresses, and whether these still are a model's.

    Attributes:
        layers: whose parameters these are.
        given: what the layers are made of.
        params: their parameters, then weight and bias of the readout, if there is one.
        own: their addresses, and how many outputs are read, none without a readout.
        balls: the places of `kernels.balls`; where they are in scratch memory, how far they are
            from the first of the vectors.
        readout, gains: what reads, and its two factors.
    """

    __slots__ = (
        "_empty", "_named", "_seen", "_tables",
        "balls", "gains", "given", "layers", "own", "params", "readout",
    )  # fmt: skip

    def __init__(
        self,
        layers: tuple[nn.Module, ...],
        given: Matrices,
        readout: Readout | None,
        places: np.ndarray,
    ) -> None:
        self.layers, self.given = layers, given
        self.readout, self.balls = readout, places
        self.params: tuple[Any, ...] = given.params
        watched, outputs = [*layers], 0
        hooks: list[Any] = [layer._forward_pre_hooks for layer in layers]
        if readout is not None:
            weight, bias = _read(readout)
            self.params, outputs = (*given.params, weight, bias), len(weight)
            watched.append(readout.layer)
            hooks += hooks_of(readout.layer)
        self.gains = np.ones(2) if readout is None else np.array(readout[1:])
        unread = [] if readout is not None else [0, 0]
        found = [p.data_ptr() for p in self.params]
        self.own = np.array([*found, *unread, outputs], np.int64)
        named: list[Named] = []
        tables: list[dict[str, Any]] = [ball._buffers for ball in given.balls]
        for layer in watched:
            tables += (layer._parameters, layer._modules)
            if type(layer) is Constrained:
                tables.append(layer.constraints._modules)
                hooks.append(layer.bias_constraints._modules)
        for ball in given.balls:
            hooks += hooks_of(ball)
            named += [(ball.__dict__, name, getattr(ball, name)) for name in ("radius", "compiled")]
        if readout is not None:
            named.append((readout.layer.__dict__, "forward", None))
        # Somebody may put new tables in their places.
        asked: list[tuple[nn.Module, tuple[str, ...]]] = [(layer, HOOKS[:1]) for layer in layers]
        asked += [(m, HOOKS) for m in (*given.balls, *watched[len(layers) :])]
        named += [(m.__dict__, name, m.__dict__.get(name)) for m, names in asked for name in names]
        self._empty, self._tables = tuple(hooks), tuple([(t, len(t)) for t in tables])
        named += [(table, name, what) for table in tables for name, what in table.items()]
        self._named = tuple(named)
        seen = [*self.params, *[b for ball in given.balls for b in ball._buffers.values()]]
        self._seen = tuple([(t, t.data_ptr(), t.shape, t.dtype) for t in seen])

    @classmethod
    def of(
        cls,
        layers: tuple[nn.Module, ...],
        readout: Readout | None,
        dtype: torch.dtype,
        layout: Layout,
        written: Sequence[int] | None,
    ) -> Ties | None:
        """None where compiled code cannot take them: see `matrices_of`, and `read_out`.

        ``written`` says where weights in their balls are written, counted in numbers from the
        first vector; None where they are not.
        """
        given = matrices_of(layers)
        if given is None:
            return None
        seen: list[Any] = list(given.params)
        if readout is not None:
            layer = readout.layer
            if type(layer) is not nn.Linear or "forward" in layer.__dict__ or any(hooks_of(layer)):
                return None
            read = _read(readout)
            if not _learn(read):
                return None
            seen += read
        places: list[int] = []
        for k, (ball, at) in enumerate(zip(given.balls, given.inside, strict=True)):
            buffers: Any = ball._buffers
            if not stays(ball, buffers["start"], dtype):
                return None
            seen += (buffers["start"], buffers["margin"])
            raw = given.params[at].data_ptr()
            left, right = layout.offsets[k]
            places += (
                raw, raw if written is None else dtype.itemsize * written[k],
                buffers["start"].data_ptr(), dtype.itemsize * left, dtype.itemsize * right,
                buffers["margin"].data_ptr(), buffers["steps"].data_ptr(), 0,
            )  # fmt: skip
        if not all_plain(seen) or seen[0].dtype != dtype:
            return None
        return cls(layers, given, readout, np.array(places, np.int64).reshape(-1, 8))

    def hold(self) -> bool:
        """Whether all is where it was, learns, and nobody waits for a call of it."""
        for names, count in self._tables:
            if len(names) != count:
                return False
        for table, name, what in self._named:
            if table.get(name) is not what:
                return False
        for tensor, place, shape, dtype in self._seen:
            if tensor.data_ptr() != place or tensor.shape != shape:
                return False
            if tensor.dtype is not dtype or not tensor.is_contiguous():
                return False
        for param in self.params:
            if not param.requires_grad:
                return False
        return not any(self._empty)

    def stay(self, saved: Sequence[Tensor]) -> bool:
        """Whether all is where it was, and what autograd has ``saved`` of the parameters is that,
        and not a copy of what they were."""
        if not all(tensor.data_ptr() == place for tensor, place, _, _ in self._seen):
            return False
        both = zip(saved, self._seen, strict=False)
        return all(tensor.data_ptr() == place for tensor, (_, place, _, _) in both)


def _read(readout: Readout) -> tuple[Any, Any]:
    own = readout.layer._parameters
    return own.get("weight"), own.get("bias")
