"""``toreqprop speed``: a training step's time next to backpropagation's, and others'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from toreqprop.atomic import write_atomically
from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from toreqprop.bench import speed as bench


def speed(
    quick: Annotated[
        bool, typer.Option("--quick", help="Three rows, few rounds; writes no file.")
    ] = False,
    kind: Annotated[
        str | None, typer.Option(help="looped, layered, convolutional or transformer rows alone.")
    ] = None,
    training: Annotated[
        bool, typer.Option("--training", help="Instead: processor time of MNIST to 98 %.")
    ] = False,
    parallel: Annotated[
        bool, typer.Option("--parallel", help="Instead: what two threads and processes gain.")
    ] = False,
    rounds: Annotated[int, typer.Option(help="Measured rounds of all contenders.")] = 60,
    turn: Annotated[int, typer.Option(help="Timed steps of a contender before the next.")] = 4,
    seconds: Annotated[float, typer.Option(help="A row's time: slow rows get fewer rounds.")] = 60,
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 42,
    output: Annotated[Path, typer.Option(help="Folder for speed.json.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Time one training step (Adam, cross-entropy) against other ways to train, side by side.

    Every row says what the time was bought with: true norm, tolerance, steps, and certificates
    between the rounds: the worst cosine of a tensor's gradient with the exact one. Others are plain
    networks of the same parameter count and of the same depth, with Adam and with fused Adam,
    convolutions computed as cleverly as ours, the same network at the default tolerance, unrolled
    for as many steps, and torchdeq where it is installed.

    \b
    Examples:
      toreqprop speed --quick
      toreqprop speed
      toreqprop speed --training
      toreqprop speed --parallel
    """
    from toreqprop.bench.speed_rows import KINDS

    if training + parallel + quick > 1:
        raise typer.BadParameter("--quick, --training and --parallel are three different things.")
    if kind is not None and kind not in KINDS:
        raise typer.BadParameter(f"--kind knows {', '.join(KINDS)}, not {kind!r}.")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("training all contenders in turn", total=None)

        def say(line: str = "training all contenders in turn") -> None:
            progress.update(bar, description=line, advance=1)

        path = output / "speed.json"
        if training:
            found, shown = _training(say)
        elif parallel:
            found, shown = _parallel(say)
        else:
            found, shown = _rows(quick, kind, rounds, turn, seconds, seed, path, say)
    if not quick:
        _keep(path, found)
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    console = Console()
    console.print(shown)
    if not quick:
        console.print(f"wrote {path}", highlight=False)


