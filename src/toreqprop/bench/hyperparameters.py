"""The settings of every row, read from one file that also has the search behind them."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from toreqprop import checks
from toreqprop.atomic import write_atomically
from toreqprop.bench.rows import Row, row
from toreqprop.bench.settings import MODELS, ModelName, ModelSettings, TaskSettings
from toreqprop.errors import InvalidInputError
from toreqprop.reading import read_regular

__all__ = ["FILE", "MODELS", "ModelName", "ModelSettings", "TaskSettings", "read", "settings"]

FILE = "hyperparameters.json"
LIMIT = 2**26
"""Bytes of such a file that are read."""

START = ModelSettings(learning_rate=5e-3, weight_decay=0.1, gain=2.0)
"""The first trial of a search, for every arm alike."""


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
        if not isinstance(found, dict) or not isinstance(found.get("rows"), dict):
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


def searched(of: Row) -> tuple[ModelName, ...]:
    """The arms whose settings are searched: the implicit gradient has EP's."""
    return ("ep", "backprop") if of.depth_is_twin else ("ep", "backprop", "shallow")


def starting(of: Row) -> TaskSettings:
    """What a search begins with."""
    return TaskSettings(
        task=of.task,
        network=of.network,
        options=of.options,
        layers=of.layers,
        twin=of.twin,
        hidden=of.hidden,
        epochs=of.epochs,
        batch_size=of.batch_size,
        ep=replace(START, beta=of.beta, tol=of.tol),
        backprop=START,
        shallow=None if of.depth_is_twin else START,
    )


def has_settings(name: str, content: dict[str, Any] | None = None) -> bool:
    """Whether a row was tuned."""
    return name in (read() if content is None else content)["rows"]


def settings(name: str, full: bool = False, content: dict[str, Any] | None = None) -> TaskSettings:
    """The settings of a row; with ``full``, of the one with all images of the task.

    Raises:
        InvalidInputError: the file has no entry for it, or one that cannot be used.
    """
    of = row(name, full)
    rows = (read() if content is None else content)["rows"]
    if of.name not in rows:
        raise InvalidInputError(
            f"There are no hyperparameters for {of.name!r}: find them with `toreqprop tune "
            f"{of.name}`."
        )
    try:
        arms = {arm: ModelSettings(**rows[of.name][arm]) for arm in searched(of)}
        found = replace(starting(of), **arms)  # type: ignore[arg-type]
        for arm in found.arms:
            found.training(arm, 0)
            checks.number("gain", found.model(arm).gain, 0, above=True)
        for name in ("beta", "tol"):
            checks.number(name, getattr(found.ep, name), 0, above=True)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"The hyperparameters of {of.name!r} cannot be used: {error}"
        ) from None
    except (KeyError, TypeError, AttributeError):
        raise InvalidInputError(
            f"The hyperparameters of {of.name!r} are not complete: find them with `toreqprop tune "
            f"{of.name}`."
        ) from None
    return found
