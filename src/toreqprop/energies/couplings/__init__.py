"""What joins two layers of neurons. A new one is one file and one line in ``COUPLINGS``."""

from __future__ import annotations

from toreqprop.energies.couplings.attention import AttentionCoupling
from toreqprop.energies.couplings.base import Coupling
from toreqprop.energies.couplings.convolution import ConvolutionCoupling
from toreqprop.energies.couplings.linear import (
    FlattenCoupling,
    IdentityCoupling,
    LinearCoupling,
    ReshapeCoupling,
)

COUPLINGS: dict[str, type[Coupling]] = {
    "linear": LinearCoupling,
    "flatten": FlattenCoupling,
    "reshape": ReshapeCoupling,
    "identity": IdentityCoupling,
    "convolution": ConvolutionCoupling,
    "attention": AttentionCoupling,
}
"""Every coupling; the contract tests run through it."""

__all__ = [
    "COUPLINGS",
    "AttentionCoupling",
    "ConvolutionCoupling",
    "Coupling",
    "FlattenCoupling",
    "IdentityCoupling",
    "LinearCoupling",
    "ReshapeCoupling",
]
