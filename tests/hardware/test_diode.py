"""The diode law: smooth where its pieces meet, an integral that is one, and ngspice's own."""

from __future__ import annotations

import pytest
import torch

from toreqprop.energies.circuits.diode import diode_co_content, diode_law
from toreqprop.errors import InvalidInputError
from toreqprop.hardware import Circuit, Diode, Ngspice, thermal_voltage
from toreqprop.hardware.circuit import voltage_source

VOLTS = torch.linspace(-0.5, 0.5, 41, dtype=torch.float64)


def test_thermal_voltage_is_that_of_ngspice() -> None:
    # v/log(1 + I/I_s) of a diode that ngspice 39 solved at 27 °C
    assert thermal_voltage() == pytest.approx(0.025864917007157463, rel=1e-15)


@pytest.mark.parametrize("emission", [1.0, 1.7])
@pytest.mark.parametrize("celsius", [27.0, 60.0, -10.0])
def test_current_is_that_of_ngspice(ngspice: Ngspice, emission: float, celsius: float) -> None:
    diode = Diode(1e-9, emission)
    cards = (
        voltage_source("drive", "drive", VOLTS.tolist()),
        "vsense drive anode dc 0",
        "d1 anode 0 law",
        f".model law d(is={diode.saturation!r} n={diode.emission!r})",
        "fcopy 0 copy vsense 1e6",
        "rcopy copy 0 1",
    )
    circuit = Circuit("diode", (), cards, {"microamperes": ("copy",)}, len(VOLTS), celsius)
    measured = ngspice.operating_points(circuit).voltages["microamperes"][:, 0]
    current, _ = diode_law(VOLTS, diode.saturation_at(celsius), diode.scale(celsius))
    # vntol of ngspice, 1e-13 V, is 4e-12 of a current that grows e-fold in 26 mV
    torch.testing.assert_close(1e6 * current, measured, rtol=1e-10, atol=1e-15)


def test_pieces_meet_with_equal_slope() -> None:
    scale = thermal_voltage()
    knee = torch.tensor([-3 * scale], dtype=torch.float64)
    for left, right in zip(
        diode_law(knee - 1e-9, 1e-9, scale), diode_law(knee + 1e-9, 1e-9, scale), strict=True
    ):
        torch.testing.assert_close(left, right, rtol=1e-6, atol=0)


def test_slope_and_co_content_are_derivative_and_integral() -> None:
    scale = thermal_voltage()
    v = VOLTS.clone().requires_grad_()
    current, slope = diode_law(v, 1e-9, scale)
    (derived,) = torch.autograd.grad(current.sum(), v)
    torch.testing.assert_close(derived, slope.detach(), rtol=1e-12, atol=0)
    (integrand,) = torch.autograd.grad(diode_co_content(v, 1e-9, scale).sum(), v)
    torch.testing.assert_close(integrand, current.detach(), rtol=1e-12, atol=1e-24)
    assert float(diode_co_content(torch.zeros(1, dtype=torch.float64), 1e-9, scale)) == 0


def test_saturation_grows_with_temperature() -> None:
    diode = Diode(1e-9)
    assert diode.saturation_at(27.0) == 1e-9
    assert 1.1 < diode.saturation_at(28.0) / 1e-9 < 1.2


@pytest.mark.parametrize("bad", [{"saturation": 0.0}, {"saturation": -1.0}, {"emission": 0.0}])
def test_bad_parameters_are_named(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(bad))):
        Diode(**bad)