def _keep(path: Path, found: dict[str, Any]) -> None:
    """Put what was measured into the one file; rows of other kinds stay."""
    known: dict[str, Any] = {}
    if path.exists():
        try:
            known = json.loads(path.read_text())
        except ValueError as error:
            raise InvalidInputError(f"{path} cannot be read: move it away.") from error
    if "rows" in found:
        measured = {json.dumps(row["network"], sort_keys=True) for row in found["rows"]}
        kept = [
            row
            for row in known.get("rows", [])
            if "network" in row and json.dumps(row["network"], sort_keys=True) not in measured
        ]
        found = {**found, "rows": _in_order([*kept, *found["rows"]])}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps({**known, **found}, indent=1, ensure_ascii=False) + "\n")


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As `ROWS` has them; what it no longer has goes."""
    from dataclasses import asdict

    from toreqprop.bench.speed_rows import ROWS

    places = {json.dumps(asdict(n), sort_keys=True): place for place, n in enumerate(ROWS)}
    keyed = [(places.get(json.dumps(row["network"], sort_keys=True)), row) for row in rows]
    return [row for place, row in sorted((k for k in keyed if k[0] is not None), key=_place)]


def _place(keyed: tuple[int | None, dict[str, Any]]) -> int:
    return keyed[0] or 0


def _rows(
    quick: bool,
    kind: str | None,
    rounds: int,
    turn: int,
    seconds: float,
    seed: int,
    path: Path,
    say: Any,
) -> tuple[dict[str, Any], Table]:
    from toreqprop.bench import speed as bench
    from toreqprop.bench.speed_rows import QUICK, ROWS

    setup = bench.Setup(rounds=rounds, turn=turn, seconds=seconds, seed=seed)
    if quick:
        setup = bench.Setup(min(rounds, 10), turn, warmup=4, seconds=min(seconds, 10), seed=seed)
    networks = tuple(n for n in (QUICK if quick else ROWS) if kind in (None, n.kind))

    def keep(table: bench.SpeedTable) -> None:
        if not quick:
            _keep(path, table.as_dict())  # an interrupted run keeps its rows

    table = bench.measure(setup, networks, on_round=say, on_row=keep)
    return table.as_dict(), _speed_table(table)


def _speed_table(table: bench.SpeedTable) -> Table:
    from toreqprop.bench import speed as bench

    shown = Table(
        "network", "against", "its step", "processor time", "as it runs", "wall time",
        title="TorEqProp's time of a training step over that of others",
        caption=f"median processor time, best wall time, {table.conditions['threads']} thread(s), "
        "all with PyTorch's products, and as TorEqProp runs where it has faster ones; norm: of the "
        "largest coupling; steps: free + nudged; cosine and norm ratio: the worst of all "
        "certificates",
    )  # fmt: skip
    for row in table.rows:
        network, ours = row.network, row.of(bench.OURS)
        said = [
            row.label,
            f"{network.batch} samples, {network.inputs} inputs, {ours.cpu_ms:.2f} ms",
            f"norm {row.norm:.3f}, feedback {network.feedback:g}",
            f"tolerance {network.tol:g}, steps "
            + " + ".join(f"{v:.1f}" for v in row.steps.values()),
            f"cosine {row.cosine:.4f}, norm ratio {row.norm_ratio:.3f}",
            f"certificates {row.passed} of {row.certificates}",
        ]
        others = [t for t in row.timings if t.name != bench.OURS]
        for place, each in enumerate(others):
            shown.add_row(
                said[place] if place < len(said) else "", each.name, f"{each.cpu_ms:.2f} ms",
                f"{each.cpu_ratio:.2f}",
                "" if each.as_it_runs is None else f"{each.as_it_runs:.2f}",
                f"{each.ratio:.2f}",
                end_section=place == len(others) - 1,
            )  # fmt: skip
    return shown


def _training(say: Any) -> tuple[dict[str, Any], Table]:
    from toreqprop.bench import time_to

    found = time_to.study(time_to.Setup(), say)
    shown = Table(
        "network", "rate, decay", "reached", "epochs", "processor time", "validation", "test",
        title=f"until {found.setup.goal:.0%} of held-out training images are told right",
    )  # fmt: skip
    for run in found.runs:
        shown.add_row(
            run.arm, f"{run.rate:g}, {run.decay:g}", "yes" if run.reached else "no",
            str(run.epochs), f"{run.seconds:.1f} s", f"{run.validation:.2%}",
            "" if run.test is None else f"{run.test:.2%}",
        )  # fmt: skip
    return {"training": found.as_dict()}, shown


def _parallel(say: Any) -> tuple[dict[str, Any], Table]:
    from dataclasses import asdict

    from toreqprop.bench import parallel_speed

    points = parallel_speed.measure(on_point=say)
    shown = Table(
        "network", "width", "samples", "processes", "threads", "step", "speed-up",
        title="wall time of a step, which shares so many samples",
    )  # fmt: skip
    for p in points:
        shown.add_row(
            p.arm, *(str(number) for number in (p.width, p.batch, p.processes, p.threads)),
            f"{p.milliseconds:.2f} ms", f"{p.speed_up:.2f}",
        )  # fmt: skip
    return {"parallel": [asdict(p) for p in points]}, shown
