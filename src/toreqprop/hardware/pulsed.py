"""An optimizer whose weights are devices: it asks for a change and sends pulses.

The gradient is whatever ``loss.backward()`` left, as for every optimizer. What arrives is what the
devices make of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.errors import InvalidInputError
from toreqprop.hardware.pulses import DrawnDevices, PulsedDevice

FULL, USED = 0.75, 0.25
"""A pair is written again where one of it is above and the other as far above zero, in parts of
its range."""

KEPT = ("device", "remedy")
"""Options that are objects: they stay with the optimizer and are no part of its state."""


Arrays = tuple[DrawnDevices, DrawnDevices]


@dataclass(frozen=True)
class TikiTaka:
    """Gradients go to a second array A, and from there slowly to the weights C (Gokmen and Haensch
    2020, 10.3389/fnins.2020.00103).

    Noise of gradients drives asymmetric devices to their symmetric point. A holds differences from
    that point, so that there it says nothing, and what gradients have in common says something:
    ``C ← C + rate·(A − A*)`` at every so many steps, by pulses. All columns of A are read at once,
    the weights are C alone. A forgets after some step/(lr·|gradient|) steps: a smaller lr averages
    over more of them.

    Attributes:
        rate: share of A that is asked of C at a transfer.
        every: steps of the optimizer from one transfer to the next.
    """

    rate: float = 0.02
    every: int = 1

    def __post_init__(self) -> None:
        checks.number("rate", self.rate, 0, above=True, typical="0.01 to 1")
        checks.whole_number("every", self.every, 1)


class PulsedUpdates(torch.optim.Optimizer):
    """Gradient descent by pulses: ``−lr·gradient`` is turned into a train of pulses per weight.

    Of ``n = |lr·gradient|/(scale·step)`` pulses that are wanted on average, a stochastic train of
    ``pulses`` slots sends each with probability n/pulses, so that small gradients count too; else
    n is rounded, and those below half a step are lost. More than ``pulses`` are never sent. Each
    moves its device as `PulsedDevice` says.

    The parameters themselves are the devices. What a model makes of raw weights (the mean of two
    transposed ones, one factor that keeps a matrix in its ball, conductances in a unit) is its
    periphery and exact here. Options may differ between groups of parameters; ``device=None`` is
    a digital group, updated exactly.

    Args:
        params: parameters or groups of them.
        device: what the weights are.
        lr: learning rate.
        pulses: slots of a train.
        stochastic: whether pulses are drawn, or counted.
        scale: the weight that a device at one stands for. A device whose own bounds are narrower
            than its weight cuts it off at the first step.
        remedy: `TikiTaka` against asymmetric steps, or None.
        seed: of everything that differs from pulse to pulse; the devices have their own.

    Raises:
        InvalidInputError: an argument or a gradient that cannot be used.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        device: PulsedDevice | None,
        lr: float = 0.01,
        *,
        pulses: int = 31,
        stochastic: bool = True,
        scale: float = 1.0,
        remedy: TikiTaka | None = None,
        seed: int = 0,
    ) -> None:
        checks.whole_number("seed", seed, 0, 2**63)
        several = isinstance(params, Iterable) and not isinstance(params, Tensor)
        given: Any = [_listed(p) for p in params] if several else []
        if not given or not all(_is_parameter(p) or _is_group(p) for p in given):
            raise InvalidInputError(
                f"params must be parameters or groups of them, got {checks.shown(params)}: use "
                "model.parameters()."
            )
        self._noise = torch.Generator().manual_seed(seed)
        self._arrays: dict[Tensor, Arrays | None] = {}
        options = {"lr": lr, "pulses": pulses, "stochastic": stochastic, "scale": scale}
        super().__init__(given, {"device": device, "remedy": remedy, **options})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """A group with options of its own."""
        _check_group({**self.defaults, **param_group})
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for p in group["params"]:
            number, device = 2 * len(self._arrays), group["device"]
            _check_range(p, device, group["scale"])
            # Every weight has a second device, which a pair or a remedy uses.
            self._arrays[p] = None if device is None else (
                device.draw(p.shape, number).to(p), device.draw(p.shape, number + 1).to(p)
            )  # fmt: skip

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Send the pulses that the gradients ask for."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.grad.layout != torch.strided or not bool(torch.isfinite(p.grad).all()):
                    raise InvalidInputError(
                        "A gradient is sparse, NaN or infinite: pulses need finite numbers. Lower "
                        "the learning rate, or look at the loss."
                    )
                arrays = self._arrays[p]
                if arrays is None:
                    p.sub_(p.grad, alpha=group["lr"])
                    continue
                wanted = p.grad * (-group["lr"] / group["scale"])
                if group["remedy"] is not None:
                    wanted = self._transferred(p, wanted, arrays[1], group)
                self._write(p, self._train(wanted, group), arrays, group)
        return loss

    def _train(self, wanted: Tensor, group: dict[str, Any]) -> Tensor:
        """How many pulses each device gets; negative ones are down."""
        slots = group["pulses"]
        count = wanted.abs() / group["device"].step
        if group["stochastic"]:
            chance = (count / slots).clamp_max(1).cpu()
            drawn = torch.binomial(torch.full_like(chance, slots), chance, generator=self._noise)
            count = drawn.to(wanted)
        else:
            count = count.round().clamp_max(slots)
        return torch.copysign(count, wanted)

    def _transferred(
        self, p: Tensor, wanted: Tensor, devices: DrawnDevices, group: dict[str, Any]
    ) -> Tensor:
        """What the second array asks of the weights, after this gradient has gone to it."""
        state, remedy = self.state[p], group["remedy"]
        if "gathered" not in state:
            state["resting"] = devices.symmetric_point()
            state["gathered"] = state["resting"].clone()
            state["step"] = torch.zeros(())
        train = self._train(wanted, group)
        state["gathered"] = devices.pulsed(state["gathered"], train, self._noise)
        state["step"] += 1
        if int(state["step"]) % remedy.every:
            return torch.zeros_like(wanted)
        return remedy.rate * (state["gathered"] - state["resting"])

    def _write(self, p: Tensor, train: Tensor, arrays: Arrays, group: dict[str, Any]) -> None:
        """Pulses to the devices, and what is read of them into the parameter."""
        devices, state = arrays[0], self.state[p]
        device = devices.device
        shown = p / group["scale"]
        if device.pair:
            stored = self._pair(state, shown, train, arrays)
        else:
            before = state.get("stored", shown) if device.write_noise_std else shown
            before = torch.minimum(torch.maximum(before, devices.w_min), devices.w_max)
            if device.lifetime:
                before = before * (1 - 1 / device.lifetime)
            stored = devices.pulsed(before, train, self._noise)
        if device.write_noise_std:
            state["stored"] = stored
            normal = torch.randn(p.shape, generator=self._noise).to(p)
            read = stored + device.write_noise_std * device.dw_min * normal
            stored = torch.where(train != 0, read, shown)
        p.copy_(group["scale"] * stored)

    def _pair(self, state: dict[str, Any], shown: Tensor, train: Tensor, arrays: Arrays) -> Tensor:
        if "plus" not in state:
            state["plus"], state["minus"] = shown.clamp_min(0), (-shown).clamp_min(0)
        devices, other = arrays
        plus = devices.pulsed(state["plus"], train.clamp_min(0), self._noise)
        minus = other.pulsed(state["minus"], (-train).clamp_min(0), self._noise)
        shares = plus / devices.w_max, minus / other.w_max
        again = (torch.maximum(*shares) > FULL) & (torch.minimum(*shares) > USED)
        weight = plus - minus
        state["plus"] = torch.where(again, weight.clamp_min(0), plus)
        state["minus"] = torch.where(again, (-weight).clamp_min(0), minus)
        return weight

    def __getstate__(self) -> dict[str, Any]:
        """A copy has the same devices and goes on with the same random numbers."""
        kept = {"_noise": self._noise, "_arrays": self._arrays}
        return {**super().__getstate__(), **kept}

    def state_dict(self) -> dict[str, Any]:
        """Plain data: what is stored in the devices, the options that are numbers, and where the
        random numbers stand. The devices themselves follow from their seed."""
        found = super().state_dict()
        found["param_groups"] = [
            {name: value for name, value in group.items() if name not in KEPT}
            for group in found["param_groups"]
        ]
        return {**found, "noise": self._noise.get_state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:  # type: ignore[override]
        """Go on where another optimizer of the same devices stood."""
        if not isinstance(state_dict, Mapping) or "noise" not in state_dict:
            raise InvalidInputError(
                "This is not a state of PulsedUpdates: give what its state_dict() returned."
            )
        kept = [{name: group[name] for name in KEPT} for group in self.param_groups]
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "noise"})
        for group, objects in zip(self.param_groups, kept, strict=True):
            group.update(objects)
        self._noise.set_state(state_dict["noise"].cpu())


