"""Checkpoints: a folder with ``checkpoint.json`` and one safetensors file, always a matching pair.

The tensors are written first, under a name made of their digest; then the JSON that names them is
replaced in one step; then older tensors are removed. A crash at any moment leaves a JSON whose
tensors are complete. The JSON holds the digest of the tensors and the tensors that of the
configuration, so neither can be exchanged, cut short or edited unnoticed.

Nothing in a checkpoint is executed: tensors are plain numbers, and classes are looked up by name
in `MODELS` and `COMPONENTS`, never imported.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise_tensors
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.atomic import write_atomically
from toreqprop.energies import ACTIVATIONS, POOLINGS
from toreqprop.energies.circuits import Diode
from toreqprop.energies.devices import STORES, Converter, Device
from toreqprop.errors import CheckpointError, InvalidInputError
from toreqprop.frugal import build_within
from toreqprop.gradients import ESTIMATORS
from toreqprop.kernels import get_kernel
from toreqprop.models import MODELS, BackpropMLP
from toreqprop.reading import read_regular
from toreqprop.solvers import CIRCUIT_SOLVERS, SOLVERS
from toreqprop.training import TrainerState

NETWORKS: dict[str, type[nn.Module]] = {**MODELS, "backprop": BackpropMLP}
"""Every model a checkpoint may hold."""

ROLES: dict[str, tuple[type, ...]] = {
    "gradient": tuple(ESTIMATORS.values()),
    "solver": (*SOLVERS.values(), *CIRCUIT_SOLVERS.values()),
    "pooling": tuple(POOLINGS.values()),
    "activation": tuple(ACTIVATIONS.values()),
    "diode": (Diode,),
    "device": (Device,),
    "weights": tuple(STORES.values()),
    "states": (Converter,),
}
"""The objects a model's configuration may hold, by the name of the setting."""

COMPONENTS: dict[str, type] = {cls.__name__: cls for kind in ROLES.values() for cls in kind}
"""The same by class name."""

FORMER: dict[str, dict[str, Any]] = {
    "looped": {"bound": "proven"},
    "hopfield": {"bound": "proven", "feedback": 1.0},
    "conv": {"bound": "proven"},
    "transformer": {"bound": "proven"},
}
"""What settings meant that a configuration does not name, as it was written before they were."""

JSON_NAME = "checkpoint.json"
_FORMAT = "toreqprop checkpoint"
_VERSION = 1
_TENSOR_NAME = re.compile(r"tensors-[0-9a-f]{16}\.safetensors")
_DTYPES = {"float32": torch.float32, "float64": torch.float64}

JSON_LIMIT, TENSOR_LIMIT = 2**26, 2**33
"""Bytes of each file that are read."""

Folder = Path | str | os.PathLike[str]


@dataclass
class Checkpoint:
    """A model, where its training stands, and what its owner needs to use it.

    ``about`` is plain data for the JSON, ``arrays`` are tensors beside the model's own.
    """

    model: nn.Module
    training: TrainerState | None = None
    about: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Tensor] = field(default_factory=dict)


def network_name(model: nn.Module) -> str:
    """The name a model is registered under."""
    for name, cls in NETWORKS.items():
        if type(model) is cls:
            return name
    raise CheckpointError(
        f"{type(model).__name__} is not a registered model: save its state_dict instead."
    )


def exists(folder: Folder) -> bool:
    """Whether there is a checkpoint in ``folder``."""
    return (checks.path("folder", folder) / JSON_NAME).is_file()


def describe(folder: Folder) -> str | None:
    """The JSON of the checkpoint in ``folder`` as it stands there, None where there is none."""
    if not exists(folder):
        return None
    return read_regular(Path(folder) / JSON_NAME, JSON_LIMIT).decode("utf-8", errors="replace")


