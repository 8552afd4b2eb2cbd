"""``toreqprop certify``: is the gradient right?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from toreqprop.certificate import Certificate
    from toreqprop.hardware.chip_certificate import ChipCertificate


def certify(
    task: Annotated[str, typer.Option(help="Task the batch comes from.")] = "digits",
    gradient: Annotated[str, typer.Option(help="Estimator; see `toreqprop estimators`.")] = (
        "centered"
    ),
    beta: Annotated[float | None, typer.Option(help="Strength of the nudge.")] = None,
    model: Annotated[str, typer.Option(help="A model's name (see `toreqprop info`).")] = "looped",
    hidden: Annotated[int, typer.Option(help="Hidden size.")] = 128,
    epochs: Annotated[int, typer.Option(help="Epochs to train before certifying.", min=0)] = 3,
    batch: Annotated[int, typer.Option(help="Samples in the certified batch.", min=1)] = 64,
    tol: Annotated[float | None, typer.Option(help="Relative residual of the relaxations.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Evaluations per relaxation.")] = None,
    radius: Annotated[float | None, typer.Option(help="Bound on the spectral norm.")] = None,
    bound: Annotated[
        str | None, typer.Option(help="How it is kept: tight, proven or exact.")
    ] = None,
    spectral_norm: Annotated[
        bool | None, typer.Option(help="Keep the spectral norm bounded.")
    ] = None,
    symmetric: Annotated[bool | None, typer.Option(help="Symmetric recurrent weights.")] = None,
    feedback: Annotated[
        float | None, typer.Option(help="Strength of the way back between layers.")
    ] = None,
    device: Annotated[
        Path | None, typer.Option(help="TOML file of a chip to certify it on.")
    ] = None,
    double: Annotated[bool, typer.Option("--double", help="Use float64.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Compare an estimator's gradient with the exact one, tensor by tensor.

    Trains a model briefly, then certifies one batch; what is not given is the model's own default.
    Exit code 1 if the certificate fails.

    \b
    Examples:
      toreqprop certify
      toreqprop certify --gradient one_sided --beta 0.5
      toreqprop certify --model hopfield --feedback 0.1
      toreqprop certify --model hopfield --device chip.toml --beta 0.2
    """
    import torch

    from toreqprop.certificate import certify as run_certificate
    from toreqprop.cli import networks
    from toreqprop.models import MODELS, EquilibriumModel
    from toreqprop.tasks import get
    from toreqprop.training import TrainingConfig, fit

    estimator = networks.estimator(gradient, beta)
    data = get(task).load(seed, False)
    torch.manual_seed(seed)
    options = {
        "spectral_norm": spectral_norm,
        "radius": radius,
        "bound": bound,
        "symmetric": symmetric,
        "feedback": feedback,
        "tol": tol,
        "max_steps": max_steps,
        "on_failure": "ignore",
    }
    if model not in MODELS:
        raise InvalidInputError(f"There is no model {model!r} to certify: use {', '.join(MODELS)}.")
    net = networks.build(model, data.features, hidden, data.classes, None, options)
    if not isinstance(net, EquilibriumModel):
        raise AssertionError("every model of MODELS relaxes")
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    if epochs > 0:
        fit(net, x, y, TrainingConfig(epochs=epochs, seed=seed))
    net.gradient = estimator
    if device is not None:
        net = networks.placed(net, device, beta)
    if double:
        net, x = net.double(), x.double()
    certificate = run_certificate(net, x[:batch], y[:batch])
    if as_json:
        typer.echo(json.dumps(certificate.as_dict(), indent=2))
    else:
        show(certificate)
    raise typer.Exit(0 if certificate.ok else 1)


def show(certificate: Certificate) -> None:
    """Print a certificate for people."""
    from toreqprop.hardware.chip_certificate import ChipCertificate

    console = Console()
    if isinstance(certificate, ChipCertificate):
        show_chip(certificate, console)
        return
    tensors = Table(title=f"Gradient of {certificate.estimator} against the exact gradient")
    for heading in ("tensor", "cosine", "norm ratio", ""):
        tensors.add_column(heading)
    for t in certificate.tensors:
        mark = "[green]ok[/]" if t.ok else "[red]off[/]"
        tensors.add_row(t.name, f"{t.cosine:+.6f}", f"{t.norm_ratio:.4f}", mark)
    console.print(tensors)
    phases = Table(title="Relaxations")
    for heading in ("phase", "steps", "worst residual", "moved by", "converged"):
        phases.add_column(heading)
    for p in certificate.phases:
        moved = f"{p.displacement:.1e}" if p.phase == "nudged" else ""
        phases.add_row(
            p.phase, str(p.steps), f"{p.residual:.1e}", moved, "yes" if p.converged else "no"
        )
    console.print(phases)
    lipschitz = "unknown" if certificate.lipschitz is None else f"{certificate.lipschitz:.4f}"
    console.print(
        f"contraction at the equilibria {certificate.contraction:.4f}, global Lipschitz constant "
        f"{lipschitz}, Jacobian asymmetry {certificate.asymmetry:.1e}",
        highlight=False,
    )
    for norm in certificate.norms:
        said = "[green]proven[/]" if norm.proven else "[red]not so[/]"
        console.print(f"norm of {norm.name} ≤ {norm.radius:.4f}: {said}", highlight=False)
    if certificate.backprop_cosine is not None:
        console.print(
            "smallest cosine with plain backpropagation through the same layers "
            f"{certificate.backprop_cosine:+.6f} (no part of the verdict)",
            highlight=False,
        )
    colour = "green" if certificate.ok else "red"
    console.print(f"[bold {colour}]{certificate.verdict}[/]", highlight=False)


def show_chip(certificate: ChipCertificate, console: Console) -> None:
    """Print a chip's certificate: expected gradients with intervals, and what limits them."""
    from toreqprop.hardware.chip_certificate import TensorOnChip

    tensors = Table(title=f"Mean gradient of {certificate.draws} measurements on the chip")
    for heading in ("tensor", "cosine (95 %)", "norm ratio (95 %)", "signal / noise", ""):
        tensors.add_column(heading)
    for t in certificate.tensors:
        assert isinstance(t, TensorOnChip)
        mark = "[green]ok[/]" if t.ok else "[red]off[/]"
        tensors.add_row(
            t.name,
            f"{t.cosine:+.4f} ({t.cosine_low:.4f} to {t.cosine_high:.4f})",
            f"{t.norm_ratio:.3f} ({t.ratio_low:.3f} to {t.ratio_high:.3f})",
            f"{t.snr:.3g}",
            mark,
        )
    console.print(tensors)
    for limit, error in certificate.without:
        console.print(f"error without {limit.name}: {error:.3g}", highlight=False)
    colour = "green" if certificate.ok else "red"
    console.print(f"[bold {colour}]{certificate.verdict}[/]", highlight=False)
