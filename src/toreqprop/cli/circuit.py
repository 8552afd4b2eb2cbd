"""``toreqprop circuit``: networks as circuits, simulated and trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import Progress

from toreqprop.atomic import write_atomically
from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from torch import Tensor

    from toreqprop.hardware import Ngspice
    from toreqprop.models import EquilibriumModel

app = typer.Typer(
    no_args_is_help=True,
    help="Export networks as SPICE netlists, simulate them, train resistive networks.\n\n"
    "Example: toreqprop circuit train digits --output net",
)

Folder = Annotated[Path, typer.Argument(help="Folder of a checkpoint.")]
TaskName = Annotated[
    str | None, typer.Option("--task", help="Task whose test samples are the inputs; else zero.")
]
Samples = Annotated[int, typer.Option(help="How many samples.", min=1)]
NeuronName = Annotated[
    Literal["behavioural", "pair"], typer.Option(help="tanh as a formula, or a transistor pair.")
]
InputsName = Annotated[
    Literal["crossbar", "norton"], typer.Option(help="Draw every input, or one current per node.")
]
Seed = Annotated[int, typer.Option(help="Seed of data and weights.")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.command()
def export(
    folder: Folder,
    output: Annotated[Path, typer.Option(help="Netlist to write.")] = Path("network.cir"),
    task: TaskName = None,
    samples: Samples = 1,
    neuron: NeuronName = "behavioural",
    inputs: InputsName = "crossbar",
    seed: Seed = 42,
    as_json: AsJson = False,
) -> None:
    """Write a trained network as a netlist that SPICE opens, one point of a sweep per sample.

    \b
    Examples:
      toreqprop circuit export net --output net.cir
      toreqprop circuit export net --task digits --samples 5 --inputs norton
    """
    from toreqprop.hardware import netlist

    model = _network(folder)
    x, _ = _inputs(model, task, samples, seed)
    circuit = netlist(model, x, neuron=neuron, inputs=inputs)
    text = circuit.operating_points()
    write_atomically(output, text)
    facts = {
        "netlist": str(output),
        "title": circuit.title,
        "lines": text.count("\n"),
        "points": circuit.points,
        "nodes": {name: len(nodes) for name, nodes in circuit.probes.items()},
        "rc_seconds": circuit.time_constant,
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    Console().print(
        f"{circuit.title}: {facts['lines']} lines in {output}; run it with `ngspice {output}`.",
        highlight=False, soft_wrap=True,
    )  # fmt: skip


@app.command()
def simulate(
    folder: Folder,
    task: TaskName = None,
    samples: Samples = 20,
    neuron: NeuronName = "behavioural",
    inputs: InputsName = "norton",
    settling: Annotated[
        Path | None, typer.Option(help="Picture of how a resistive network settles.")
    ] = None,
    voltages: Annotated[
        Path | None, typer.Option(help="Picture of its voltages, free and nudged.")
    ] = None,
    seed: Seed = 42,
    as_json: AsJson = False,
) -> None:
    """Simulate a trained network in ngspice and compare every state with the library's.

    \b
    Examples:
      toreqprop circuit simulate net --task digits
      toreqprop circuit simulate net --task digits --settling settling.svg
    """
    import torch

    from toreqprop.hardware import Ngspice
    from toreqprop.plots.style import check_format, need_matplotlib

    for path in (settling, voltages):
        if path is not None:
            check_format(path)
            need_matplotlib()
    model, console = _network(folder), Console(stderr=True)
    x, y = _inputs(model, task, samples, seed)
    spice = Ngspice(neuron=neuron, inputs=inputs)
    spice.path()
    with Progress(console=console, transient=True) as progress, torch.no_grad():
        bar = progress.add_task("simulating", total=2)
        model.solver = model.solver.limited(1e-9, 5000)
        expected = model.equilibrium(x).state
        progress.advance(bar)
        model.solver = spice
        found = model.equilibrium(x).state
        progress.advance(bar)
        output = model.readout_from(found)
    apart = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
    facts: dict[str, Any] = {
        "simulator": spice.version(),
        "samples": len(x),
        "largest_difference": apart,
    }
    if y is not None:
        facts["accuracy"] = float((output.argmax(1) == y).double().mean())
    _draw(model, x, y, spice, settling, voltages)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    right = "" if y is None else f", {facts['accuracy']:.1%} right"
    Console().print(
        f"{facts['simulator']}, {len(x)} samples: every state within {apart:.1e} of the "
        f"library's{right}.", highlight=False, soft_wrap=True,
    )  # fmt: skip


@app.command()
def train(
    task: Annotated[str, typer.Argument(help="Task to learn.")] = "digits",
    hidden: Annotated[int, typer.Option(help="Hidden nodes.", min=1)] = 32,
    epochs: Annotated[int, typer.Option(help="Epochs.", min=1)] = 10,
    learning_rate: Annotated[float, typer.Option(help="Step size of the optimizer.")] = 0.1,
    batch_size: Annotated[int, typer.Option(help="Samples per step.", min=1)] = 50,
    simulator: Annotated[
        Literal["pytorch", "ngspice"], typer.Option(help="Where every voltage comes from.")
    ] = "pytorch",
    mismatch: Annotated[
        float, typer.Option(help="Spread of components: 1 is 40/70/20 % and 50 mV.", min=0)
    ] = 0.0,
    output: Annotated[Path | None, typer.Option(help="Folder for the checkpoint.")] = None,
    seed: Seed = 42,
    as_json: AsJson = False,
) -> None:
    """Train a resistive network by EP on its own voltages, in PyTorch or inside ngspice.

    \b
    Examples:
      toreqprop circuit train digits --output net
      toreqprop circuit train digits --simulator ngspice --epochs 1
      toreqprop circuit train digits --mismatch 1
    """
    import torch

    from toreqprop import checkpoint
    from toreqprop.bench.circuits import digits
    from toreqprop.hardware import Newton, Ngspice
    from toreqprop.models import ResistiveMLP
    from toreqprop.tasks import get
    from toreqprop.training import TrainingConfig, accuracy, fit

    if simulator == "ngspice":
        Ngspice().path()
    data = get(task).load(seed, False)
    x, test_x = (torch.from_numpy(part).double() for part in (data.train_x, data.test_x))
    y, test_y = torch.from_numpy(data.train_y), torch.from_numpy(data.test_y)
    torch.manual_seed(seed)
    model = ResistiveMLP(
        [data.features, hidden, data.classes],
        device=digits.scaled(mismatch, seed) if mismatch else None,
        solver=Ngspice() if simulator == "ngspice" else Newton(),
    ).double()
    config = TrainingConfig(
        epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, seed=seed
    )
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(f"training in {simulator}", total=epochs)
        history = fit(model, x, y, config, on_epoch=lambda epoch: progress.advance(bar))
    right = accuracy(model, test_x, test_y)
    facts = {
        "task": task,
        "sizes": list(model.sizes),
        "simulator": simulator,
        "mismatch": mismatch,
        "epochs": epochs,
        "loss": history.epochs[-1].loss,
        "test_accuracy": right,
        "chance": data.chance,
        "seconds": history.seconds,
    }
    if output is not None:
        model.solver = Newton()  # a checkpoint names no program to run
        checkpoint.save(output, checkpoint.Checkpoint(model, about={"circuit": facts}))
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    Console().print(
        f"{'-'.join(map(str, model.sizes))} on {task}, {simulator}: test accuracy {right:.1%} "
        f"(chance {data.chance:.1%}) after {history.seconds:.0f} s.",
        highlight=False, soft_wrap=True,
    )  # fmt: skip


def _network(folder: Path) -> EquilibriumModel:
    from toreqprop import checkpoint
    from toreqprop.models import EquilibriumModel

    model = checkpoint.load(folder).model
    if not isinstance(model, EquilibriumModel):
        raise InvalidInputError(
            f"The network in {folder} does not settle, so it has no circuit: train a looped, "
            "hopfield or resistive one."
        )
    return model.double()


def _inputs(
    model: EquilibriumModel, task: str | None, samples: int, seed: int
) -> tuple[Tensor, Tensor | None]:
    """Test samples of a task, or zeros in the width of the network's first weights."""
    import torch

    from toreqprop.models import ResistiveMLP
    from toreqprop.tasks import get

    if task is None:
        first = next(model.parameters())
        width = model.sizes[0] if isinstance(model, ResistiveMLP) else first.shape[1]
        return first.new_zeros(1, width), None
    data = get(task).load(seed, False)
    x, y = torch.from_numpy(data.test_x[:samples]), torch.from_numpy(data.test_y[:samples])
    return x.double(), y


def _draw(
    model: EquilibriumModel,
    x: Tensor,
    y: Tensor | None,
    spice: Ngspice,
    settling: Path | None,
    voltages: Path | None,
) -> None:
    from toreqprop import plots
    from toreqprop.bench.circuits import pictures
    from toreqprop.hardware import Newton
    from toreqprop.models import ResistiveMLP
    from toreqprop.plots import circuits

    if settling is None and voltages is None:
        return
    if not isinstance(model, ResistiveMLP):
        raise InvalidInputError("Pictures of voltages are of resistive networks: leave them out.")
    model.solver = Newton(tol=1e-10)
    if settling is not None:
        data = pictures.settling_data(model, x[:1], simulator=spice)
        plots.save(circuits.settling_figure(data), settling)
    if voltages is not None:
        if y is None:
            raise InvalidInputError("A nudge needs a label: give --task.")
        plots.save(circuits.voltages_figure(pictures.voltages_data(model, x[:1], y[:1])), voltages)
