"""Models: an energy, a solver, an estimator and a readout in one ``nn.Module``."""

from __future__ import annotations

from toreqprop.models.backprop_conv import BackpropConvNet
from toreqprop.models.backprop_mlp import BackpropMLP
from toreqprop.models.base import EquilibriumModel
from toreqprop.models.completion import CompletionNetwork
from toreqprop.models.converted import Block, ConvertedNetwork, convert
from toreqprop.models.equilibrium_map import EquilibriumMap
from toreqprop.models.hopfield_conv import HopfieldConvNet
from toreqprop.models.hopfield_mlp import HopfieldMLP
from toreqprop.models.looped_mlp import LoopedMLP
from toreqprop.models.on_chip import OnChip, on
from toreqprop.models.projection import project_
from toreqprop.models.residual import Residual
from toreqprop.models.resistive_mlp import ResistiveMLP
from toreqprop.models.transformer import EquilibriumTransformer
from toreqprop.models.two_phase import nudged_backward, nudged_gradients

MODELS: dict[str, type[EquilibriumModel]] = {
    "looped": LoopedMLP,
    "hopfield": HopfieldMLP,
    "conv": HopfieldConvNet,
    "map": EquilibriumMap,
    "completion": CompletionNetwork,
    "transformer": EquilibriumTransformer,
    "converted": ConvertedNetwork,
    "resistive": ResistiveMLP,
    "chip": OnChip,
}

__all__ = [
    "MODELS",
    "BackpropConvNet",
    "BackpropMLP",
    "Block",
    "CompletionNetwork",
    "ConvertedNetwork",
    "EquilibriumMap",
    "EquilibriumModel",
    "EquilibriumTransformer",
    "HopfieldConvNet",
    "HopfieldMLP",
    "LoopedMLP",
    "OnChip",
    "Residual",
    "ResistiveMLP",
    "convert",
    "nudged_backward",
    "nudged_gradients",
    "on",
    "project_",
]
