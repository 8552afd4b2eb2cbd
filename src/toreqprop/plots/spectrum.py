"""The spectrum of the recurrent matrix while a network learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies import System
from toreqprop.energies.system import neurons
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.gradients.vector_field import jacobian_products
from toreqprop.models import EquilibriumModel
from toreqprop.plots.arguments import check_model
from toreqprop.plots.style import BLUE, GREY, VERMILION, finish, new_figure, plain_style

LARGEST = 2048
"""Neurons up to which a spectrum is computed: a dense matrix of that size."""


@torch.no_grad()
def coupling_matrix(model: EquilibriumModel, x: Tensor) -> Tensor:
    """``U = ∂u/∂s`` between all neurons at the equilibrium of one input, shape (n, n).

    For a `LoopedMLP` this is ``W_rec``, whatever the input.
    """
    check_model(model)
    checks.tensor("x", x)
    model.check_input(x[:1])
    params = model.system_parameters()
    state = model.equilibrium(x[:1]).state
    count = neurons(state)
    if count > LARGEST:
        raise UnsupportedModelError(
            f"The spectrum of {count} neurons is a matrix too large: at most {LARGEST}."
        )
    many = tuple(s.expand(count, *s.shape[1:]).contiguous() for s in state)
    system = System.bind(model.field, x[:1].expand(count, *x.shape[1:]), params)
    forward, _ = jacobian_products(system, many)
    parts = torch.eye(count, dtype=x.dtype).split([s[0].numel() for s in state], 1)
    basis = tuple(p.reshape(s.shape) for p, s in zip(parts, many, strict=True))
    return torch.cat([v.flatten(1) for v in forward(basis)], 1).mT


@dataclass
class SpectrumRecorder:
    """Pass it to ``fit(on_step=…)``: eigenvalues of `coupling_matrix` every so many steps.

    Real eigenvalues where the matrix is symmetric, moduli where it is not. ``rows`` holds
    ``{"step", "eigenvalues"}``, ascending.
    """

    x: Tensor
    every: int = 10
    rows: list[dict[str, Any]] = field(default_factory=list)
    step: int = 0

    def __post_init__(self) -> None:
        checks.tensor("x", self.x)
        checks.whole_number("every", self.every, 1)

    def __call__(self, model: nn.Module) -> None:
        if not isinstance(model, EquilibriumModel):
            raise UnsupportedModelError(
                f"{type(model).__name__} has no recurrent matrix: use an equilibrium model."
            )
        if self.step % self.every == 0:
            self.rows.append({"step": self.step, "eigenvalues": _eigenvalues(model, self.x)})
        self.step += 1


def _eigenvalues(model: EquilibriumModel, x: Tensor) -> list[float]:
    matrix = coupling_matrix(model, x).double()
    if torch.allclose(matrix, matrix.mT, atol=1e-6):
        return [float(v) for v in torch.linalg.eigvalsh(0.5 * (matrix + matrix.mT))]
    return sorted(float(v) for v in torch.linalg.eigvals(matrix).abs())


def spectrum(
    runs: SpectrumRecorder | Sequence[Mapping[str, Any]] | Mapping[str, Any],
    *,
    radius: float | None = None,
) -> Any:
    """Draw how eigenvalues spread during training: every quantile band, and the extremes.

    ``runs`` is a recorder, its rows, or several of either by name, one panel each; ``radius``
    marks the bound that was asked for.
    """
    named = runs if isinstance(runs, Mapping) else {"": runs}
    if not named:
        raise InvalidInputError("There is no spectrum to draw: give a SpectrumRecorder.")
    if radius is not None:
        checks.number("radius", radius, 0, above=True)
    panels = {name: spectrum_rows(run) for name, run in named.items()}
    with plain_style():
        width = 4.6 if len(panels) == 1 else 8.4
        figure, axes = new_figure(len(panels), width=width, share_y=True)
        for axis, (name, rows) in zip(axes, panels.items(), strict=True):
            _draw_panel(axis, rows, radius)
            axis.set_title(name)
            finish(axis, "training step", "", legend=False, counts=True)
        axes[0].set_ylabel("eigenvalues of the recurrent matrix")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def spectrum_rows(run: SpectrumRecorder | Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of a recorder or the rows themselves; refuses to draw none."""
    rows = run.rows if isinstance(run, SpectrumRecorder) else run
    if not isinstance(rows, Sequence) or not all(
        isinstance(row, Mapping) and {"step", "eigenvalues"} <= set(row) for row in rows
    ):
        raise InvalidInputError("A run must be a SpectrumRecorder or its rows.")
    rows = list(rows)
    if not rows:
        raise InvalidInputError("There is no spectrum to draw: train with fit(on_step=recorder).")
    return rows


def _draw_panel(axes: Any, rows: Sequence[Mapping[str, Any]], radius: float | None) -> None:
    steps = [row["step"] for row in rows]
    values = torch.tensor([row["eigenvalues"] for row in rows], dtype=torch.float64)
    shares = torch.tensor([0.0, 0.1, 0.25, 0.75, 0.9, 1.0], dtype=torch.float64)
    bands = torch.quantile(values, shares, dim=1).tolist()
    for outer, (share, alpha) in enumerate((("all", 0.15), ("80 % of them", 0.25), ("50 %", 0.45))):
        axes.fill_between(
            steps, bands[outer], bands[5 - outer], color=BLUE, alpha=alpha, lw=0, label=share
        )
    for edge in (0, 5):
        axes.plot(steps, bands[edge], color=BLUE, lw=1.2)
    below = float(values.min()) < 0
    if radius is not None:
        for k, sign in enumerate((1, -1) if below else (1,)):
            label = f"±{radius:g}, the bound" if k == 0 else None
            axes.axhline(sign * radius, color=VERMILION, ls="--", lw=1.1, label=label)
    for k, sign in enumerate((1, -1) if below else (1,)):
        label = "±1, contraction ends" if k == 0 else None
        axes.axhline(sign, color=GREY, ls=":", lw=1.1, label=label)
