"""The kernel in PyTorch alone: in place, no (batch, hidden) tensor allocated inside the loop."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from toreqprop.kernels.base import Kernel, Limits, Relaxed
from toreqprop.kernels.reference import ACTIVITY_FLOOR, ROUNDING_FLOOR


class TorchKernel(Kernel):
    """Eager PyTorch; needs nothing else."""

    name: ClassVar[str] = "torch"

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
        batch, hidden = drive.shape
        eps = torch.finfo(drive.dtype).eps
        factor = 1.0 if limits.contraction is None else limits.contraction
        floor = ACTIVITY_FLOOR * hidden**0.5
        done = torch.zeros(batch, 1, dtype=torch.bool)
        gap, size, reference = drive.new_zeros(3, batch, 1).unbind(0)
        image, scratch = torch.empty_like(drive), torch.empty_like(drive)
        # The start belongs to the caller; `state` and `product` are buffers of this call.
        state = torch.tanh(drive) if state is None else state.clone()
        product = torch.mm(state, weight) if product is None else product.clone()
        for steps in range(1, limits.max_steps + 1):
            torch.add(drive, product, out=scratch)
            scratch.tanh_()
            if steps == 1:
                image.copy_(scratch)
            else:
                torch.where(done, image, scratch, out=image)
            # Frozen samples keep image, state and product, hence also gap, size and reference.
            torch.sub(image, state, out=scratch)
            torch.linalg.vector_norm(scratch, dim=1, keepdim=True, out=gap)
            torch.linalg.vector_norm(image, dim=1, keepdim=True, out=size)
            if origin is not None:
                torch.sub(image, origin, out=scratch)
                moved = torch.linalg.vector_norm(scratch, dim=1)
                scale, origin = torch.where(moved > 0, moved, torch.inf), None
            reference = size.clamp_min(floor) if scale is None else scale[:, None]
            if record is not None:
                record.append(image.clone())
            done = (factor * gap <= limits.tol * reference) | (gap <= ROUNDING_FLOOR * eps * size)
            converged, finite = bool(done.all()), bool(torch.isfinite(gap).all())
            if converged or not finite or steps == limits.max_steps:
                break
            torch.where(done, state, image, out=state)
            torch.mm(state, weight, out=product)
        if limits.contraction is not None and limits.contraction < 1:
            bound = (factor * gap + (hidden * eps) * size) / (1 - factor)
        else:
            bound = torch.full_like(gap, torch.inf)
        residual = factor * gap / reference
        columns = (t.squeeze(1) for t in (residual, bound, reference))
        return Relaxed(image, state, product, *columns, steps, converged, finite)

    def normalise(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        peak = cotangent.abs().amax(1, keepdim=True)
        unit = cotangent / torch.where(peak > 0, peak, 1.0)
        rms = torch.linalg.vector_norm(unit, dim=1, keepdim=True).div_(cotangent.shape[1] ** 0.5)
        return unit.div_(torch.where(rms > 0, rms, 1.0)), (peak * rms).squeeze(1)

    def contrast(self, up: Tensor, down: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        delta = torch.sub(down, up).mul_(weight[:, None])
        return delta, torch.lerp(up, down, 0.5), delta.sum(0)
