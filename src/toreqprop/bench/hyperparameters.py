"""The hyperparameters of every task and model, read from one file with the search behind them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from toreqprop import checks
from toreqprop.atomic import write_atomically
from toreqprop.bench.rows import WITH_MORE_DATA, base
from toreqprop.errors import InvalidInputError
from toreqprop.reading import read_regular
from toreqprop.training import TrainingConfig

ModelName = Literal["backprop", "ep"]
MODELS: tuple[ModelName, ...] = get_args(ModelName)

FILE = "hyperparameters.json"
LIMIT = 2**26
"""Bytes of such a file that are read."""


@dataclass(frozen=True)
class ModelSettings:
    """What may differ between the models of a task; ``beta`` and ``radius`` are EP's alone.

    ``gain`` is that of the readout.

    ``layers`` (hidden ones) and ``feedback`` are those of a `HopfieldMLP`, None for the looped
    model.
    """

    learning_rate: float
    weight_decay: float
    schedule: Literal["constant", "cosine"]
    gain: float = 1.0
    beta: float | None = None
    radius: float | None = None
    layers: int | None = None
    feedback: float | None = None


@dataclass(frozen=True)
class TaskSettings:
    """What the models of a task share, and the settings of each."""

    hidden: int
    epochs: int
    batch_size: int
    backprop: ModelSettings
    ep: ModelSettings

    def model(self, name: ModelName) -> ModelSettings:
        return self.backprop if name == "backprop" else self.ep

    def training(self, name: ModelName, seed: int) -> TrainingConfig:
        """How that model is trained; AdamW, which without weight decay is Adam."""
        settings = self.model(name)
        return TrainingConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            schedule=settings.schedule,
            optimizer="adamw",
            seed=seed,
        )


def variant(task: str, full: bool) -> str:
    """The entry of the file that serves a task: the image tasks have one for all their data."""
    return f"{task}-full" if full and task in WITH_MORE_DATA else task


def read(path: Path | None = None) -> dict[str, Any]:
    """The file's content: by default the one that ships with the library."""
    if path is not None:
        try:
            found = json.loads(read_regular(Path(path), LIMIT))
        except OSError as error:
            raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from None
        except InvalidInputError:
            raise
        except (ValueError, RecursionError):
            raise InvalidInputError(
                f"{path} is not JSON: give a file that `toreqprop tune` wrote."
            ) from None
        if not isinstance(found, dict) or not isinstance(found.get("tasks"), dict):
            raise InvalidInputError(
                f"{path} holds no hyperparameters: give a file that `toreqprop tune` wrote."
            )
        return found
    shipped = resources.files("toreqprop.bench").joinpath(FILE)
    return json.loads(shipped.read_text(encoding="utf-8"))


def write(path: Path, content: dict[str, Any]) -> None:
    """Write the file so that people can read it: innermost objects on one line each."""
    write_atomically(path, _layout(content) + "\n")


def _layout(value: Any, indent: str = "") -> str:
    inner = indent + "  "
    if isinstance(value, dict) and any(isinstance(v, dict) or _is_table(v) for v in value.values()):
        parts = [f"{inner}{json.dumps(k)}: {_layout(v, inner)}" for k, v in value.items()]
    elif _is_table(value):
        return "[\n" + ",\n".join(f"{inner}{json.dumps(v)}" for v in value) + f"\n{indent}]"
    else:
        return json.dumps(value)
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(v, dict) for v in value)


def settings(task: str, full: bool, content: dict[str, Any] | None = None) -> TaskSettings:
    """The settings of a row; its baseline and how long both train are those of its base row.

    Raises:
        InvalidInputError: the file has no entry for it.
    """
    tasks = (read() if content is None else content)["tasks"]
    name, shared = variant(task, full), variant(base(task), full)
    for needed in (name, shared):
        if needed not in tasks:
            raise InvalidInputError(
                f"There are no hyperparameters for {needed!r}: add them with `toreqprop tune "
                f"{task}`."
            )
    entry = tasks[shared]
    try:
        found = TaskSettings(
            hidden=checks.whole_number("hidden", entry["hidden"], 1),
            epochs=checks.whole_number("epochs", entry["epochs"], 1),
            batch_size=checks.whole_number("batch_size", entry["batch_size"], 1),
            backprop=ModelSettings(**entry["backprop"]),
            ep=ModelSettings(**tasks[name]["ep"]),
        )
        for model in MODELS:
            found.training(model, 0)
        for setting in ("beta", "radius"):
            checks.number(setting, getattr(found.ep, setting), 0, above=True)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"The hyperparameters of {name!r} cannot be used: {error}"
        ) from None
    except (KeyError, TypeError, AttributeError):
        raise InvalidInputError(
            f"The hyperparameters of {name!r} are not complete: find them with `toreqprop tune "
            f"{task}`."
        ) from None
    return found


def searched(row: str) -> tuple[ModelName, ...]:
    """The models whose settings are a row's own."""
    return MODELS if base(row) == row else ("ep",)
