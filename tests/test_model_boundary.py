"""Models refuse nonsense in one sentence: constructors at once, methods before anything relaxes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import toreqprop as teq
from tests.nonsense import meanings, unrefused
from toreqprop.energies import ConvolutionBall, SpectralBall, SymmetricBall, System, Tanh
from toreqprop.gradients import ESTIMATORS
from toreqprop.kernels import get_kernel
from toreqprop.solvers import relax
from toreqprop.training import RelaxationMonitor

pytestmark = pytest.mark.filterwarnings("ignore")

COMMON: dict[str, Any] = {
    "gradient": None, "solver": None, "tol": 1e-3, "max_steps": 50, "on_failure": "ignore",
    "generator": None,
}  # fmt: skip
DENSE = {"in_features": 6, "hidden_features": 5, "out_features": 3, "gain": 1.0}
IMAGES: dict[str, Any] = {
    "image": (1, 8, 8), "channels": (2, 3), "classes": 3, "kernel_size": 3, "pooling": None,
    "activation": Tanh(),
}  # fmt: skip
X, FLAT, TOKENS = torch.randn(2, 6), torch.randn(2, 64), torch.zeros(2, 4, dtype=torch.int64)
CONVERTED: dict[str, Any] = {
    "feedback": 0.1, "encoder": None, "shape": None,
    **{name: value for name, value in COMMON.items() if name != "generator"},
}  # fmt: skip


def sequential() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh())


ROWS: dict[str, Any] = {"hidden": 5, "outputs": 3, "layers": None}

BUILDS: dict[str, tuple[Callable[..., nn.Module], dict[str, Any], Tensor]] = {
    "LoopedMLP": (
        teq.LoopedMLP,
        {**DENSE, "spectral_norm": True, "radius": 0.3, "symmetric": True, "kernel": "auto"}
        | {"bound": "tight", **COMMON},
        X,
    ),
    "HopfieldMLP": (
        teq.HopfieldMLP,
        {"sizes": [6, 5, 3], "activation": Tanh(), "output": "readout", "spectral_norm": True}
        | {"radius": 0.9, "bound": "proven", "start": "random", "feedback": 1.0, "gain": 2.0}
        | COMMON,
        X,
    ),
    "HopfieldMLP.deep": (
        teq.HopfieldMLP.deep, {"inputs": 6, "width": 4, "layers": 3, "outputs": 3}, X
    ),
    "HopfieldConvNet": (
        teq.HopfieldConvNet,
        {**IMAGES, "feedback": 0.1, "spectral_norm": True, "radius": 0.9, "bound": "tight"}
        | COMMON,
        FLAT,
    ),
    "EquilibriumMap": (
        teq.EquilibriumMap,
        {"inputs": 1, "channels": 2, "outputs": 2, "kernel_size": 3, "coupling": 0.2}
        | {"start": 0.0, "cooperative": True, "activation": Tanh(), **COMMON},
        torch.rand(2, 1, 4, 4),
    ),
    "CompletionNetwork": (
        teq.CompletionNetwork,
        {"features": 3, "hidden": 4, "drivers": 2, "scale": 2.0, "drive_scale": 3.0}
        | {"feedback": 0.1, "activation": Tanh(), "spectral_norm": True, "radius": 0.9}
        | {"bound": "tight", **COMMON},
        torch.cat([torch.rand(2, 3), torch.ones(2, 3)], 1),
    ),
    "EquilibriumTransformer": (
        teq.EquilibriumTransformer,
        {"vocab_size": 5, "max_length": 4, "variant": "energy", "layers": 1, "width": 8}
        | {"heads": 2, "causal": False, "feedback": 0.2, "radius": 1.0, "bound": "tight", **COMMON},
        TOKENS,
    ),
    "BackpropMLP": (teq.BackpropMLP, {**DENSE, "generator": None}, X),
    "BackpropConvNet": (teq.BackpropConvNet, {**IMAGES, "generator": None}, FLAT),
    "ConvertedNetwork": (
        teq.ConvertedNetwork, {"net": nn.Sequential(*sequential(), nn.Linear(4, 3)), **CONVERTED}, X
    ),
    "Block": (teq.Block, {"net": sequential(), **CONVERTED}, X),
    "ResistiveMLP": (
        teq.ResistiveMLP,
        {"sizes": [6, 5, 3], "gain": 4.0, "diode": None, "clamp": 0.0, "bias": 1.0}
        | {"input_gain": None, "output_gain": None, "inverting": True, "upper_bias": True}
        | {"unit": 1e-5, "low": 0.01, "high": 100.0, "device": None, "capacitance": 1e-12}
        | {"celsius": 27.0, **COMMON},
        X,
    ),
    "Residual": (
        teq.Residual,
        {"body": nn.Sequential(nn.Linear(6, 6), nn.Tanh()), "shortcut": None, "scale": 1.0},
        X,
    ),
    "LoopedMLP.for_rows": (teq.LoopedMLP.for_rows, {"features": 6, **ROWS}, X),
    "HopfieldMLP.for_rows": (teq.HopfieldMLP.for_rows, {"features": 6, **ROWS}, X),
    "HopfieldConvNet.for_rows": (teq.HopfieldConvNet.for_rows, {"features": 64, **ROWS}, FLAT),
}  # fmt: skip


@pytest.mark.parametrize("name", BUILDS)
def test_constructors(name: str) -> None:
    """What is accepted makes a model that runs, on its batch or with a sentence about it."""
    build, good, batch = BUILDS[name]
    wrong = unrefused(
        lambda **given: build(**given)(batch), lambda: dict(good), meaning=meanings(build)
    )
    assert not wrong, "\n".join(wrong)


def test_every_public_model_and_every_argument_is_walked() -> None:
    public = {
        name: cls
        for name, cls in ((name, getattr(teq, name)) for name in teq.__all__)
        if isinstance(cls, type) and issubclass(cls, nn.Module) and not inspect.isabstract(cls)
    }
    for name, cls in public.items():
        assert set(inspect.signature(cls).parameters) == set(BUILDS[name][1]), name


MODEL = teq.LoopedMLP(6, 5, 3)
STATE = (torch.zeros(2, 5),)
SYSTEM = System.bind(MODEL.field, X, tuple(p.detach() for p in MODEL.system_parameters()))
CONVOLUTIONAL = teq.HopfieldConvNet((1, 8, 8), (2, 3), 3, kernel_size=3)
TRANSFORMER = teq.EquilibriumTransformer(5, 4, width=8)


def setting(name: str) -> Callable[..., Any]:
    """Sets it on a model and uses that."""

    def call(value: Any) -> None:
        model = teq.LoopedMLP(6, 5, 3)
        setattr(model, name, value)
        model(X).sum().backward()

    return call


def remove(key: Any) -> None:
    model = teq.LoopedMLP(6, 5, 3)
    model.register_relaxation_hook(lambda phase, solution: None)
    model.remove_relaxation_hook(key)


METHODS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "forward": (MODEL, {"x": X}),
    "forward of images": (CONVOLUTIONAL, {"x": FLAT}),
    "forward of tokens": (TRANSFORMER, {"x": TOKENS}),
    "equilibrium": (MODEL.equilibrium, {"x": X, "start": STATE, "trace": teq.Trace()}),
    "energy": (MODEL.energy, {"x": X}),
    "register_relaxation_hook": (
        teq.LoopedMLP(6, 5, 3).register_relaxation_hook, {"hook": lambda phase, solution: None}
    ),
    "remove_relaxation_hook": (remove, {"key": 0}),
    "gradient": (setting("gradient"), {"value": "centered"}),
    "solver": (setting("solver"), {"value": "anderson"}),
    "tol": (setting("tol"), {"value": 1e-3}),
    "max_steps": (setting("max_steps"), {"value": 50}),
    "on_failure": (setting("on_failure"), {"value": "ignore"}),
    "kernel": (setting("kernel"), {"value": "torch"}),
    "limited": (teq.FixedPoint().limited, {"tol": 1e-3, "max_steps": 3}),
    "softer": (teq.CenteredEP().softer, {"factor": 2.0}),
    "mean_steps": (RelaxationMonitor().mean_steps, {"phase": "free"}),
    "get_kernel": (get_kernel, {"name": "torch"}),
    "SpectralBall": (SpectralBall, {"radius": 0.5}),
    "SymmetricBall": (SymmetricBall, {"radius": 0.5, "compiled": False}),
    "ConvolutionBall": (ConvolutionBall, {"radius": 0.5}),
    "relax": (relax, {"system": SYSTEM, "solver": teq.FixedPoint(), "trace": None}),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods(name: str) -> None:
    call, good = METHODS[name]
    wrong = unrefused(call, lambda: dict(good), {"hook"})
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "start",
    [
        (torch.zeros(2, 7),),
        (torch.zeros(3, 5),),
        (torch.zeros(2, 5), torch.zeros(2, 5)),
        (torch.zeros(2, 5).double(),),
    ],
    ids=["width", "samples", "layers", "dtype"],
)
def test_a_start_of_another_shape_is_refused(start: tuple[Tensor, ...]) -> None:
    with pytest.raises(teq.InvalidInputError, match=r"for each layer, \(2, 5\) of torch.float32"):
        MODEL.equilibrium(X, start=start)


@pytest.mark.parametrize("value", [1, 1.0])
def test_a_whole_number_is_a_radius_like_any_other(value: float) -> None:
    """An integer would compile everything again."""
    assert type(teq.LoopedMLP(6, 5, 3, radius=value).radius) is float


NUDGED = [cls for cls in ESTIMATORS.values() if "beta" in inspect.signature(cls).parameters]


@pytest.mark.parametrize("beta", [1e-300, 1e-40, 5e-324])
@pytest.mark.parametrize("estimator", NUDGED)
def test_a_nudge_beyond_floats_is_refused(estimator: type, beta: float) -> None:
    """It would give NaN gradients silently."""
    with pytest.raises(teq.InvalidInputError, match="beta must be >= 1e-12"):
        estimator(beta=beta)
