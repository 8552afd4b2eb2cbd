"""Pulsed devices named after published ones.

Steps, asymmetries and spreads are those of aihwkit's documented presets (Rasch et al. 2021,
arXiv:2104.02184), fits to the measurements cited with each. ``seed`` chooses the sample;
`dataclasses.replace` changes the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from toreqprop.hardware.pulses import (
    ConstantStep,
    ExponentialStep,
    LinearStep,
    PulsedDevice,
    SoftBounds,
)


def ReRamES(seed: int = 0) -> PulsedDevice:
    """HfO₂ resistive memory by an exponential step: Gong et al. 2018, 10.1038/s41467-018-04485-1
    (``ReRamESPresetDevice``)."""
    response = ExponentialStep(
        a=-0.5, b=-0.5, gamma_up=5.0, gamma_down=5.0, A_up=-1.18445, A_down=-0.081404
    )
    return PulsedDevice(
        response, dw_min=0.00135, up_down=0.259359, dw_min_dtod=0.2, up_down_dtod=0.05,
        w_min_dtod=0.3, w_max_dtod=0.3, dw_min_std=5.0, write_noise_std=75.0, seed=seed,
    )  # fmt: skip


def ReRamSB(seed: int = 0) -> PulsedDevice:
    """The same memory by soft bounds, calibrated to its symmetric point: Gong et al. 2018,
    10.1038/s41467-018-04485-1 (``ReRamSBPresetDevice``)."""
    return PulsedDevice(
        SoftBounds(), dw_min=0.002, w_min=-0.75, w_max=1.25, dw_min_dtod=0.3, up_down_dtod=0.01,
        w_min_dtod=0.3 / 0.75, w_max_dtod=0.3 / 1.25, dw_min_std=3.75, mult_noise=False,
        write_noise_std=56.0, seed=seed,
    )  # fmt: skip


def ReRam(seed: int = 0) -> PulsedDevice:
    """Resistive memory by its closer fit, `ReRamES`."""
    return ReRamES(seed)


def EcRam(seed: int = 0) -> PulsedDevice:
    """Lithium electrochemical memory: Tang et al. 2018, 10.1109/IEDM.2018.8614551
    (``EcRamPresetDevice``)."""
    response = LinearStep(
        gamma_up=0.1153, gamma_down=0.5085, gamma_up_dtod=0.05, gamma_down_dtod=0.05
    )
    return PulsedDevice(
        response, dw_min=0.002, w_min=-0.8276, w_max=1.1724, dw_min_dtod=0.1, up_down_dtod=0.01,
        w_min_dtod=0.05, w_max_dtod=0.05, dw_min_std=0.3, seed=seed,
    )  # fmt: skip


def Capacitor(seed: int = 0) -> PulsedDevice:
    """A capacitor with current sources: Li et al. 2018, 10.1109/VLSIT.2018.8510648
    (``CapacitorPresetDevice``, its leak the same in all devices)."""
    response = LinearStep(gamma_up=0.05, gamma_down=0.05, gamma_up_dtod=0.01, gamma_down_dtod=0.01)
    return PulsedDevice(
        response, dw_min=0.005, dw_min_dtod=0.1, up_down_dtod=0.06, w_min_dtod=0.07,
        w_max_dtod=0.07, dw_min_std=0.3, mult_noise=False, lifetime=1e6, seed=seed,
    )  # fmt: skip


def PCM(seed: int = 0) -> PulsedDevice:
    """Pairs of Ge₂Sb₂Te₅ phase-change memory: Nandakumar et al. 2020, 10.3389/fnins.2020.00406
    (``PCMPresetUnitCell``, without the parts of its noise that depend on the weight)."""
    response = ExponentialStep(
        a=-1.0, b=0.0, gamma_up=2.5, gamma_down=2.5, A_up=-27.235, A_down=-2.235
    )
    return PulsedDevice(
        response, dw_min=0.01, w_min=0.0, w_max=2.0, dw_min_dtod=0.2, up_down_dtod=0.05,
        w_max_dtod=0.1, dw_min_std=0.6, pair=True, seed=seed,
    )  # fmt: skip


def Ideal(seed: int = 0) -> PulsedDevice:
    """10,000 equal steps, symmetric, with the spreads of Gokmen and Vlasov 2016,
    10.3389/fnins.2016.00333 (``IdealizedPresetDevice``)."""
    return PulsedDevice(
        ConstantStep(), dw_min=0.0002, dw_min_dtod=0.3, w_min_dtod=0.3, w_max_dtod=0.3,
        dw_min_std=0.3, seed=seed,
    )  # fmt: skip


PRESETS: dict[str, Callable[..., PulsedDevice]] = {
    "ReRamES": ReRamES,
    "ReRamSB": ReRamSB,
    "EcRam": EcRam,
    "Capacitor": Capacitor,
    "PCM": PCM,
    "Ideal": Ideal,
}
"""Every preset; the contract tests run through it."""
