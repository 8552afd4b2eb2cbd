"""The reference behind the interface of a kernel: slow, and right by definition."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from toreqprop.kernels import reference
from toreqprop.kernels.base import Kernel, status
from toreqprop.solution import Solution


class NumpyKernel(Kernel):
    """``kernels.reference``, on the memory of the tensors it is given."""

    name: ClassVar[str] = "numpy"

    def relax(
        self,
        weight: Tensor,
        drive: Tensor,
        start: Tensor | None,
        *,
        tol: float,
        max_steps: int,
        contraction: float | None,
        record: list[tuple[Tensor, ...]] | None = None,
    ) -> Solution:
        images: list[reference.Array] = []
        found = reference.relax(
            weight.detach().numpy(), drive.detach().numpy(),
            None if start is None else start.numpy(),
            tol=tol, max_steps=max_steps, contraction=contraction, record=images,
        )  # fmt: skip
        if record is not None:
            record.extend((torch.from_numpy(image),) for image in images)
        image, state, product, residual = (torch.from_numpy(a) for a in found[:4])
        ended = status(found.converged, found.finite)
        layer = None if found.converged else 0
        return Solution(
            (image,), found.steps, residual, ended, layer=layer, memory=(state, product)
        )

    def relax_pair(
        self,
        weight: Tensor,
        drive: Tensor,
        push: Tensor,
        memory: tuple[Tensor, Tensor],
        *,
        tol: float,
        max_steps: int,
        contraction: float | None,
        strength: float = 1.0,
        image: Tensor | None = None,
        record: list[tuple[Tensor, ...]] | None = None,
    ) -> Solution:
        images: list[tuple[reference.Array, reference.Array]] = []
        found = reference.relax_pair(
            *(t.detach().numpy() for t in (weight, drive, push * strength, *memory)),
            tol=tol, max_steps=max_steps, contraction=contraction, record=images,
        )  # fmt: skip
        if record is not None:
            record.extend((torch.from_numpy(c), torch.from_numpy(d)) for c, d in images)
        center, shift, residual = (torch.from_numpy(a) for a in found[:3])
        ended = status(found.converged, found.finite)
        layer = None if found.converged else 0
        return Solution((center,), found.steps, residual, ended, shift=(shift,), layer=layer)
