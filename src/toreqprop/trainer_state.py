"""Where a training stands, and whether another may go on from there."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from toreqprop import checks
from toreqprop.errors import InvalidInputError

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class TrainerState:
    """What training goes on from after ``epoch``, the model's own tensors apart.

    ``optimizer`` and ``scheduler`` are their state dicts (None without a schedule), ``batches``
    the state of the generator that orders the data, ``noise`` that of the one which random
    estimators draw from.
    """

    epoch: int
    optimizer: dict[str, Any]
    scheduler: dict[str, Any] | None
    batches: Tensor
    noise: Tensor


def restore(
    state: TrainerState,
    optimizer: Optimizer,
    scheduler: LRScheduler | None,
    generator: torch.Generator,
    noise: torch.Generator,
) -> None:
    """Put a state in place.

    Raises:
        InvalidInputError: it belongs to another model or other settings, or is damaged.
    """
    if (scheduler is None) != (state.scheduler is None):
        raise InvalidInputError("Go on with the learning-rate schedule training was begun with.")
    checks.whole_number("The epoch to continue from", state.epoch, 0)
    _check_groups(state.optimizer, optimizer)
    _check_moments(state.optimizer, optimizer)
    try:
        optimizer.load_state_dict(state.optimizer)
        if scheduler is not None and state.scheduler is not None:
            _check_schedule(state.scheduler, scheduler.state_dict())
            scheduler.load_state_dict(state.scheduler)
        generator.set_state(state.batches)
        noise.set_state(state.noise)
    except (ValueError, TypeError, KeyError, RuntimeError, AttributeError) as error:
        raise _unusable(" ".join(str(error).split())) from None


def _check_groups(state: Any, optimizer: Optimizer) -> None:
    """The settings must be those of the new optimizer; only a schedule may have moved its rate."""
    mine = optimizer.state_dict()["param_groups"]
    theirs = state.get("param_groups") if isinstance(state, dict) else None
    if not isinstance(theirs, list) or len(theirs) != len(mine):
        raise _unusable("its optimizer has other groups of parameters")
    for new, old in zip(mine, theirs, strict=True):
        if not isinstance(old, dict) or set(old) != set(new):
            raise _unusable("its optimizer has other settings")
        begun = "initial_lr" if "initial_lr" in new else "lr"
        for name in set(new) - ({"lr"} if begun != "lr" else set()):
            if _plain(old[name]) != _plain(new[name]):
                shown = "learning_rate" if name == begun else name
                raise InvalidInputError(
                    f"Training was begun with {shown} = {old[name]}, not {new[name]}: go on with "
                    "the same settings and the same model."
                )
        if not _is_number(old["lr"]) or old["lr"] < 0:
            raise _unusable(f"its learning rate is {old['lr']!r}")


def _check_moments(state: dict[str, Any], optimizer: Optimizer) -> None:
    moments = state.get("state")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if not isinstance(moments, dict) or not set(moments) <= set(range(len(parameters))):
        raise _unusable("its optimizer remembers other parameters")
    for index, entry in moments.items():
        if not isinstance(entry, dict) or set(entry) != set(_MOMENTS):
            raise _unusable(f"its optimizer lacks {', '.join(_MOMENTS)} of parameter {index}")
        for name, value in entry.items():
            expected = torch.Size([]) if name == "step" else parameters[index].shape
            if not isinstance(value, Tensor) or value.shape != expected:
                raise _unusable(f"{name} of parameter {index} has another shape")
            if not value.is_floating_point() or not bool(value.isfinite().all()):
                raise _unusable(f"{name} of parameter {index} is not finite")
            if name != "exp_avg" and bool((value < 0).any()):
                raise _unusable(f"{name} of parameter {index} is negative")


def _check_schedule(old: Any, new: dict[str, Any]) -> None:
    if not isinstance(old, dict) or set(old) != set(new):
        raise _unusable("its schedule has other settings")
    for name, value in new.items():
        if isinstance(value, list):
            fits = isinstance(old[name], list) and len(old[name]) == len(value)
            fits = fits and all(_is_number(item) for item in old[name])
        else:
            fits = not _is_number(value) or _is_number(old[name])
        moves = name in ("last_epoch", "_step_count", "_last_lr")
        if not fits or not (moves or _plain(old[name]) == _plain(value)):
            raise InvalidInputError(
                f"The schedule of the training to resume has {name} = {old[name]!r}, not "
                f"{value!r}: continue with the same settings."
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and value == value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _unusable(reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"The training to resume does not fit this model: {reason}; start over."
    )