def save(folder: Folder, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into ``folder``, in place of the one that is there.

    Raises:
        CheckpointError: the folder cannot be written, or the model or ``about`` cannot be kept.
    """
    folder = checks.path("folder", folder)
    checks.instance("checkpoint", checkpoint, Checkpoint, "use Checkpoint(model)")
    model, training = checkpoint.model, checkpoint.training
    tensors = {f"model.{name}": t for name, t in model.state_dict().items()}
    tensors |= {f"about.{name}": t for name, t in checkpoint.arrays.items()}
    configuration: dict[str, Any] = {
        "model": {
            "name": network_name(model),
            "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
            "config": encode(model.config()),  # type: ignore[operator]
        },
        "training": None,
        "about": checkpoint.about,
    }
    if training is not None:
        configuration["training"] = {
            "epoch": training.epoch,
            "groups": training.optimizer["param_groups"],
            "scheduler": training.scheduler,
        }
        tensors |= {"random.batches": training.batches, "random.noise": training.noise}
        for index, entry in training.optimizer["state"].items():
            tensors |= {f"optimizer.{index}.{name}": t for name, t in entry.items()}
    # Copies, as tied parameters share their storage and safetensors refuses that.
    plain = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    try:
        owner = _digest_of(configuration)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"A checkpoint keeps plain data and finite numbers about a model: {error}."
        ) from None
    content = serialise_tensors(plain, {"configuration": owner})
    digest = hashlib.sha256(content).hexdigest()
    name = f"tensors-{digest[:16]}.safetensors"
    head = {"format": _FORMAT, "version": _VERSION, "tensors": {"file": name, "sha256": digest}}
    try:
        write_atomically(folder / name, content)
        text = json.dumps({**head, **configuration}, indent=2, allow_nan=False)
        write_atomically(folder / JSON_NAME, text + "\n")
        for path in folder.iterdir():
            old = _TENSOR_NAME.fullmatch(path.name) and path.name != name
            left_over = path.name.startswith((".tensors-", f".{JSON_NAME}."))
            if old or left_over:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be written: {error.strerror}.") from error


def load(folder: Folder) -> Checkpoint:
    """Read a checkpoint, model built and weights in place.

    Sizes in the configuration are compared with the tensors before anything of that size is built.

    Raises:
        CheckpointError: it is missing, damaged, or does not fit together.
    """
    folder = checks.path("folder", folder)
    folder = folder.parent if folder.name == JSON_NAME else folder
    description, content = _read_pair(folder)
    try:
        tensors = parse_tensors(content)
        size = int.from_bytes(content[:8], "little")
        owner = json.loads(content[8 : 8 + size])["__metadata__"]["configuration"]
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"The tensors in {folder} cannot be read: {error}.") from None
    head = ("format", "version", "tensors")
    if owner != _digest_of({k: v for k, v in description.items() if k not in head}):
        raise CheckpointError(
            f"{JSON_NAME} in {folder} does not belong to its tensors: it was edited or exchanged."
        )
    try:
        model = _build(description["model"], _part(tensors, "model."))
        training = _training(description["training"], tensors)
        about = description["about"]
        if not isinstance(about, dict):
            raise CheckpointError("what it says about the model is not a list of names and values.")
        return Checkpoint(model, training, about, _part(tensors, "about."))
    except (
        *(KeyError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError),
        *(IndexError, AssertionError, ZeroDivisionError, MemoryError, RecursionError),
    ) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"The checkpoint in {folder} cannot be used: {reason}") from None


def encode(value: Any) -> Any:
    """Plain data of a configuration; an object becomes its class name and fields."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, dict) and "type" not in value and all(isinstance(k, str) for k in value):
        return {key: encode(item) for key, item in value.items()}
    if is_dataclass(value) and COMPONENTS.get(type(value).__name__) is type(value):
        return {
            "type": type(value).__name__,
            **{f.name: encode(getattr(value, f.name)) for f in fields(value) if f.init},
        }
    raise CheckpointError(
        f"A checkpoint cannot hold {checks.shown(value)}: it is not a registered component."
    )


def decode(value: Any) -> Any:
    """The inverse of `encode`; sequences come back as lists."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    content = {key: decode(item) for key, item in value.items() if key != "type"}
    if "type" not in value:
        return content
    if not isinstance(value["type"], str) or value["type"] not in COMPONENTS:
        raise CheckpointError(f"There is no component {value['type']!r}.")
    return COMPONENTS[value["type"]](**content)


def _check_roles(config: dict[str, Any]) -> None:
    """Refuse a component where another kind belongs: a solver as the gradient, and so on."""
    for setting, value in config.items():
        if isinstance(value, dict):
            _check_roles(value)
        kinds = ROLES.get(setting, ())
        for item in value if isinstance(value, list) else [value]:
            fits = isinstance(item, kinds) if kinds else type(item) not in COMPONENTS.values()
            if not fits and not (kinds and item is None):
                raise CheckpointError(f"its {setting} cannot be {item!r}.")


def _read_pair(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The description and the tensors it names; read again if they were replaced meanwhile."""
    description = _read_description(folder)
    for _ in range(3):
        try:
            name, digest = (description["tensors"][key] for key in ("file", "sha256"))
            if not _TENSOR_NAME.fullmatch(name):
                raise CheckpointError(f"{JSON_NAME} in {folder} names no tensor file.")
            content = read_regular(folder / name, TENSOR_LIMIT)
        except (KeyError, TypeError):
            raise CheckpointError(f"{JSON_NAME} in {folder} names no tensor file.") from None
        except InvalidInputError as error:
            raise CheckpointError(str(error)) from None
        except OSError:
            content = None
        if content is not None:
            break
        newer = _read_description(folder)
        if newer == description:
            raise CheckpointError(f"The tensors of the checkpoint in {folder} are missing: {name}.")
        description = newer
    if content is None or hashlib.sha256(content).hexdigest() != digest:
        raise CheckpointError(
            f"{name} in {folder} is damaged: it is cut short or not what {JSON_NAME} describes."
        )
    return description, content


def _read_description(folder: Path) -> dict[str, Any]:
    try:
        content = read_regular(folder / JSON_NAME, JSON_LIMIT)
    except InvalidInputError as error:
        raise CheckpointError(str(error)) from None
    except OSError:
        raise CheckpointError(
            f"There is no checkpoint in {folder}: give the folder `toreqprop train --output` wrote."
        ) from None
    try:
        found = json.loads(content, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        raise CheckpointError(f"{JSON_NAME} in {folder} is damaged: it is not JSON.") from None
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise CheckpointError(f"{JSON_NAME} in {folder} does not describe a checkpoint.")
    if found.get("version") != _VERSION:
        raise CheckpointError(
            f"The checkpoint in {folder} has version {found.get('version')!r}; this program reads "
            f"version {_VERSION}."
        )
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is beyond every number")
    return value


def _build(described: dict[str, Any], weights: dict[str, Tensor]) -> nn.Module:
    name, dtype = described["name"], described["dtype"]
    if not isinstance(name, str) or name not in NETWORKS:
        raise CheckpointError(f"there is no model {name!r}; known: {', '.join(NETWORKS)}.")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise CheckpointError(f"there is no dtype {dtype!r}.")
    config = _completed(name, decode(described["config"]))
    _check_roles(config)
    get_kernel("auto")  # made once in a process, and no part of what is limited here
    largest = max((t.numel() for t in weights.values()), default=0)
    model = build_within(lambda: NETWORKS[name](**config), largest, len(weights)).to(_DTYPES[dtype])
    for key, tensor in model.state_dict().items():
        if key in weights and weights[key].dtype != tensor.dtype:
            raise CheckpointError(f"{key} is {weights[key].dtype}, not {tensor.dtype}.")
    model.load_state_dict(weights)
    return model


def _completed(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with what it does not say, also of a network on a chip."""
    if "exact_norm" in config:  # the name of version 0.1
        config["bound"] = "exact" if config.pop("exact_norm") else "proven"
    inner, options = config.get("network"), config.get("options")
    if isinstance(inner, str) and isinstance(options, dict):
        config["options"] = _completed(inner, options)
    return {**FORMER.get(name, {}), **config}


def _training(described: dict[str, Any] | None, tensors: dict[str, Tensor]) -> TrainerState | None:
    if described is None:
        return None
    state: dict[int, dict[str, Tensor]] = {}
    for path, tensor in _part(tensors, "optimizer.").items():
        index, _, name = path.partition(".")
        state.setdefault(int(index), {})[name] = tensor
    return TrainerState(
        checks.whole_number("its epoch", described["epoch"], 1),
        {"state": state, "param_groups": described["groups"]},
        described["scheduler"],
        tensors["random.batches"],
        tensors["random.noise"],
    )


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}


def _digest_of(configuration: dict[str, Any]) -> str:
    """Digest of plain data, the same before and after a round trip through JSON."""
    plain = json.dumps(configuration, sort_keys=True, allow_nan=False)
    return hashlib.sha256(plain.encode()).hexdigest()
