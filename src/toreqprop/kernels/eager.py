"""The kernel in PyTorch alone: in place, no (batch, hidden) tensor allocated inside the loop."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from toreqprop.kernels.base import Kernel, Limits, Pair, Relaxed
from toreqprop.kernels.reference import ACTIVITY_FLOOR, DRIFT, NUDGE_SLACK, ROUNDING_FLOOR


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
                nudged = torch.minimum(NUDGE_SLACK * moved, size[:, 0].clamp_min(floor))
                scale, origin = torch.where(moved > 0, nudged, torch.inf), None
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
        return Relaxed(
            image,
            state,
            product,
            residual.squeeze(1),
            bound.squeeze(1),
            reference.squeeze(1),
            steps,
            converged,
            finite,
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
        batch, hidden = drive.shape
        eps = torch.finfo(drive.dtype).eps
        factor = 1.0 if limits.contraction is None else limits.contraction
        drives = torch.sub(drive, direction, alpha=beta), torch.add(drive, direction, alpha=beta)
        buffers = drive.new_zeros(9, *drive.shape)
        up, down, new, half, middle, shift, moved, turn, drift = buffers.unbind(0)
        center, product = state.clone(), product.clone()
        odd, even, reach, size, gap, other = drive.new_zeros(6, batch, 1).unbind(0)
        done = torch.zeros(batch, 1, dtype=torch.bool)
        for steps in range(1, limits.max_steps + 1):
            for image, given, sign in ((up, drives[0], 1.0), (down, drives[1], -1.0)):
                torch.add(product, moved, alpha=sign, out=new)
                new.add_(given).tanh_()
                torch.where(done, image, new, out=image)
            torch.sub(up, down, out=half)
            half.mul_(0.5)
            torch.lerp(up, down, 0.5, out=middle)
            # Frozen samples keep images, shift and center, hence also these norms.
            torch.linalg.vector_norm(half, dim=1, keepdim=True, out=reach)
            torch.linalg.vector_norm(middle, dim=1, keepdim=True, out=size)
            torch.sub(half, shift, out=turn)
            torch.sub(middle, center, out=drift)
            torch.linalg.vector_norm(turn, dim=1, keepdim=True, out=odd)
            torch.linalg.vector_norm(drift, dim=1, keepdim=True, out=even)
            for sign, out in ((1.0, gap), (-1.0, other)):
                torch.add(drift, turn, alpha=sign, out=new)
                torch.linalg.vector_norm(new, dim=1, keepdim=True, out=out)
            torch.maximum(gap, other, out=gap)
            if record is not None:
                record.append((up.clone(), down.clone()))
            scale = size.clamp_min(ACTIVITY_FLOOR * hidden**0.5)
            exact = ROUNDING_FLOOR * eps * size
            apart = (factor * odd <= NUDGE_SLACK * limits.tol * reach) | (odd <= exact)
            done |= (apart & (factor * gap <= limits.tol * scale)) | (gap <= exact)
            converged, finite = bool(done.all()), bool(torch.isfinite(gap).all())
            if converged or not finite or steps == limits.max_steps:
                break
            torch.where(done, shift, half, out=shift)
            torch.mm(shift, weight, out=moved)
            recentred = (factor * even > DRIFT * limits.tol * scale) & ~done
            if bool(recentred.any()):
                torch.where(recentred, middle, center, out=center)
                torch.mm(center, weight, out=new)
                torch.where(recentred, new, product, out=product)
        if limits.contraction is not None and limits.contraction < 1:
            bound = (factor * gap + (hidden * eps) * size) / (1 - factor)
        else:
            bound = torch.full_like(gap, torch.inf)
        residual, bound, scale = (f.squeeze(1) for f in (factor * gap / scale, bound, scale))
        return Pair(up, down, residual, bound, scale, steps, converged, finite)

    def normalise(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        peak = cotangent.abs().amax(1, keepdim=True)
        unit = cotangent / torch.where(peak > 0, peak, 1.0)
        rms = torch.linalg.vector_norm(unit, dim=1, keepdim=True).div_(cotangent.shape[1] ** 0.5)
        return unit.div_(torch.where(rms > 0, rms, 1.0)), (peak * rms).squeeze(1)

    def contrast(self, up: Tensor, down: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        delta = torch.sub(down, up).mul_(weight[:, None])
        return delta, torch.lerp(up, down, 0.5), delta.sum(0)
