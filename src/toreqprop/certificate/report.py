"""What a certificate says: figures by tensor and by relaxation, the verdict, the reasons."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Reason(Enum):
    """Why a certificate was refused; the value is the sentence a user reads."""

    WRONG_SIGN = "the gradient points uphill: the sign of the nudge or of the contrast is wrong"
    NO_NUDGE = (
        "no nudged equilibrium was computed, or it equals the free one: "
        "without the nudged phase there is nothing to learn from"
    )
    UNROLLED = (
        "the gradient was taken by backpropagation through the relaxation, not from equilibria: "
        "use gradient=CenteredEP()"
    )
    NOT_CONTRACTING = (
        "the relaxation does not contract at the equilibrium: keep spectral_norm=True, weaken the "
        "feedback or lower the learning rate"
    )
    RESIDUAL = "a relaxation stopped too early (residual too large): lower tol or raise max_steps"
    ASYMMETRIC = (
        "the Jacobian is not symmetric and the estimator assumes it is: use "
        "gradient=VectorFieldEP()"
    )
    PRECISION = (
        "rounding spoils the gradient (in double precision it is closer): use model.double()"
    )
    BETA = "beta is too large (the bias dominates; a weaker nudge is closer): lower beta"
    NORM = (
        "a weight's norm is above the radius its estimate was to keep it below: train on, the "
        'margin rises by itself, or use bound="proven"'
    )
    ORACLE = (
        "the exact gradient itself could not be computed to 1e-9, so nothing is certified: try a "
        "smaller batch or a model that contracts"
    )
    UNEXPLAINED = (
        "the gradient is off and no known cause was found: compare with gradient=ImplicitGradient()"
    )


@dataclass(frozen=True)
class TensorCertificate:
    """One parameter tensor, or "input": signed cosine and norm ratio against the exact gradient."""

    name: str
    cosine: float
    norm_ratio: float
    ok: bool


@dataclass(frozen=True)
class PhaseCertificate:
    """One relaxation: its evaluations, worst relative residual, and how far the nudge moved it.

    ``displacement`` is the largest relative distance in the batch of the two states that are
    contrasted, ``status`` how it ended, ``layer`` where, if not well.
    """

    phase: str
    steps: int
    residual: float
    converged: bool
    displacement: float
    status: str = "CONVERGED"
    layer: int | None = None

    @property
    def settled(self) -> bool:
        """Whether it ended well, or as well as an exact gradient needs."""
        return self.converged or self.residual < 1e-9


@dataclass(frozen=True)
class NormCertificate:
    """One weight whose norm is kept by an estimate (`TightBall`): ``norm ≤ radius``, proven or not.

    Proven by a factorisation in double precision, or for convolutions by Golub-Kahan from a random
    start, which is wrong once in 10⁹.
    """

    name: str
    radius: float
    proven: bool


@dataclass(frozen=True)
class Certificate:
    """What `certify` measured, and its verdict.

    ``contraction`` is the norm of the map's Jacobian at the equilibria (largest over the batch, in
    the norm of ``lipschitz``), ``lipschitz`` the model's global constant where known, ``asymmetry``
    is ``‖U − Uᵀ‖/‖U‖`` of the preactivation's Jacobian.

    ``backprop_cosine`` is another thing: the smallest cosine over the tensors with plain
    backpropagation through the feed-forward network of the same parameters, None for models without
    one. It is near one where feedback is weak, and no part of the verdict.

    ``norms`` are those that training only estimates: here they are proven.
    """

    estimator: str
    ok: bool
    reasons: tuple[Reason, ...]
    tensors: tuple[TensorCertificate, ...]
    phases: tuple[PhaseCertificate, ...]
    asymmetry: float
    contraction: float
    lipschitz: float | None
    backprop_cosine: float | None = None
    norms: tuple[NormCertificate, ...] = ()

    @property
    def min_cosine(self) -> float:
        """The smallest cosine over the tensors that EP trains (a readout is exact anyway)."""
        return min((t.cosine for t in self.tensors), default=1.0)

    @property
    def verdict(self) -> str:
        """One sentence."""
        beside = ""
        if self.backprop_cosine is not None:
            beside = f"; cosine with plain backpropagation {self.backprop_cosine:.6f}"
        if not self.ok:
            return f"FAIL: {'; '.join(r.value for r in self.reasons)}{beside}."
        return (
            f"PASS: {self.estimator} agrees with the exact gradient "
            f"(smallest cosine {self.min_cosine:.6f}{beside})."
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = asdict(self)
        plain["reasons"] = [r.name for r in self.reasons]
        return {**plain, "verdict": self.verdict, "min_cosine": self.min_cosine}

    def __str__(self) -> str:
        return self.verdict
