"""The budget's predictions against measurement, and the chip's certificate."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import toreqprop as teq
from toreqprop.errors import InvalidInputError
from toreqprop.hardware import ChipCertificate, Converter, Device, Limit, budget, on
from toreqprop.hardware.limits import exact_gradient, flat, gradient
from toreqprop.private_generator import noise_from

GRID = {
    "noise 0.001": Device(read_noise=0.001, settle=15),
    "noise 0.05": Device(read_noise=0.05, settle=15),
    "noise 0.2, averaged": Device(read_noise=0.2, average=16, settle=15),
    "thermal": Device(thermal_noise=0.1, time_step=0.7, average=16, settle=20),
    "8 bit": Device(states=Converter(8), settle=15),
    "4 bit": Device(states=Converter(4), settle=15),
    "4 bit, dithered": Device(states=Converter(4), read_noise=0.05, average=8, settle=15),
    "offset": Device(phase_offset=0.02, settle=15),
    "drift": Device(drift=0.02, settle=15),
    "mismatch": Device(up_down=0.4, read_noise=0.01, settle=15),
    "everything": Device(
        states=Converter(7),
        read_noise=0.02,
        average=4,
        phase_offset=0.01,
        spread=0.3,
        neuron_gain=0.2,
        neuron_offset=0.2,
        up_down=0.1,
        settle=15,
    ),
}


def problem() -> tuple[teq.HopfieldMLP, Tensor, Tensor]:
    torch.manual_seed(0)
    # Full feedback: a chip's wires carry as much down as up.
    model = teq.HopfieldMLP(
        [12, 16, 5], output="free", bound="proven", feedback=1.0, start="random"
    )
    return model, torch.randn(48, 12), torch.randint(0, 5, (48,))


def loss(output: Tensor, target: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(3 * output, target)


@pytest.mark.parametrize("name", GRID)
def test_predicted_errors_hold_within_a_factor(name: str) -> None:
    """A factor of 1.5 at the best β, at a third of it and at three times it."""
    model, x, y = problem()
    chip = on(GRID[name], model)
    predicted = budget(chip, x, y, loss=loss)
    exact = flat(exact_gradient(chip, x, y, loss))
    for beta in (predicted.beta / 3, predicted.beta, 3 * predicted.beta):
        chip.gradient = teq.CenteredEP(beta)
        with noise_from(torch.Generator().manual_seed(1)):
            drawn = torch.stack([flat(gradient(chip, x, y, loss)) for _ in range(8)])
        measured = float((drawn - exact).square().sum(1).mean().sqrt() / exact.norm())
        assert 1 / 1.5 < measured / predicted.at(beta).error < 1.5, beta


def test_the_best_nudge_grows_with_the_root_of_three_of_the_noise() -> None:
    """aβ² against σ/β: β* ∝ σ^(1/3) over two decades."""
    model, x, y = problem()
    betas = [
        budget(on(Device(read_noise=rms, settle=10), model), x, y, loss=loss).beta
        for rms in (1e-4, 1e-2)
    ]
    # The grid of β has twelve points per decade: one point is 0.04 in this exponent.
    assert math.log10(betas[1] / betas[0]) / 2 == pytest.approx(1 / 3, abs=0.06)


def test_averaging_and_more_chips() -> None:
    model, x, y = problem()
    errors = [
        budget(on(Device(read_noise=0.1, average=k, settle=10), model), x, y, loss=loss).error
        for k in (1, 16)
    ]
    assert errors[1] < 0.7 * errors[0]  # β* moves too: σ^(2/3) in all, 16^(−1/3) = 0.4
    chip = on(Device(phase_offset=0.05, settle=10), model)
    one, many = (budget(chip, x, y, loss=loss, chips=k).error for k in (1, 3))
    assert one != many
    assert 0.5 < one / many < 2


def test_swapped_phases_count_an_offset_as_noise() -> None:
    model, x, y = problem()
    chip = on(Device(phase_offset=0.05, settle=10), model)
    plain = budget(chip, x, y, loss=loss)
    chip.gradient = teq.CenteredEP(0.1, swap=True)
    swapped = budget(chip, x, y, loss=loss)
    assert plain.limit is Limit.PHASE_OFFSET
    assert swapped.limit is Limit.NOISE
    assert swapped.error == pytest.approx(plain.error, rel=1e-6)


def test_a_hopeless_chip_is_called_so() -> None:
    model, x, y = problem()
    assert budget(on(Device(read_noise=0.01), model), x, y, loss=loss).learns
    hopeless = budget(on(Device(read_noise=20.0, settle=5), model), x, y, loss=loss)
    assert not hopeless.learns
    assert "not expected" in str(hopeless)
    assert hopeless.as_dict()["limit"] == "NOISE"


def test_a_plain_model_has_no_budget() -> None:
    model, x, y = problem()
    with pytest.raises(InvalidInputError, match=r"hardware\.on"):
        budget(model, x, y)  # type: ignore[arg-type]


CASES = {
    Limit.NOISE: (Device(read_noise=0.3, settle=15), 0.2),
    Limit.RESOLUTION: (Device(states=Converter(4), read_noise=1e-3, settle=15), 0.03),
    Limit.PHASE_OFFSET: (Device(phase_offset=0.1, read_noise=1e-3, settle=15), 0.1),
    Limit.ASYMMETRY: (Device(up_down=0.8, read_noise=1e-3, settle=15), 0.1),
    Limit.SETTLING: (Device(settle=1, settle_free=1), 0.03),
    Limit.BETA: (Device(read_noise=1e-4, settle=15), 1.5),
}


@pytest.mark.parametrize("limit", CASES, ids=[limit.name for limit in CASES])
def test_the_certificate_names_what_limits_a_chip(limit: Limit) -> None:
    model, x, y = problem()
    device, beta = CASES[limit]
    certificate = teq.certify(on(device, model, beta=beta), x, y, loss=loss)
    assert isinstance(certificate, ChipCertificate)
    assert not certificate.ok
    assert certificate.limit is limit, certificate.verdict
    assert certificate.as_dict()["limit"] == limit.name


@pytest.mark.parametrize("fault", [{"read_noise": 1e-3}, {"states": Converter(16)}])
def test_phases_that_are_cut_short_are_named_next_to_a_small_fault(fault: dict[str, Any]) -> None:
    """Without that fault nothing moves in a phase; it must not be run to its end for that."""
    model, x, y = problem()
    certificate = teq.certify(on(Device(settle=1, **fault), model, beta=0.1), x, y, loss=loss)
    assert isinstance(certificate, ChipCertificate)
    assert certificate.limit is Limit.SETTLING, certificate.verdict


def test_a_budget_advises_no_other_nudge_than_its_own() -> None:
    """Its β is the best one: a sentence that asks for another contradicts it."""
    model, x, y = problem()
    devices = [
        Device(read_noise=0.05, settle=15),
        Device(states=Converter(5), settle=15),
        Device(phase_offset=0.05, settle=15),
        Device(read_noise=0.3, settle=15),
    ]
    found = [budget(on(device, model), x, y, loss=loss) for device in devices]
    for each in found:
        assert "nudge" not in str(each).replace("the nudge's own strength", "")
        assert "use a" not in str(each)
    ends = [str(each).rpartition("limited by ")[2] for each in found if each.limit is Limit.BETA]
    assert ends
    assert all(end.startswith("the nudge's own strength, and a weaker one by") for end in ends)


def test_noise_is_no_bias() -> None:
    """The expected gradient of a noisy chip passes, with a signal-to-noise that falls as 1/σ."""
    model, x, y = problem()
    found = []
    for rms in (0.01, 0.02):
        chip = on(Device(read_noise=rms, settle=15), model, beta=0.03)
        certificate = teq.certify(chip, x, y, loss=loss, max_norm_error=0.1)
        assert isinstance(certificate, ChipCertificate)
        assert certificate.bias < 0.1 < certificate.noise
        tensor = certificate.tensors[0]
        assert tensor.cosine_low <= tensor.cosine <= tensor.cosine_high
        found.append(tensor.snr)
    assert found[0] / found[1] == pytest.approx(2, rel=0.15)


def test_certificates_repeat_and_leave_no_trace() -> None:
    model, x, y = problem()
    chip = on(Device(read_noise=0.05, settle=5), model)
    state = torch.random.get_rng_state()
    first, second = (teq.certify(chip, x, y, loss=loss).as_dict() for _ in range(2))
    assert first == second
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(p.grad is None for p in chip.parameters())
