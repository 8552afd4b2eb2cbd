"""The mathematics: energies, vector fields, nudges and the constraints on their weights."""

from __future__ import annotations

from toreqprop.energies.activations import Activation, HardSigmoid, Linear, Sigmoid, Tanh
from toreqprop.energies.attention import (
    AttentionEnergy,
    AttentionField,
    attention_lipschitz,
    energy_attention_lipschitz,
)
from toreqprop.energies.attention_stack import AttentionStackEnergy, AttentionStackField
from toreqprop.energies.base import Energy, Gradients, Layerwise, Params, VectorField, Wants
from toreqprop.energies.convolution_norms import (
    ConvolutionBall,
    convolution_bound,
    convolution_norm,
)
from toreqprop.energies.convolutional import ConvolutionalEnergy, PooledConvolution
from toreqprop.energies.dense import DenseEnergy, DenseField, DenseParams
from toreqprop.energies.layered import LayeredEnergy
from toreqprop.energies.nudging import (
    AsymmetryCorrection,
    ClampNudge,
    CostNudge,
    LinearNudge,
    Nudge,
)
from toreqprop.energies.parametrizations import (
    NearIdentity,
    SpectralBall,
    Symmetric,
    SymmetricBall,
    spectral_bound,
)
from toreqprop.energies.pooling import (
    POOLINGS,
    AveragePooling,
    MaxPooling,
    Pooling,
    SoftPooling,
)
from toreqprop.energies.system import System, neurons, per_sample, sample_norm

__all__ = [
    "POOLINGS",
    "Activation",
    "AsymmetryCorrection",
    "AttentionEnergy",
    "AttentionField",
    "AttentionStackEnergy",
    "AttentionStackField",
    "AveragePooling",
    "ClampNudge",
    "ConvolutionBall",
    "ConvolutionalEnergy",
    "CostNudge",
    "DenseEnergy",
    "DenseField",
    "DenseParams",
    "Energy",
    "Gradients",
    "HardSigmoid",
    "LayeredEnergy",
    "Layerwise",
    "Linear",
    "LinearNudge",
    "MaxPooling",
    "NearIdentity",
    "Nudge",
    "Params",
    "PooledConvolution",
    "Pooling",
    "Sigmoid",
    "SoftPooling",
    "SpectralBall",
    "Symmetric",
    "SymmetricBall",
    "System",
    "Tanh",
    "VectorField",
    "Wants",
    "attention_lipschitz",
    "convolution_bound",
    "convolution_norm",
    "energy_attention_lipschitz",
    "neurons",
    "per_sample",
    "sample_norm",
    "spectral_bound",
]