def _check_range(p: Tensor, device: PulsedDevice | None, scale: float) -> None:
    """Refuse weights that no device of this kind could hold: they would be cut off."""
    if device is None or not p.numel():
        return
    low = -device.w_max if device.pair else device.w_min
    largest = max(float(p.detach().max()) / device.w_max, float(p.detach().min()) / low)
    if not largest <= scale:
        raise InvalidInputError(
            f"Weights between {float(p.detach().min()):.3g} and {float(p.detach().max()):.3g} do "
            f"not fit devices between {low:g} and {device.w_max:g} with scale={scale:g}: use "
            f"scale={2 * largest:.2g}."
        )


def _is_parameter(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_leaf and value.is_floating_point()


def _listed(value: Any) -> Any:
    """A group with its parameters as a list, of whatever they came from."""
    inner = value.get("params") if isinstance(value, dict) else None
    if isinstance(inner, Tensor):
        return {**value, "params": [inner]}
    return {**value, "params": list(inner)} if isinstance(inner, Iterable) else value


def _is_group(value: Any) -> bool:
    listed = isinstance(value, dict) and isinstance(value.get("params"), list)
    return listed and all(map(_is_parameter, value["params"]))


def _check_group(group: Mapping[str, Any]) -> None:
    """Refuse options of a group that mean nothing."""
    device, remedy = group["device"], group["remedy"]
    checks.instance("device", device, PulsedDevice, "use ReRam()", optional=True)
    checks.number("lr", group["lr"], 0, above=True, typical="0.01 to 1")
    checks.whole_number("pulses", group["pulses"], 1)
    checks.flag("stochastic", group["stochastic"])
    checks.number("scale", group["scale"], 0, above=True, typical="1")
    checks.instance("remedy", remedy, TikiTaka, "use TikiTaka()", optional=True)
    if device is not None and remedy is not None:
        device.draw((1,)).symmetric_point()  # refuses devices without one
