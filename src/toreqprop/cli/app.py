"""Where the commands come together; each lives in a file named after it."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from toreqprop.cli import (
    benchmark,
    certify,
    cifar,
    circuit,
    circuit_study,
    completion,
    convert,
    convolutional,
    data,
    depth,
    doctor,
    estimators,
    export,
    hardware,
    info,
    language,
    mazes,
    memory,
    norms,
    play,
    plot,
    predict,
    reward,
    scale,
    sequences,
    sklearn,
    speed,
    tables,
    train,
    tune,
    verify,
    zoo,
)
from toreqprop.errors import InvalidInputError, TorEqPropError

INTERRUPTED = 130
"""What a program that Ctrl-C has ended returns."""


class Program(TyperGroup):
    """The program; an empty argument, as of an unset variable of a shell, is refused."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for before, word in zip(["", *args], args, strict=False):
            option = word.removesuffix("=") if word.startswith("--") else before
            if not word.strip() or (word.startswith("--") and word.endswith("=")):
                what = f"{option} is" if option.startswith("-") else "An argument is"
                raise InvalidInputError(f"{what} empty: leave it out or give it a value.")
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="toreqprop",
    cls=Program,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from toreqprop import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def settings(
    threads: Annotated[
        int, typer.Option(help="Threads per process; more rarely help networks this small.", min=1)
    ] = 1,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Equilibrium propagation: train networks without backpropagation.

    Exit codes: 0 done, 1 a check failed, 2 something in the input cannot be used, 130 stopped by
    Ctrl-C.

    \b
    Examples:
      toreqprop train digits
      toreqprop --threads 2 train mnist --hidden 256
      toreqprop doctor
      toreqprop --install-completion
    """
    _use(threads)


def _use(threads: int) -> None:
    """Have PyTorch use so many threads, also where a command only loads it later, or never."""
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(threads)
    else:
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)


app.add_typer(data.app, name="data")
app.add_typer(plot.app, name="plot")
circuit.app.command()(circuit_study.study)
app.add_typer(circuit.app, name="circuit")
app.add_typer(hardware.app, name="hardware")
app.add_typer(zoo.app, name="zoo")
app.command()(train.train)
app.command()(predict.evaluate)
app.command()(predict.predict)
app.command()(certify.certify)
app.command()(export.export)
app.command()(convert.convert)
app.command()(convolutional.convolutional)
app.command()(cifar.cifar)
app.command()(depth.depth)
app.command()(norms.norms)
app.command()(mazes.mazes)
app.command()(completion.completion)
app.command()(reward.reward)
app.command()(language.language)
app.command()(sequences.sequences)
app.command()(estimators.estimators)
app.command()(estimators.sweep_beta)
app.command()(speed.speed)
app.command()(scale.scale)
app.command()(memory.memory)
app.command()(sklearn.sklearn)
app.command()(tables.tables)
app.command()(info.info)
app.command()(play.play)
app.command()(doctor.doctor)
app.command()(benchmark.benchmark)
app.command()(tune.tune)
app.command()(verify.verify)


def main() -> None:
    """Run the program; a mistake of the user's ends in one sentence and exit code 2."""
    _leave_what_is_imported_alone()
    try:
        with _narrowed(sys.argv[1:]):
            app()
    except TorEqPropError as error:
        _complain(str(error))
        sys.exit(2)
    except OSError as error:
        _complain(f"{error.filename}: {error.strerror}." if error.filename else str(error))
        sys.exit(2)
    except SystemExit as ended:
        # Typer answers Ctrl-C itself, without a word.
        if ended.code == INTERRUPTED:
            Console(stderr=True).print("Stopped.")
        raise


def _leave_what_is_imported_alone() -> None:
    """Looking for garbage in PyTorch, again whenever there was a quarter more of it and once more
    at the end, took a third of the time of a short command."""
    youngest, middle, _ = gc.get_threshold()
    gc.set_threshold(youngest, middle, 100)
    atexit.register(gc.freeze)


@contextmanager
def _narrowed(words: list[str]) -> Iterator[None]:
    """Only the command that is asked for: the options of all of them take a while to build.

    Where the first word is no command, as with --help and completion, all of them stay.
    """
    asked = words[0] if words else ""
    before = app.registered_commands, app.registered_groups
    commands = [c for c in app.registered_commands if command_name(c) == asked]
    groups = [g for g in app.registered_groups if g.name == asked]
    if commands or groups:
        app.registered_commands, app.registered_groups = commands, groups
    try:
        yield
    finally:
        app.registered_commands, app.registered_groups = before


def command_name(command: Any) -> str:
    """What a command is called on the command line."""
    return command.name or command.callback.__name__.replace("_", "-")


def _complain(sentence: str) -> None:
    console = Console(stderr=True, soft_wrap=True)
    console.print(f"[bold red]Error:[/] {escape(sentence)}", highlight=False)
