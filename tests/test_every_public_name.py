"""Every name in `__all__` of this library and its packages refuses nonsense in one sentence.

Each name has one good call here or in the tables of `test_public_boundary` and
`test_model_boundary`. Every argument of it is replaced by every piece of nonsense in turn: that is
refused in a sentence, or it is no nonsense, being of the kind its annotation asks for. A public
name without an entry fails the test.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import toreqprop as teq
from tests.nonsense import meanings, unrefused
from tests.test_model_boundary import BUILDS
from tests.test_public_boundary import CORE, PLAIN, PLOTS, TASKS
from toreqprop import energies, exporting, gradients, hardware, kernels, solvers, zoo
from toreqprop.energies import couplings

pytestmark = pytest.mark.filterwarnings("ignore")

torch.manual_seed(0)
MODEL = teq.LoopedMLP(6, 5, 3, kernel="torch")
X = torch.randn(2, 6)
PARAMS = tuple(p.detach() for p in MODEL.system_parameters())
SYSTEM = energies.System.bind(MODEL.field, X, PARAMS)
STATE = (torch.zeros(2, 5),)
FREE = solvers.relax(SYSTEM, teq.FixedPoint()).state
NUDGE = energies.LinearNudge(STATE, 0.1)
CHIP = hardware.on(hardware.Device(read_noise=0.1), teq.HopfieldMLP([6, 5, 3], output="free"))
RESISTIVE = teq.ResistiveMLP([6, 5, 3]).double()
CONDUCTANCES = tuple(g.detach() for g in RESISTIVE.system_parameters())
HEAD = (torch.randn(4, 4), torch.randn(4, 4), torch.randn(2, 3, 3))
LOOP = {"tol": 1e-3, "max_steps": 9}
STACK = (couplings.LinearCoupling(), couplings.LinearCoupling(), couplings.LinearCoupling())
MAPS = {"padding": 0, "stride": 1, "groups": 1, "dilation": 1}
WINDOWS = {"size": (2, 2), "stride": (1, 1), "padding": (0, 0)}
NETLIST = {"neuron": "pair", "inputs": "norton"}


def chain(part: couplings.Coupling) -> couplings.Coupling:
    """Its arguments have no names of their own."""
    return couplings.chain(part, STACK[0])


GOOD: dict[Callable[..., Any], dict[str, Any]] = {
    energies.ClippedReLU: {"height": 6.0},
    energies.HardTanh: {"low": -1.0, "high": 1.0},
    energies.LeakyReLU: {"leak": 0.1},
    **{cls: {} for cls in (
        energies.HardSigmoid, energies.Linear, energies.Logistic, energies.Sigmoid,
        energies.Softplus, energies.Tanh, energies.Symmetric, couplings.LinearCoupling,
        kernels.compiled_available,
    )},
    energies.AttentionEnergy: {"heads": 2, "activation": energies.Tanh()},
    energies.AttentionField: {"heads": 2, "causal": True, "activation": energies.Tanh()},
    energies.AttentionStackField: {
        "heads": 2, "feedback": True, "causal": True, "activation": energies.Tanh(),
    },
    energies.DenseEnergy: {"activation": energies.Tanh()},
    energies.MapEnergy: {"activation": energies.Tanh(), "start": 0.5},
    energies.CompletionEnergy: {"activation": energies.Tanh(), "feedback": 0.1},
    energies.SymmetricKernel: {"cooperative": True},
    energies.DenseField: {"activation": energies.Tanh()},
    energies.StackEnergy: {
        "couplings": STACK, "activation": energies.Tanh(), "feedback": 0.5,
        "activations": (energies.Tanh(),) * 3,
        "skips": (energies.Skip(0, 2, couplings.IdentityCoupling()),),
    },
    energies.Skip: {"source": 0, "target": 2, "coupling": couplings.IdentityCoupling()},
    energies.ConvolutionBall: {"radius": 0.5},
    energies.NearIdentity: {"gain": 1.0, "rate": 0.1},
    energies.SpectralBall: {"radius": 0.5, "exact": True},
    energies.SymmetricBall: {"radius": 0.5, "compiled": False},
    energies.TightBall: {"radius": 0.5, "shape": (3, 4), "symmetric": False, "compiled": False},
    energies.TightConvolutionBall: {
        "radius": 0.5, "shape": (2, 3, 3, 3), "size": (5, 5), "groups": 1,
    },
    energies.ClampNudge: {
        "direction": STATE, "origin": STATE, "stiffness": 1.0, "displacement": 0.1,
    },
    energies.CostNudge: {"cost": lambda state: state[0].sum(1), "beta": 0.1},
    energies.LinearNudge: {"direction": STATE, "beta": 0.1},
    energies.Opposed: {"up": NUDGE, "down": NUDGE, "asymmetry": lambda s: s, "origin": STATE},
    energies.System: {
        "field": MODEL.field, "x": X, "params": PARAMS, "drive": SYSTEM.drive, "nudge": None,
        "contraction": 0.3,
    },
    energies.System.bind: {"field": MODEL.field, "x": X, "params": PARAMS, "contraction": 0.3},
    energies.PairSystem: {"system": SYSTEM, "nudge": energies.Opposed(NUDGE)},
    energies.attention_lipschitz: {
        "params": (*HEAD[:2], torch.randn(4, 4), torch.randn(4, 4), HEAD[2]), "heads": 2,
        "width": 4,
    },
    energies.energy_attention_lipschitz: {"params": HEAD, "heads": 2, "width": 4},
    energies.convolution_bound: {"kernel": torch.randn(2, 3, 3, 3)},
    energies.convolution_norm: {"kernel": torch.randn(2, 3, 3, 3), "height": 5, "width": 5},
    energies.spectral_bound: {"weight": torch.randn(3, 4), "sharpen": 2, "symmetric": None},
    couplings.AttentionCoupling: {"heads": 2},
    couplings.AveragePoolCoupling: dict(WINDOWS),
    couplings.MaxPoolCoupling: dict(WINDOWS),
    couplings.MeanCoupling: {"dimensions": 2},
    couplings.ChainCoupling: {"parts": STACK},
    couplings.ConvolutionCoupling: {**MAPS, "pooling": teq.MaxPooling()},
    couplings.SequenceConvolutionCoupling: dict(MAPS),
    couplings.IdentityCoupling: {"scale": 0.5},
    couplings.ReshapeCoupling: {"shape": (2, 3), "start": 1, "end": 1},
    chain: {"part": STACK[0]},
    solvers.BlockDescent: dict(LOOP),
    solvers.Newton: dict(LOOP),
    solvers.Trace: {
        "residuals": [], "states": [], "images": [], "energies": [], "keep_states": True,
        "keep_energies": True,
    },
    solvers.relax: {
        "system": SYSTEM, "solver": teq.FixedPoint(), "start": STATE, "kernel": "auto",
        "trace": None,
    },
    solvers.relax_pair: {
        "system": SYSTEM, "nudge": energies.Opposed(NUDGE), "solver": teq.FixedPoint(),
        "free": FREE, "memory": (), "kernel": "auto", "trace": teq.Trace(),
    },
    solvers.solve: {
        "system": SYSTEM, "start": STATE, "solver": teq.FixedPoint(), "trace": None,
        "remember": True,
    },
    gradients.Problem: {
        "system": SYSTEM, "solver": teq.FixedPoint(), "wants": (False, True, True, True),
        "report": lambda phase, solution: None, "kernel": None, "memory": (),
    },
    kernels.get_kernel: {"name": "torch"},
    kernels.pytorch_products: {},
    hardware.Circuit: {
        "title": "t", "comments": ("c",), "cards": ("r1 a 0 1",), "probes": {"a": ("a",)},
        "points": 1, "celsius": 27.0, "noisy": (("a", 1.0),), "time_constant": 1.0,
    },
    hardware.ConductanceNudge: {"target": torch.zeros(2, 3), "beta": 0.1},
    hardware.Diode: {"saturation": 1e-8, "emission": 1.0},
    hardware.Faults: {
        "conductance": (torch.ones(5, 14), torch.ones(3, 12)), "saturation": (torch.ones(2, 5),),
        "up": (torch.ones(5),), "down": (torch.ones(5),), "offset": (torch.zeros(5),),
        "wire": 0.0, "amplifier_time": 0.0,
    },
    hardware.Ngspice: {"program": None, "timeout": 9.0, **NETLIST, **LOOP},
    hardware.Noise: {"rms": 0.1, "interval": 1e-6, "seed": 0},
    hardware.ResistiveNetwork: {
        "sizes": (6, 5, 3), "gain": 4.0, "diode": hardware.Diode(), "clamp": 0.0, "bias": 1.0,
        "input_gain": 1.0, "inverting": True, "upper_bias": True, "capacitance": 1e-12,
        "celsius": 27.0,
    },
    hardware.Analog: {"limit": 1.0},
    hardware.Binary: {},
    hardware.Ternary: {"threshold": 0.7},
    hardware.Quantised: {"bits": 4, "limit": None, "clip": 1.5},
    hardware.Converter: {"bits": 8, "limit": 1.0},
    hardware.Device: {
        "weights": hardware.Quantised(4), "write_noise": 0.1, "spread": 0.1, "stuck": 0.1,
        "stuck_at": "zero", "up_down": 0.1, "drift": 0.1, "age": 1.0,
        "states": hardware.Converter(8), "read_noise": 0.1, "thermal_noise": 0.1,
        "time_step": 0.1, "neuron_gain": 0.1, "neuron_offset": 0.1,
        "inputs": hardware.Converter(8), "settle": 9, "settle_free": 9, "average": 2,
        "phase_offset": 0.1, "diode_spread": 0.1, "wire": 1.0, "amplifier_time": 0.1, "seed": 0,
    },
    hardware.DevicePhases: dict(LOOP),
    hardware.OnChip: {"device": hardware.Device(), "network": MODEL, "options": None},
    hardware.budget: {
        "model": CHIP, "x": X, "y": torch.tensor([0, 1]), "loss": F.cross_entropy, "chips": 1,
    },
    hardware.on: {"device": hardware.Device(), "model": MODEL, "beta": 0.1},
    hardware.layered_netlist: {
        "layers": [(torch.randn(5, 6), torch.zeros(5)), (torch.randn(3, 5), torch.zeros(3))],
        "x": X, "feedback": 0.5, "nudge": [torch.zeros(2, 5), torch.zeros(2, 3)], **NETLIST,
        "celsius": 27.0, "readout": (torch.randn(2, 3), torch.zeros(2)),
        "gains": [(torch.ones(n), torch.zeros(n)) for n in (5, 3)],
        "downward": [torch.randn(5, 6), torch.randn(3, 5)],
    },
    hardware.looped_netlist: {
        "weight_in": PARAMS[0], "bias": PARAMS[1], "weight_rec": PARAMS[2], "x": X,
        "nudge": torch.zeros(2, 5), **NETLIST, "celsius": 27.0,
        "readout": (torch.randn(2, 5), torch.zeros(2)),
        "gains": [(torch.ones(5), torch.zeros(5))],
    },
    hardware.netlist: {"model": MODEL, "x": X, **NETLIST},
    hardware.resistive_netlist: {
        "network": RESISTIVE.network, "conductances": CONDUCTANCES, "x": X,
        "currents": [torch.zeros(2, 5), torch.zeros(2, 3)], "target": torch.zeros(2, 3),
        "beta": 0.1, "faults": hardware.Faults(), "inputs": "norton",
    },
    hardware.settle: {"model": RESISTIVE, "x": X.double(), "span": 0.1, "step": 0.05},
    hardware.thermal_voltage: {"celsius": 27.0},
    exporting.FreePhase: {
        "model": MODEL, "example": X, "tol": 1e-3, "max_steps": 9,
        "scaling": (torch.zeros(1, 6), torch.ones(1, 6)),
    },
    exporting.to_onnx: {"phase": exporting.FreePhase(MODEL, X)},
    exporting.to_program: {"phase": exporting.FreePhase(MODEL, X)},
    exporting.to_nir: {
        "model": teq.HopfieldMLP([6, 5, 5, 3], activation=energies.Linear()),
        "time_constant": 1e-3,
    },
    zoo.load: {"name": "digits"},
    zoo.record: {"name": "digits"},
    hardware.ConstantStep: {},
    hardware.SoftBounds: {},
    hardware.LinearStep: {
        "gamma_up": 0.1, "gamma_down": 0.1, "gamma_up_dtod": 0.0, "gamma_down_dtod": 0.0,
    },
    hardware.ExponentialStep: {
        "a": -0.5, "b": -0.5, "gamma_up": 5.0, "gamma_down": 5.0, "A_up": -1.0, "A_down": -1.0,
    },
    hardware.PulsedDevice: {
        "response": hardware.SoftBounds(), "dw_min": 0.1, "up_down": 0.1, "w_min": -1.0,
        "w_max": 1.0, "dw_min_dtod": 0.1, "up_down_dtod": 0.1, "w_min_dtod": 0.1,
        "w_max_dtod": 0.1, "dw_min_std": 0.1, "mult_noise": True, "write_noise_std": 1.0,
        "lifetime": 9.0, "pair": False, "seed": 0,
    },
    hardware.PulsedUpdates: {
        "params": [torch.nn.Parameter(torch.zeros(2, 3))], "device": hardware.EcRam(), "lr": 0.1,
        "pulses": 5, "stochastic": True, "scale": 1.0, "remedy": hardware.TikiTaka(), "seed": 0,
    },
    hardware.TikiTaka: {"rate": 0.1, "every": 2},
    hardware.ReRam: {"seed": 0},
    **{preset: {"seed": 0} for preset in hardware.PRESETS.values()},
}  # fmt: skip

FUNCTIONS = {"cost", "asymmetry", "report", "loss"}
"""Arguments that are functions: what they raise themselves is theirs."""

SIGNED = {
    "HardTanh.low", "HardTanh.high", "NearIdentity.gain", "ClampNudge.displacement",
    "CostNudge.beta", "LinearNudge.beta", "ConductanceNudge.beta", "resistive_netlist.beta",
    "MapEnergy.start",
    "IdentityCoupling.scale", "ReshapeCoupling.start", "ReshapeCoupling.end",
    "Circuit.celsius", "ResistiveNetwork.celsius", "layered_netlist.celsius",
    "looped_netlist.celsius", "thermal_voltage.celsius", "PulsedDevice.w_min",
    *(f"ExponentialStep.{name}" for name in GOOD[hardware.ExponentialStep]),
}  # fmt: skip
"""Numbers that may be negative, or zero."""

ZERO = {
    "FreePhase.tol",
    "Skip.source", "System.contraction", "System.bind.contraction", "spectral_bound.sharpen",
    "Ternary.threshold",
    "ConvolutionCoupling.padding", "SequenceConvolutionCoupling.padding", "Noise.seed",
    "ResistiveNetwork.clamp", "ResistiveNetwork.bias", "Faults.wire", "Faults.amplifier_time",
    *(f"Device.{name}" for name in inspect.signature(hardware.Device).parameters),
    *(f"LinearStep.{name}" for name in GOOD[hardware.LinearStep]),
    *(f"PulsedDevice.{name}" for name in GOOD[hardware.PulsedDevice] if name != "dw_min"),
    *(f"{name}.seed" for name in ("PulsedUpdates", "ReRam", *hardware.PRESETS)),
}  # fmt: skip
"""Numbers that may be zero."""

INFINITE = {"ClippedReLU.height"}
"""Numbers that may be infinite."""

RESULTS = {
    "DenseParams", "MapParams", "Measured", "Settling", "Budget", "ChipCertificate", "DeviceField",
    "DiodePair", "NodeLaw", "ResistiveEnergy", "Wired",
}  # fmt: skip
"""What the library makes and hands out: containers, and parts of a circuit."""


WORKSHOP = {"Mutation", "plantable"}
"""For those who write tracks; `tests/verify/test_mutations.py` has their tests."""


def packages() -> list[str]:
    """This library and every package in it that says what is public."""
    found = [teq.__name__]
    for module in pkgutil.walk_packages(teq.__path__, "toreqprop."):
        if module.ispkg and hasattr(importlib.import_module(module.name), "__all__"):
            found.append(module.name)
    return found


def is_callable_here(value: Any) -> bool:
    """Whether it is a function or a class one can make objects of, and no error."""
    if inspect.isfunction(value):
        return True
    if not inspect.isclass(value) or inspect.isabstract(value) or hasattr(value, "__origin__"):
        return False
    protocol = getattr(value, "_is_protocol", False)
    return not protocol and not issubclass(value, Exception | enum.Enum)


@pytest.mark.parametrize("package", packages())
def test_every_public_name_has_an_entry(package: str) -> None:
    module = importlib.import_module(package)
    elsewhere = {*CORE, *PLOTS, *TASKS, *PLAIN, *BUILDS, *RESULTS, *WORKSHOP}
    if package == "toreqprop.cli":
        return  # the program; its words have tests of their own
    known = {call.__name__ for call in GOOD} | elsewhere | set(teq.sklearn.__all__)
    public = {name for name in module.__all__ if is_callable_here(getattr(module, name))}
    assert public <= known, sorted(public - known)


@pytest.mark.parametrize("call", GOOD, ids=lambda call: call.__qualname__)
def test_every_argument_has_an_entry(call: Callable[..., Any]) -> None:
    assert set(GOOD[call]) == set(inspect.signature(call).parameters) - {"args", "kwargs"}


@pytest.mark.parametrize("call", GOOD, ids=lambda call: call.__qualname__)
def test_nonsense_is_refused_in_a_sentence(call: Callable[..., Any]) -> None:
    annotated = meanings(call)

    def meaning(argument: str) -> set[str]:
        name = f"{call.__qualname__}.{argument}"
        numbers = {"negative": name in SIGNED, "zero": name in SIGNED | ZERO}
        found = {k for k in annotated(argument) if numbers.get(k, True)}
        return found | ({"infinite"} if name in INFINITE else set())

    wrong = unrefused(call, lambda: dict(GOOD[call]), FUNCTIONS, meaning)
    assert not wrong, "\n".join(wrong)
