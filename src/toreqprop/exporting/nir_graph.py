"""Networks of linear neurons as NIR, the format neuromorphic simulators exchange.

NIR has leaky integrators ``τ dv/dt = −v + R·I`` and spiking neurons, but none with a smooth
saturation: a network that settles by tanh has no counterpart there, one of linear neurons has.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import torch

from toreqprop import checks
from toreqprop.energies import Linear, StackEnergy
from toreqprop.energies.couplings import LinearCoupling
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.exporting.free_phase import _check
from toreqprop.models import EquilibriumModel

if TYPE_CHECKING:
    import nir


@torch.no_grad()
def to_nir(model: EquilibriumModel, *, time_constant: float = 1e-3) -> nir.NIRGraph:
    """A stack of linear neurons as leaky integrators coupled both ways, and its readout.

    Every layer is ``τ dv_l/dt = −v_l + W_l v_{l−1} + b_l + γ·W_{l+1}ᵀ v_{l+1}``, whose resting
    point is the model's equilibrium; keep the graph with ``nir.write``.

    Raises:
        UnsupportedModelError: the neurons, or what couples them, have no counterpart in NIR.
    """
    _check(model)
    checks.number("time_constant", time_constant, 0, above=True, typical="1e-3 s")
    field = model.field
    if not isinstance(field, StackEnergy) or field.skips:
        raise UnsupportedModelError(
            f"{type(field).__name__} has no counterpart in NIR: use a HopfieldMLP of linear "
            "neurons, or ONNX."
        )
    for layer, coupling in enumerate(field.couplings):
        if not isinstance(coupling, LinearCoupling):
            raise UnsupportedModelError(
                f"{type(coupling).__name__} between layers has no counterpart in NIR that also "
                "leads back: use dense layers, or ONNX."
            )
        if not isinstance(field.layer_activation(layer), Linear):
            name = type(field.layer_activation(layer)).__name__
            raise UnsupportedModelError(
                f"NIR has no neuron that saturates as {name} does: use activation=Linear(), or "
                "ONNX, which takes every network that settles."
            )
    if find_spec("nir") is None:
        raise InvalidInputError('NIR needs nir: run `pip install "toreqprop[export]"`.')
    return _graph(model, field, time_constant)


def _graph(model: EquilibriumModel, field: StackEnergy, time_constant: float) -> nir.NIRGraph:
    import nir

    params = [p.double().numpy() for p in model.system_parameters()]
    nodes: dict[str, nir.NIRNode] = {
        "input": nir.Input(input_type=np.array([params[0].shape[1]])),
    }
    edges = []
    layers = len(field.couplings)
    for layer in range(layers):
        weight, bias = params[2 * layer : 2 * layer + 2]
        size = weight.shape[0]
        below = "input" if layer == 0 else f"layer_{layer - 1}"
        nodes[f"up_{layer}"] = nir.Affine(weight=weight, bias=bias)
        nodes[f"layer_{layer}"] = nir.LI(
            tau=np.full(size, time_constant), r=np.ones(size), v_leak=np.zeros(size)
        )
        edges += [(below, f"up_{layer}"), (f"up_{layer}", f"layer_{layer}")]
        if layer:
            nodes[f"down_{layer}"] = nir.Linear(weight=field.feedback * weight.T)
            edges += [(f"layer_{layer}", f"down_{layer}"), (f"down_{layer}", below)]
    last = f"layer_{layers - 1}"
    readout = getattr(model, "readout", None)
    width = params[-1].shape[0]
    if readout is not None:
        nodes["readout"] = nir.Affine(
            weight=readout.weight.double().numpy(), bias=readout.bias.double().numpy()
        )
        edges.append((last, "readout"))
        last, width = "readout", readout.weight.shape[0]
    nodes["output"] = nir.Output(output_type=np.array([width]))
    edges.append((last, "output"))
    return nir.NIRGraph(nodes, edges)
