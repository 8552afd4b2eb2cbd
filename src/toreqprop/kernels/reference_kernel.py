"""The reference behind the interface of a kernel: slow, and right by definition."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from toreqprop.kernels import reference
from toreqprop.kernels.base import Kernel, Limits, Pair, Relaxed


class NumpyKernel(Kernel):
    """``kernels.reference``, on the memory of the tensors it is given."""

    name: ClassVar[str] = "numpy"

    def relax(
        self,
        weight: Tensor,
        drive: Tensor,
        state: Tensor | None,
        product: Tensor | None,
        limits: Limits,
        *,
        scale: Tensor | None = None,
        origin: Tensor | None = None,
        keep: bool = True,
        record: list[Tensor] | None = None,
    ) -> Relaxed:
        states: list[reference.Array] | None = None if record is None else []
        found = reference.relax(
            _array(weight),
            _array(drive),
            None if state is None else _array(state),
            None if product is None else _array(product),
            tol=limits.tol,
            max_steps=limits.max_steps,
            contraction=limits.contraction,
            scale=None if scale is None else _array(scale),
            origin=None if origin is None else _array(origin),
            record=states,
        )
        if record is not None and states is not None:
            record.extend(torch.from_numpy(s) for s in states)
        return Relaxed(
            *(_tensor(a, drive.dtype) for a in found[:6]),  # type: ignore[call-arg, arg-type]
            *found[6:],
        )

    def relax_pair(
        self,
        weight: Tensor,
        drive: Tensor,
        direction: Tensor,
        beta: float,
        state: Tensor,
        product: Tensor,
        limits: Limits,
        *,
        record: list[tuple[Tensor, Tensor]] | None = None,
    ) -> Pair:
        states: list[tuple[reference.Array, reference.Array]] = []
        found = reference.relax_pair(
            *(_array(t) for t in (weight, drive, beta * direction, state, product)),
            tol=limits.tol,
            max_steps=limits.max_steps,
            contraction=limits.contraction,
            record=states,
        )
        if record is not None:
            record.extend((torch.from_numpy(up), torch.from_numpy(down)) for up, down in states)
        return Pair(
            *(_tensor(a, drive.dtype) for a in found[:5]),  # type: ignore[call-arg, arg-type]
            *found[5:],
        )

    def normalise(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        direction, rms = reference.normalise(_array(cotangent))
        return torch.from_numpy(direction), torch.from_numpy(rms)

    def contrast(self, up: Tensor, down: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = reference.contrast(_array(up), _array(down), _array(weight))
        delta, mean, total = (torch.from_numpy(a) for a in found)
        return delta, mean, total


def _array(tensor: Tensor) -> reference.Array:
    return tensor.detach().numpy()


def _tensor(array: Any, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(array).to(dtype)
