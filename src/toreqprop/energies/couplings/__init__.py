"""What joins two layers of neurons. A new one is one file and one line in ``COUPLINGS``."""

from __future__ import annotations

from toreqprop.energies.couplings.attention import AttentionCoupling
from toreqprop.energies.couplings.base import Coupling
from toreqprop.energies.couplings.chain import ChainCoupling, chain
from toreqprop.energies.couplings.convolution import (
    ConvolutionCoupling,
    SequenceConvolutionCoupling,
)
from toreqprop.energies.couplings.linear import (
    IdentityCoupling,
    LinearCoupling,
    ReshapeCoupling,
)
from toreqprop.energies.couplings.pooling import (
    AveragePoolCoupling,
    MaxPoolCoupling,
    MeanCoupling,
)

COUPLINGS: dict[str, type[Coupling]] = {
    "linear": LinearCoupling,
    "reshape": ReshapeCoupling,
    "identity": IdentityCoupling,
    "convolution": ConvolutionCoupling,
    "sequence_convolution": SequenceConvolutionCoupling,
    "average_pool": AveragePoolCoupling,
    "max_pool": MaxPoolCoupling,
    "mean": MeanCoupling,
    "attention": AttentionCoupling,
    "chain": ChainCoupling,
}
"""Every coupling; the contract tests run through it."""

__all__ = [
    "COUPLINGS",
    "AttentionCoupling",
    "AveragePoolCoupling",
    "ChainCoupling",
    "ConvolutionCoupling",
    "Coupling",
    "IdentityCoupling",
    "LinearCoupling",
    "MaxPoolCoupling",
    "MeanCoupling",
    "ReshapeCoupling",
    "SequenceConvolutionCoupling",
    "chain",
]
