"""Max pooling within a relaxation: how many pixels win in one nudged phase alone, and at what cost.

The derivative of a maximum jumps where another pixel wins. Of two pixels that nearly tie, the nudge
makes one win at +β and the other at −β: feedback moves from one to the other, by an amount that
does not shrink with β, and the contrast divides it by β. That is no error of a relaxation (with
winners held at the free phase's, the nudged equilibria would be none); a nudge that is weaker than
every tie does not meet it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.certificate import certify
from toreqprop.energies import MaxPooling
from toreqprop.gradients import CenteredEP
from toreqprop.models import HopfieldConvNet
from toreqprop.solution import Solution


@dataclass(frozen=True)
class Nudged:
    """One certificate under max pooling, and the windows whose winner differs between phases."""

    beta: float
    changed: int
    windows: int
    image_cosine: float
    min_cosine: float

    @property
    def row(self) -> tuple[float, int, int, float, float]:
        return self.beta, self.changed, self.windows, self.image_cosine, self.min_cosine


def nudged(model: HopfieldConvNet, x: Tensor, y: Tensor, betas: tuple[float, ...]) -> list[Nudged]:
    """Certificates over β; the model's own estimator is left as it was."""
    kept, found = model.gradient, []
    try:
        for beta in betas:
            model.gradient = (
                replace(kept, beta=beta) if isinstance(kept, CenteredEP) else CenteredEP(beta)
            )
            certificate = certify(model, x, y)
            image = next(t.cosine for t in certificate.tensors if t.name == "input")
            counted = _count(model, x, y)
            found.append(Nudged(beta, *counted, image, certificate.min_cosine))
    finally:
        model.gradient = kept
    return found


def _count(model: HopfieldConvNet, x: Tensor, y: Tensor) -> tuple[int, int]:
    """Windows whose winner differs between the two nudged phases, and all windows."""
    phases: list[Solution] = []
    key = model.register_relaxation_hook(
        lambda phase, solution: phases.append(solution) if phase == "nudged" else None
    )
    try:
        with torch.enable_grad():
            loss = F.cross_entropy(model(x), y)
            torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
    finally:
        model.remove_relaxation_hook(key)
    changed = total = 0
    params = [p.detach() for p in model.system_parameters()]
    for layer, pooling in enumerate(model.pooling):
        if layer == 0 or not isinstance(pooling, MaxPooling):
            continue
        kernel = params[2 * layer]
        up, down = (
            F.max_pool2d(
                F.conv2d(phase[layer - 1], kernel, padding=kernel.shape[-1] // 2),
                pooling.size,
                return_indices=True,
            )[1]
            for phase in (phases[-1].up, phases[-1].down)
        )
        changed += int((up != down).sum())
        total += up.numel()
    return changed, total
