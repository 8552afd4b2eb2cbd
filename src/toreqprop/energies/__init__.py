"""The mathematics: energies, vector fields, nudges and the constraints on their weights."""

from __future__ import annotations

from toreqprop.energies.activations import (
    ACTIVATIONS,
    Activation,
    ClippedReLU,
    HardSigmoid,
    HardTanh,
    LeakyReLU,
    Linear,
    Logistic,
    Sigmoid,
    Softplus,
    Tanh,
)
from toreqprop.energies.attention import (
    AttentionEnergy,
    AttentionField,
    attention_lipschitz,
    energy_attention_lipschitz,
)
from toreqprop.energies.attention_stack import AttentionStackField
from toreqprop.energies.base import Energy, Gradients, Layerwise, Pairs, Params, VectorField, Wants
from toreqprop.energies.completion import CompletionEnergy
from toreqprop.energies.convolution_norms import (
    ConvolutionBall,
    convolution_bound,
    convolution_norm,
)
from toreqprop.energies.couplings import (
    COUPLINGS,
    AttentionCoupling,
    AveragePoolCoupling,
    ChainCoupling,
    ConvolutionCoupling,
    Coupling,
    IdentityCoupling,
    LinearCoupling,
    MaxPoolCoupling,
    MeanCoupling,
    ReshapeCoupling,
    SequenceConvolutionCoupling,
    chain,
)
from toreqprop.energies.dense import DenseEnergy, DenseField, DenseParams
from toreqprop.energies.nudging import (
    ClampNudge,
    CostNudge,
    LinearNudge,
    Nudge,
    Opposed,
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
from toreqprop.energies.recurrent_map import MapEnergy, MapParams, SymmetricKernel
from toreqprop.energies.stack import Skip, StackEnergy
from toreqprop.energies.system import PairSystem, System
from toreqprop.energies.tight_ball import (
    Bound,
    TightBall,
    TightConvolutionBall,
)

__all__ = [
    "ACTIVATIONS",
    "COUPLINGS",
    "POOLINGS",
    "Activation",
    "AttentionCoupling",
    "AttentionEnergy",
    "AttentionField",
    "AttentionStackField",
    "AveragePoolCoupling",
    "AveragePooling",
    "Bound",
    "ChainCoupling",
    "ClampNudge",
    "ClippedReLU",
    "CompletionEnergy",
    "ConvolutionBall",
    "ConvolutionCoupling",
    "CostNudge",
    "Coupling",
    "DenseEnergy",
    "DenseField",
    "DenseParams",
    "Energy",
    "Gradients",
    "HardSigmoid",
    "HardTanh",
    "IdentityCoupling",
    "Layerwise",
    "LeakyReLU",
    "Linear",
    "LinearCoupling",
    "LinearNudge",
    "Logistic",
    "MapEnergy",
    "MapParams",
    "MaxPoolCoupling",
    "MaxPooling",
    "MeanCoupling",
    "NearIdentity",
    "Nudge",
    "Opposed",
    "PairSystem",
    "Pairs",
    "Params",
    "Pooling",
    "ReshapeCoupling",
    "SequenceConvolutionCoupling",
    "Sigmoid",
    "Skip",
    "SoftPooling",
    "Softplus",
    "SpectralBall",
    "StackEnergy",
    "Symmetric",
    "SymmetricBall",
    "SymmetricKernel",
    "System",
    "Tanh",
    "TightBall",
    "TightConvolutionBall",
    "VectorField",
    "Wants",
    "attention_lipschitz",
    "chain",
    "convolution_bound",
    "convolution_norm",
    "energy_attention_lipschitz",
    "spectral_bound",
]
