"""``toreqprop export``: a trained network for other programs."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from torch import Tensor

    from toreqprop.models import EquilibriumModel

AGREEMENT = 1e-5
"""How far outputs of the exported network may be from the library's."""


class Format(str, Enum):
    """What another program reads."""

    onnx = "onnx"
    program = "program"
    nir = "nir"


def export(
    network: Annotated[
        str, typer.Argument(help="A checkpoint's folder, or a name of the zoo (`toreqprop zoo`).")
    ],
    output: Annotated[Path, typer.Option(help="File to write.")],
    form: Annotated[
        Format,
        typer.Option("--format", help="onnx, program (torch.export) or nir (linear neurons)."),
    ] = Format.onnx,
    tol: Annotated[
        float, typer.Option(help="Relative residual at which it stops; 0 takes all steps.", min=0)
    ] = 1e-6,
    max_steps: Annotated[int, typer.Option(help="Most steps of a relaxation.", min=1)] = 500,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Write a network's free phase for ONNX runtimes, torch alone, or NIR, and check what it gives.

    A checkpoint of `toreqprop train` takes raw rows. The exported file is read back and run on
    random inputs; exit code 1 where its outputs are further than 1e-5 from the library's.

    \b
    Examples:
      toreqprop export flowers --output flowers.onnx
      toreqprop export digits --output digits.onnx --tol 0 --max-steps 30
      toreqprop export flowers --format program --output flowers.pt2
    """
    import torch

    from toreqprop import exporting

    model, example, scaling = _network(network)
    facts: dict[str, Any] = {"network": network, "format": form.value, "file": str(output)}
    output.parent.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {"tol": tol, "max_steps": max_steps, "scaling": scaling}
    if form is Format.nir:
        graph = exporting.to_nir(model)
        import nir

        nir.write(output, graph)
        facts |= {"nodes": len(graph.nodes), "difference": None}
    else:
        with torch.no_grad():
            phase = exporting.FreePhase(model, example, **settings)
            wanted = phase(example)
        if form is Format.onnx:
            import onnx

            onnx.save(exporting.to_onnx(phase), output)
            found = _run_onnx(output, example)
        else:
            torch.export.save(exporting.to_program(phase), output)
            with torch.no_grad():
                found = torch.export.load(output).module()(example)
        facts["difference"] = None if found is None else float((found - wanted).abs().max())
    facts["bytes"] = output.stat().st_size
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        _show(facts)
    if facts["difference"] is not None and not facts["difference"] <= AGREEMENT:
        raise typer.Exit(1)


def _network(name: str) -> tuple[EquilibriumModel, Tensor, tuple[Tensor, Tensor] | None]:
    """The model, two inputs, and the scaling of its features where a training kept one."""
    import torch

    from toreqprop import checkpoint as checkpoints
    from toreqprop.cli.predictor import restore
    from toreqprop.exporting.inputs import random_inputs
    from toreqprop.models import EquilibriumModel
    from toreqprop.zoo import RECIPES, load

    if Path(name).name == name and name in RECIPES and not checkpoints.exists(name):
        shipped = load(name)
        return shipped, random_inputs(shipped, 4), None
    found = checkpoints.load(name)
    model = found.model.eval()
    if not isinstance(model, EquilibriumModel):
        raise InvalidInputError(
            f"The network in {name} does not settle: load it and use torch.onnx.export."
        )
    scaling = None
    if "predictor" in found.about:
        known = restore(found).scaling
        kept = [torch.from_numpy(v).float().reshape(1, -1) for v in (known.mean, known.scale)]
        wide = [model.arrange(v.expand(1, restore(found).features)) for v in kept]
        scaling = (wide[0], wide[1])
    return model, random_inputs(model, 4), scaling


def _run_onnx(path: Path, example: Tensor) -> Tensor | None:
    """What onnxruntime gives; None where it is not installed."""
    from importlib.util import find_spec

    import torch

    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    return torch.from_numpy(session.run(None, {"x": example.numpy()})[0])


def _show(facts: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    checked = "not checked by running it"
    if facts["difference"] is not None:
        checked = f"outputs within {facts['difference']:.1e} of the library's"
    console.print(
        f"{facts['network']}: {facts['format']}, {facts['bytes'] / 1000:.1f} kB in "
        f"{facts['file']}; {checked}."
    )
