"""``toreqprop speed``: a training step's time next to backpropagation's."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from toreqprop.atomic import write_atomically

if TYPE_CHECKING:
    from toreqprop.bench import scaling as scaling_bench
    from toreqprop.bench import speed as bench


def speed(
    against: Annotated[
        str | None, typer.Option(help='"torchdeq": also measure it, where it is installed.')
    ] = None,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="Measure growth with size instead, with figure.")
    ] = False,
    layered: Annotated[
        bool, typer.Option("--layered", help="Measure networks with couplings at their bounds.")
    ] = False,
    radius: Annotated[
        float | None, typer.Option(help="Bound on the norm: 0.05, or 0.978 with --layered.")
    ] = None,
    tol: Annotated[
        float | None, typer.Option(help="Relative residual: 1e-3, or 1e-2 with --layered.")
    ] = None,
    kernel: Annotated[str, typer.Option(help="auto, numba, torch or numpy.")] = "auto",
    rounds: Annotated[int, typer.Option(help="Measured steps of each contender.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 42,
    output: Annotated[Path, typer.Option(help="Folder for JSON and figure.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Time one training step (Adam, cross-entropy) against backpropagation, side by side.

    How accurate networks with this radius and gain are is in the benchmark's rows called "fast".

    \b
    Examples:
      toreqprop speed --against torchdeq
      toreqprop speed --scaling
      toreqprop speed --layered
    """
    from toreqprop.bench import scaling as scaling_bench
    from toreqprop.bench import speed as bench
    from toreqprop.bench.deq_baseline import deq_available
    from toreqprop.plots.style import need_matplotlib

    if against not in (None, "torchdeq"):
        raise typer.BadParameter(f'--against knows "torchdeq", not {against!r}.')
    if against and not deq_available():
        raise typer.BadParameter("torchdeq is not installed: pip install torchdeq.")
    if scaling:
        need_matplotlib()  # before anything is measured
    if layered and (scaling or against):
        raise typer.BadParameter("--layered goes with neither --scaling nor --against.")
    if layered:
        _layered(radius, tol, rounds, seed, output, as_json)
        return
    setup = bench.Setup(
        radius=bench.Setup.radius if radius is None else radius,
        tol=bench.Setup.tol if tol is None else tol,
        kernel=kernel,  # type: ignore[arg-type]
        rounds=rounds,
        seed=seed,
    )
    output.mkdir(parents=True, exist_ok=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("training all contenders in turn", total=None)
        if scaling:
            curves = scaling_bench.measure(setup, on_point=lambda: progress.advance(bar))
        else:
            table = bench.measure(
                setup, against_torchdeq=bool(against), on_round=lambda: progress.advance(bar)
            )
    if scaling:
        paths = scaling_bench.draw(curves, output)
        plain = curves.as_dict()
    else:
        paths = []
        plain = table.as_dict()
    path = output / ("speed_scaling.json" if scaling else "speed.json")
    path.write_text(json.dumps(plain, indent=2, ensure_ascii=False) + "\n")
    if as_json:
        typer.echo(json.dumps(plain, indent=2, ensure_ascii=False))
        return
    console = Console()
    console.print(_scaling_table(curves) if scaling else _speed_table(table))
    console.print("wrote " + ", ".join(str(p) for p in [path, *paths]), highlight=False)


def _layered(
    radius: float | None, tol: float | None, rounds: int, seed: int, output: Path, as_json: bool
) -> None:
    """Measure stacks, and print and keep the table."""
    from toreqprop.bench import layered_speed as layered_bench

    usual = layered_bench.Setup(rounds=rounds, seed=seed)
    setup = replace(
        usual,
        radius=usual.radius if radius is None else radius,
        tol=usual.tol if tol is None else tol,
    )
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("training all contenders in turn", total=None)
        rows = layered_bench.measure(setup, on_round=lambda: progress.advance(bar))
    plain = {"conditions": asdict(setup), "rows": [row.as_dict() for row in rows]}
    path = output / "speed_layered.json"
    write_atomically(path, json.dumps(plain, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(plain, indent=2))
        return
    shown = Table(
        "batch", "layers", "feedback", "backprop", "TorEqProp", "against fused Adam",
        "norm/radius", "passes", "worst cosine",
        title="step time over backpropagation's (best; in brackets median processor time)",
        caption=f"784 inputs, radius {setup.radius:g}, tol {setup.tol:g}, one thread",
    )  # fmt: skip
    for row in rows:
        shown.add_row(
            str(row.network.batch),
            f"{row.network.layers} x {row.network.width}" + ", looped" * row.network.loop,
            f"{row.network.feedback:g}", f"{row.backprop_ms:.2f} ms",
            f"{row.ratio:.2f} ({row.cpu_ratio:.2f})", f"{row.fused_ratio:.2f}",
            f"{row.reach:.3f}", f"{row.free:.1f} + {row.nudged:.1f}", f"{row.cosine:.4f}",
        )  # fmt: skip
    console = Console()
    console.print(shown)
    console.print(f"wrote {path}", highlight=False)


def _speed_table(table: bench.SpeedTable) -> Table:
    from toreqprop.bench import speed as bench

    names = [t.name for t in table.rows[0].timings]
    shown = Table(
        "batch, in, hidden", "target", *names, "steps", "residual", "of peak",
        title="step time over backpropagation's (best; in brackets median processor time)",
        caption=f"matrix-product peak {table.peak_gflops:.0f} GFLOP/s, "
        f"{table.conditions['threads']} thread(s), radius {table.conditions['radius']:g}, "
        f"tol {table.conditions['tol']:g}",
    )  # fmt: skip
    for row in table.rows:
        ours = row.of(bench.OURS)
        shown.add_row(
            f"{row.batch}, {row.inputs}, {row.hidden}",
            "" if row.target is None else f"{row.target:g}",
            *(
                f"{t.best_ms:.2f} ms"
                if t.name == bench.BASELINE
                else f"{t.ratio:.2f} ({t.cpu_ratio:.2f})"
                for t in row.timings
            ),
            " + ".join(f"{v:.1f}" for v in ours.steps.values()),
            f"{max(ours.residual.values()):.1e}",
            f"{ours.peak_fraction:.0%}",
        )
    return shown


def _scaling_table(curves: scaling_bench.Scaling) -> Table:
    shown = Table(
        "varied", "value", "TorEqProp ms", "backprop ms", "ratio", "steps",
        title="how a training step grows",
    )  # fmt: skip
    for point in curves.points:
        shown.add_row(
            point.varied, f"{point.value:g}", f"{point.milliseconds:.2f}",
            f"{point.backprop_milliseconds:.2f}", f"{point.ratio:.2f}", f"{point.steps:.1f}",
        )  # fmt: skip
    return shown
