"""Gradient error against β: bias on the right, rounding on the left, the best β between them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.evidence import Measurement
from toreqprop.gradients import (
    CenteredEP,
    GradientEstimator,
    HolomorphicEP,
    ImplicitGradient,
    OneSidedEP,
)
from toreqprop.models import LoopedMLP
from toreqprop.plots.style import need_matplotlib, save

CURVES: dict[str, Callable[[float], GradientEstimator]] = {
    "one-sided": OneSidedEP,
    "centred": CenteredEP,
    "holomorphic, 4 points": lambda beta: HolomorphicEP(beta, points=4),
    "holomorphic, 8 points": lambda beta: HolomorphicEP(beta, points=8),
}
TOLERANCE = {"float32": 1e-7, "float64": 1e-13}
BETAS = tuple(10 ** (k / 4) for k in range(-28, 1))


@dataclass(frozen=True)
class Point:
    """Relative error of all hidden gradients together, for one estimator, dtype and β."""

    estimator: str
    dtype: str
    beta: float
    error: float


@dataclass(frozen=True)
class Sweep:
    """The measured points and the slope of each curve where its bias dominates."""

    seed: int
    points: tuple[Point, ...]

    def curve(self, estimator: str, dtype: str) -> list[Point]:
        """Points of one curve, by growing β."""
        return [p for p in self.points if p.estimator == estimator and p.dtype == dtype]

    def floor(self, estimator: str, dtype: str) -> Point:
        """The best point of a curve: where bias and rounding balance."""
        return min(self.curve(estimator, dtype), key=lambda p: p.error)

    def slope(self, estimator: str, low: float, high: float) -> float:
        """Least-squares slope of log error on log β in float64 between two betas."""
        chosen = [p for p in self.curve(estimator, "float64") if low <= p.beta <= high]
        logs = torch.tensor([[p.beta, p.error] for p in chosen], dtype=torch.float64).log()
        centred = logs - logs.mean(0)
        return float((centred[:, 0] * centred[:, 1]).sum() / (centred[:, 0] ** 2).sum())

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with each curve's slope and floor."""
        return {
            "seed": self.seed,
            "points": [asdict(p) for p in self.points],
            "slopes": {
                "one-sided": self.slope("one-sided", 1e-3, 1e-1),
                "centred": self.slope("centred", 1e-3, 1e-1),
            },
            "floors": {
                f"{name}, {dtype}": asdict(self.floor(name, dtype))
                for name in CURVES
                for dtype in TOLERANCE
            },
        }


def sweep_beta(seed: int = 42, betas: tuple[float, ...] = BETAS) -> Sweep:
    """Measure every curve in float32 and float64 on one small `LoopedMLP` and batch."""
    parts = [curve(seed, name, dtype, betas) for dtype in TOLERANCE for name in CURVES]
    return assembled(seed, parts)


def curve(
    seed: int, estimator: str, dtype: str, betas: tuple[float, ...] = BETAS
) -> list[dict[str, Any]]:
    """The points of one curve as plain data."""
    model, x, y = _problem(seed)
    exact = _hidden_gradient(_at(model, "float64"), ImplicitGradient(), x.double(), y)
    net = _at(model, dtype)
    batch = x.to(next(net.parameters()).dtype)
    points = []
    for beta in betas:
        found = _hidden_gradient(net, CURVES[estimator](beta), batch, y).double()
        error = float((found - exact).norm() / exact.norm())
        points.append(asdict(Point(estimator, dtype, beta, error)))
    return points


def measurements(seed: int) -> list[Measurement]:
    """The sweep as jobs, one for each curve."""
    return [
        Measurement(
            "beta_sweep",
            f"{name}, {dtype}, {seed}",
            f"{__name__}:curve",
            (("seed", seed), ("estimator", name), ("dtype", dtype)),
        )
        for dtype in TOLERANCE
        for name in CURVES
    ]


def assembled(seed: int, curves: list[list[dict[str, Any]]]) -> Sweep:
    """The sweep of all curves."""
    return Sweep(seed, tuple(Point(**point) for found in curves for point in found))


def _problem(seed: int) -> tuple[LoopedMLP, Tensor, Tensor]:
    torch.manual_seed(seed)
    model = LoopedMLP(8, 24, 4, on_failure="ignore", max_steps=2000)
    with torch.no_grad():  # enough recurrence for the spectral bound to be active
        dict(model.named_parameters())["recurrent.raw"].mul_(30)
    return model, torch.randn(16, 8), torch.randint(0, 4, (16,))


def _at(model: LoopedMLP, dtype: str) -> LoopedMLP:
    net = copy.deepcopy(model).to(getattr(torch, dtype))
    net.tol = TOLERANCE[dtype]
    return net


def _hidden_gradient(model: LoopedMLP, gradient: GradientEstimator, x: Tensor, y: Tensor) -> Tensor:
    """All gradients but the readout's, which EP does not estimate."""
    model.gradient = gradient
    named = [p for n, p in model.named_parameters() if not n.startswith("readout")]
    grads = torch.autograd.grad(F.cross_entropy(model(x), y), named)
    return torch.cat([g.flatten() for g in grads])


def draw(sweep: Sweep, folder: Path) -> list[Path]:
    """Write the figure as SVG and PNG and return their paths."""
    need_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, dtype in zip(axes, TOLERANCE, strict=True):
        for name in CURVES:
            curve = sweep.curve(name, dtype)
            axis.loglog([p.beta for p in curve], [max(p.error, 1e-17) for p in curve], label=name)
        for order, style, top in _guides(sweep):
            betas = [1e-3, 1e-1]
            axis.loglog(betas, [top * (b / 1e-1) ** order for b in betas], style, lw=0.9)
            label = "O(β²)" if order == 2 else "O(β)"
            axis.annotate(label, (9e-4, top * 1e-2**order), ha="right", va="center")
        axis.set(title=dtype, xlabel="β (in units of the normalised cotangent)")
        axis.grid(True, which="major", alpha=0.3)
        axis.axhline(torch.finfo(getattr(torch, dtype)).eps, color="0.6", ls=":", lw=1)
        axis.annotate("rounding of one number", (1.1e-7, _eps(dtype) * 1.5), color="0.4")
    axes[0].set_ylabel("relative error of the gradient")
    axes[1].legend(loc="upper left", fontsize=8)
    figure.suptitle("Gradient error of equilibrium propagation against the implicit gradient")
    return [save(figure, folder / f"beta_sweep.{kind}") for kind in ("svg", "png")]


def _guides(sweep: Sweep) -> Iterator[tuple[int, str, float]]:
    for order, name in ((1, "one-sided"), (2, "centred")):
        near = min(sweep.curve(name, "float64"), key=lambda p: abs(p.beta - 0.1))
        yield order, "k--", 2.2 * near.error


def _eps(dtype: str) -> float:
    return torch.finfo(getattr(torch, dtype)).eps
