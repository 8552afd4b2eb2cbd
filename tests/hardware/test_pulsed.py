"""Pulsed devices: each formula against its pulses, the mean against gradient descent, and the
remedy against none."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.errors import InvalidInputError
from toreqprop.hardware import (
    PCM,
    PRESETS,
    ConstantStep,
    EcRam,
    ExponentialStep,
    Ideal,
    LinearStep,
    PulsedDevice,
    PulsedUpdates,
    ReRam,
    ReRamES,
    SoftBounds,
    TikiTaka,
)

MANY = 20_000
STEP = 0.01


def moved(device: PulsedDevice, start: float, wanted: float, count: int = MANY, **options: Any):
    """What ``wanted`` does to so many weights at ``start``."""
    weight = nn.Parameter(torch.full((count,), start, dtype=torch.float64))
    optimizer = PulsedUpdates([weight], device, lr=1.0, **options)
    weight.grad = torch.full_like(weight, -wanted)
    optimizer.step()
    return (weight - start).detach()


@pytest.mark.parametrize("wanted", [0.0003, -0.0003, 0.02, -0.02])
@pytest.mark.parametrize(
    "device", [PulsedDevice(dw_min=0.001), Ideal(), Ideal(seed=5)], ids=["plain", "ideal", "other"]
)
def test_the_mean_update_is_that_of_gradient_descent(device: PulsedDevice, wanted: float) -> None:
    found = moved(device, 0.0, wanted, pulses=200)
    # Five standard errors: one in a million would fall outside by chance.
    assert abs(float(found.mean()) - wanted) <= 5 * float(found.std()) / math.sqrt(MANY)


def test_counted_pulses_lose_what_is_below_half_a_step() -> None:
    device = PulsedDevice(dw_min=STEP)
    assert not moved(device, 0.0, 0.49 * STEP, stochastic=False).any()
    assert torch.allclose(
        moved(device, 0.0, 2.6 * STEP, stochastic=False), torch.tensor(3 * STEP).double()
    )


def test_a_train_has_an_end() -> None:
    assert float(moved(PulsedDevice(dw_min=STEP), 0.0, 50 * STEP, pulses=7).max()) == pytest.approx(
        7 * STEP
    )


@pytest.mark.parametrize(
    ("response", "up", "down"),
    [
        (ConstantStep(), 1.0, 1.0),
        (LinearStep(gamma_up=0.5, gamma_down=0.2), 1 - 0.5 * 0.4 / 2, 1 + 0.2 * 0.4),
        (SoftBounds(), 1 - 0.4 / 2, 1 + 0.4),
        (
            ExponentialStep(a=-0.5, b=-0.1, gamma_up=2.0, gamma_down=3.0, A_up=-1.2, A_down=-0.3),
            1 + 1.2 * math.exp(2 * (-0.4 / 3 - 0.1)),
            1 + 0.3 * math.exp(-3 * (-0.4 / 3 - 0.1)),
        ),
    ],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_one_pulse_moves_as_its_formula_says(response: Any, up: float, down: float) -> None:
    device = PulsedDevice(response, dw_min=1e-3, up_down=0.25, w_min=-1.0, w_max=2.0)
    one = {"pulses": 1, "stochastic": False, "count": 1}
    assert float(moved(device, 0.4, 1.0, **one)) == pytest.approx(1e-3 * 1.25 * up)
    assert float(moved(device, 0.4, -1.0, **one)) == pytest.approx(-1e-3 * 0.75 * down)


def test_hard_bounds_hold() -> None:
    device = PulsedDevice(dw_min=0.3, w_max=0.5, w_max_dtod=0.2)
    found = moved(device, 0.0, 100.0)
    assert torch.equal(found.float(), device.draw((MANY,)).w_max)


def test_soft_bounds_are_symmetric_where_theory_says() -> None:
    """``(1 + β)(1 − w) = (1 − β)(1 + w)`` at w = β."""
    devices = PulsedDevice(SoftBounds(), up_down=0.3).draw((4,))
    assert torch.allclose(devices.symmetric_point(), torch.tensor(0.3), atol=1e-6)


def noisy(device: PulsedDevice, steps: int, target: float | None = None, **options: Any) -> Tensor:
    """300 weights under gradients of noise alone, or of a parabola around a target and noise."""
    generator = torch.Generator().manual_seed(1)
    weight = nn.Parameter(torch.zeros(300))
    optimizer = PulsedUpdates([weight], device, **options)
    for _ in range(steps):
        noise = torch.randn(300, generator=generator)
        weight.grad = noise if target is None else 0.3 * (weight.detach() - target) + noise
        optimizer.step()
    return weight.detach()


def test_noise_drives_asymmetric_devices_to_their_symmetric_point() -> None:
    """Plain gradient descent would stay at zero on average; a mean of 300 that each wander by some
    0.2 is known to 0.01."""
    device = PulsedDevice(SoftBounds(), dw_min=STEP, up_down=0.3)
    assert float(noisy(device, 150, lr=0.1).mean()) == pytest.approx(0.3, abs=0.05)
    symmetric = replace(device, up_down=0.0)
    assert float(noisy(symmetric, 150, lr=0.1).mean()) == pytest.approx(0.0, abs=0.05)


def test_tiki_taka_finds_what_asymmetry_hides() -> None:
    device = PulsedDevice(SoftBounds(), dw_min=STEP, up_down=0.3, up_down_dtod=0.1)
    plain = noisy(device, 800, target=-0.4, lr=0.01) + 0.4
    with_remedy = noisy(device, 800, target=-0.4, lr=0.01, remedy=TikiTaka(rate=0.01)) + 0.4
    assert float(plain.square().mean().sqrt()) > 0.4  # it is where noise drives it
    assert float(with_remedy.square().mean().sqrt()) < 0.25


def test_devices_are_a_sample() -> None:
    one, again, other = (ReRam(seed).draw((50,)) for seed in (3, 3, 4))
    assert torch.equal(one.step_up, again.step_up)
    assert not torch.equal(one.step_up, other.step_up)
    assert not torch.equal(one.step_up, ReRam(3).draw((50,), 1).step_up)
    wider = replace(ReRam(3), w_max_dtod=0.9).draw((50,))
    assert torch.equal(one.step_up, wider.step_up)


def test_devices_spread_as_asked() -> None:
    device = PulsedDevice(dw_min=STEP, dw_min_dtod=0.2, up_down_dtod=0.05, w_max_dtod=0.1)
    drawn = device.draw((MANY,))
    mean, gap = 0.5 * (drawn.step_up + drawn.step_down), 0.5 * (drawn.step_up - drawn.step_down)
    # Four standard errors of a standard deviation are 4/√(2n) = 2 %.
    assert float(mean.std()) == pytest.approx(0.2 * STEP, rel=0.02)
    assert float(gap.std()) == pytest.approx(0.05 * STEP, rel=0.02)
    assert float(drawn.w_max.std()) == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize(("multiplied", "share"), [(True, 0.5), (False, 1.0)])
def test_pulses_vary_from_cycle_to_cycle(multiplied: bool, share: float) -> None:
    """Half-way to a soft bound steps are half as large; added noise does not know."""
    device = PulsedDevice(SoftBounds(), dw_min=STEP, dw_min_std=0.4, mult_noise=multiplied)
    found = moved(device, 0.5, 1.0, pulses=1)
    assert float(found.mean()) == pytest.approx(0.5 * STEP, rel=0.03)
    assert float(found.std()) == pytest.approx(0.4 * share * STEP, rel=0.02)


def test_write_noise_is_read_and_not_stored() -> None:
    weight = nn.Parameter(torch.zeros(MANY))
    device = PulsedDevice(dw_min=STEP, write_noise_std=3.0)
    optimizer = PulsedUpdates([weight], device, lr=1.0, pulses=1)
    weight.grad = torch.full_like(weight, -STEP)
    weight.grad[: MANY // 2] = 0
    optimizer.step()
    assert not weight.detach()[: MANY // 2].any()  # nobody wrote there
    assert float(weight.detach()[MANY // 2 :].std()) == pytest.approx(3 * STEP, rel=0.03)
    stored = optimizer.state[weight]["stored"]
    assert torch.equal(stored.unique(), torch.tensor([0.0, STEP]))


def test_a_leak_is_slow() -> None:
    device = PulsedDevice(dw_min=STEP, lifetime=100.0)
    assert torch.allclose(moved(device, 0.5, 0.0), torch.tensor(-0.005).double())


def test_pairs_only_rise_and_are_written_again() -> None:
    weight = nn.Parameter(torch.zeros(500))
    optimizer = PulsedUpdates([weight], PCM(), lr=1.0, seed=2)
    largest = 0.0
    for step in range(60):
        weight.grad = torch.full_like(weight, 0.2 * (-1) ** step)
        optimizer.step()
        state = optimizer.state[weight]
        assert torch.allclose(weight, state["plus"] - state["minus"], atol=1e-6)
        largest = max(largest, float(torch.minimum(state["plus"], state["minus"]).max()))
    assert largest > 0.5
    # Without a new start both would be full by now, and the weight stuck.
    both = torch.minimum(state["plus"], state["minus"])
    assert float(both.min()) < 0.3


@pytest.mark.parametrize("name", PRESETS)
def test_presets_train(name: str) -> None:
    """Every device takes pulses from an EP gradient, and stays finite."""
    torch.manual_seed(0)
    model = teq.HopfieldMLP([6, 5, 3], output="free")
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = PulsedUpdates(model.parameters(), device=PRESETS[name]())
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_constrained_network_learns_and_keeps_its_ball() -> None:
    """Raw weights are the devices; the network still uses them inside its ball."""
    torch.manual_seed(0)
    model = teq.LoopedMLP(6, 8, 2, radius=0.3)
    x = torch.randn(64, 6)
    y = (x[:, 0] > 0).long()
    groups = [
        {"params": [p for p in model.parameters() if p.dim() == 2]},
        {"params": [p for p in model.parameters() if p.dim() == 1], "device": None},
    ]
    optimizer = PulsedUpdates(groups, EcRam(), lr=0.3)
    first = F.cross_entropy(model(x), y).item()
    for _ in range(60):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.5 * first
    assert model.lipschitz() <= 0.3 + 1e-6


def test_a_digital_group_is_gradient_descent() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = PulsedUpdates([{"params": [weight], "device": None, "lr": 0.5}], ReRam())
    weight.grad = torch.tensor([1.0, 2.0, 3.0])
    optimizer.step()
    assert torch.equal(weight, torch.tensor([0.5, 0.0, -0.5]))


def test_a_scale_stretches_the_device() -> None:
    wide = moved(PulsedDevice(dw_min=STEP), 0.0, 1e3, 5, scale=10.0, pulses=200, stochastic=False)
    assert torch.allclose(wide, torch.tensor(10.0).double())


def quadratic(optimizer: PulsedUpdates, weight: nn.Parameter, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        (weight - 0.3).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("device", "remedy"),
    [(ReRamES(), None), (PCM(), None), (EcRam(), TikiTaka(every=2)), (ReRamES(), TikiTaka())],
    ids=["write noise", "pair", "tiki-taka", "both"],
)
def test_a_state_goes_on_where_it_stood(device: PulsedDevice, remedy: TikiTaka | None) -> None:
    """Saved as plain data, loaded elsewhere, and the same bits as without a stop."""
    build: Callable[[nn.Parameter, int], PulsedUpdates] = lambda w, seed: PulsedUpdates(  # noqa: E731
        [w], device, lr=0.05, remedy=remedy, seed=seed
    )
    whole = nn.Parameter(torch.zeros(7))
    quadratic(build(whole, 4), whole, 9)
    stopped = nn.Parameter(torch.zeros(7))
    first = build(stopped, 4)
    quadratic(first, stopped, 5)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    resumed = nn.Parameter(stopped.detach().clone())
    second = build(resumed, 99)
    second.load_state_dict(torch.load(file, weights_only=True))
    quadratic(second, resumed, 4)
    assert torch.equal(resumed, whole)
    assert not torch.equal(resumed, stopped)


def test_the_same_seed_gives_the_same_result() -> None:
    found = []
    for seed in (1, 1, 2):
        weight = nn.Parameter(torch.zeros(7))
        quadratic(PulsedUpdates([weight], ReRam(), lr=0.05, seed=seed), weight, 5)
        found.append(weight.detach())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_a_copy_goes_on_alike() -> None:
    weight = nn.Parameter(torch.zeros(7))
    optimizer = PulsedUpdates([weight], ReRam(), lr=0.05)
    quadratic(optimizer, weight, 3)
    again, twin = copy.deepcopy((optimizer, weight))
    for each, at in ((optimizer, weight), (again, twin)):
        quadratic(each, at, 3)
    assert torch.equal(weight, twin)


def test_global_random_numbers_are_left_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    weight = nn.Parameter(torch.zeros(7))
    quadratic(PulsedUpdates([weight], ReRam()), weight, 3)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda w: PulsedUpdates([w], PulsedDevice(), remedy=TikiTaka()), "no symmetric point"),
        (lambda w: PulsedUpdates([torch.tensor([0.1, 3.0])], ReRam()), "use scale=6"),
        (lambda w: PulsedUpdates([torch.tensor([0.1, -3.0])], EcRam()), "do not fit devices"),
        (lambda w: PulsedUpdates([torch.tensor([torch.nan])], EcRam()), "do not fit devices"),
        (lambda w: PulsedUpdates([], ReRam()), "params must be parameters"),
        (lambda w: PulsedUpdates([2 * w], ReRam()), "params must be parameters"),
        (lambda w: PulsedUpdates([{"lr": 1.0}], ReRam()), "params must be parameters"),
        (lambda w: PulsedUpdates([{"params": [1]}], ReRam()), "params must be parameters"),
        (lambda w: PulsedUpdates([{"params": [w], "lr": -1}], ReRam()), "lr must be > 0"),
        (lambda w: PulsedUpdates([w], ReRam()).load_state_dict({}), "not a state of PulsedUpdates"),
        (lambda w: PulsedDevice(up_down=1.5), "up_down must be between -1 and 1"),
        (lambda w: PulsedDevice(w_min=0.0), "w_min must be < 0"),
    ],
)  # fmt: skip
def test_nonsense_is_refused(build: Callable[[nn.Parameter], Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        build(nn.Parameter(torch.zeros(3)))


def test_a_gradient_that_is_no_number_is_refused() -> None:
    weight = nn.Parameter(torch.zeros(3))
    weight.grad = torch.tensor([1.0, float("nan"), 0.0])
    with pytest.raises(InvalidInputError, match="NaN or infinite"):
        PulsedUpdates([weight], ReRam()).step()
    assert not weight.any()
