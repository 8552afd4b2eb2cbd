"""Two gradients of one tensor held against each other."""

from __future__ import annotations

from torch import Tensor

from toreqprop.certificate.report import TensorCertificate


def compare(
    name: str, found: Tensor, exact: Tensor, min_cosine: float, max_norm_error: float
) -> TensorCertificate:
    a, b = found.double().flatten(), exact.double().flatten()
    # Divided by their largest entries first: squares of tiny gradients would underflow.
    peak = max(float(a.abs().max()), float(b.abs().max()))
    if peak == 0:
        return TensorCertificate(name, 1.0, 1.0, True)  # nothing to learn, and nothing learned
    a, b = a / peak, b / peak
    sizes = float(a.norm()), float(b.norm())
    ratio = sizes[0] / sizes[1] if sizes[1] > 0 else float("inf")
    cosine = float(a @ b) / (sizes[0] * sizes[1]) if min(sizes) > 0 else 0.0
    ok = cosine >= min_cosine and abs(ratio - 1) <= max_norm_error
    return TensorCertificate(name, cosine, ratio, ok)
