"""The least energy between two passes through a stack under a nudge.

To first order a nudge moves layers by the z that makes ``½·z·Hz + f·z`` smallest, with the energy's
second derivative H at the free equilibrium and the forces f: ``Σ_l t_l·[½⟨z_l, z_l/σ'_l⟩ −
⟨z_l, F'_l z_{l−1}⟩ + ⟨z_l, push_l⟩]``. A pass is a block Gauss-Seidel sweep for it. The best of all
``a·z + b·(z − z')``, of a pass and the one before, is what conjugate gradients would find of two,
and needs no product more: ``z_l/σ'_l`` is the preactivation that z_l is the image of, what comes
down to a layer, times its shift, is what the coupling adds, and the slope is due to what a layer
has changed by since the one above has seen it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from toreqprop.solvers.pass_steps import TINY, Moved, Steps


def least_energy(
    steps: Sequence[Steps],
    heat: Sequence[float],
    new: Sequence[Moved],
    old: Sequence[Moved],
    before: Sequence[Tensor],
) -> tuple[Tensor, Tensor]:
    """(batch,) factors of the new pass and of the old one, layers at these temperatures; ``before``
    are the lower layers as the last way up has left them.

    One and zero for a sample whose energy has no minimum there, or one that is far away.
    """
    total = torch.zeros(5, len(new[0].state), dtype=torch.float64, device=new[0].state.device)
    for own, warm, one, other, past in zip(
        steps, heat, new, old, [*before, new[-1].state], strict=True
    ):
        total += warm * own.bend(one, other, past)
    return steps[0].factors(total)


def downhill(
    steps: Sequence[Steps],
    heat: Sequence[float],
    new: Sequence[Moved],
    old: Sequence[Moved],
    before: Sequence[Tensor],
) -> Tensor:
    """(batch,) the share of the last pass's change, once more, at which the energy of a free phase
    is least.

    After a way down a layer is the image of what was below it ``before``: the energy's slope is
    ``−t_l·F'_l·(s_{l−1} − before_{l−1})``.
    """
    curve = torch.zeros(len(before[0]), dtype=torch.float64, device=before[0].device)
    fall = torch.zeros_like(curve)
    for layer, (own, warm, one, other) in enumerate(zip(steps, heat, new, old, strict=True)):
        bent = own.overlap(one.total, other.total, one.state, other.state)
        curve += warm * bent
        if one.above is None or other.above is None:
            continue
        # All that changes in the lowest layer comes from above.
        lowest = one.above is one.total
        joint = bent if lowest else own.overlap(one.above, other.above, one.state, other.state)
        curve -= 2 * warm * joint
        if not lowest:
            joint = own.overlap(one.above, other.above, one.state, before[layer])
        fall += warm * joint
    return _share(fall, curve)


def geometric(
    steps: Sequence[Steps],
    heat: Sequence[float],
    now: Sequence[Tensor],
    before: Sequence[Tensor],
    earlier: Sequence[tuple[Tensor, Tensor]],
) -> Tensor:
    """(batch,) ``q/(1 − q)`` where a pass has changed the layers by q of what the one before did,
    along that: for couplings whose winners change from pass to pass, of which the energy's
    curvature knows nothing."""
    last = torch.zeros(len(now[0]), dtype=torch.float64, device=now[0].device)
    first = torch.zeros_like(last)
    for own, warm, a, b, (c, d) in zip(steps, heat, now, before, earlier, strict=False):
        last += warm * own.overlap(a, b, c, d)
        first += warm * own.overlap(c, d, c, d)
    return _share(last, first - last)


def _share(fall: Tensor, curve: Tensor) -> Tensor:
    sound = (curve > TINY) & (fall > 0)
    return torch.where(sound, fall / torch.where(sound, curve, 1.0), 0.0).clamp_max(FURTHEST)


FURTHEST = 2.0
"""The most of its last change that a free phase is moved on by."""
