"""Checkpoints that agree with themselves and are wrong, too large, or no files at all."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from safetensors.torch import load as parse
from safetensors.torch import save as serialise
from typer.testing import CliRunner

import toreqprop as teq
from toreqprop import checkpoint, kernels
from toreqprop.checkpoint import JSON_NAME, load
from toreqprop.cli import app
from toreqprop.cli.resume import lock_folder
from toreqprop.errors import CheckpointError, InvalidInputError, TorEqPropError

SMALL = ["--hidden", "6", "--kernel", "torch", "--learning-rate", "0.05", "--epochs", "2"]
COMMON = ["--schedule", "cosine"]

Parts = tuple[dict[str, Any], dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    rows = "".join(f"{k % 3},{k % 5},{'abc'[k % 3]}\n" for k in range(30))
    (folder / "data.csv").write_text("u,v,kind\n" + rows)
    result = run("train", folder / "data.csv", *SMALL, *COMMON, "--output", folder / "run")
    assert result.exit_code == 0, (result.output, result.exception)
    return folder


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "copy")
    return tmp_path / "copy"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def forge(folder: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None]) -> None:
    """Change anything and make all digests agree again."""
    described = json.loads((folder / JSON_NAME).read_text())
    old = folder / described["tensors"]["file"]
    tensors = parse(old.read_bytes())
    change(described, tensors)
    configuration = {k: v for k, v in described.items() if k in ("model", "training", "about")}
    content = serialise(tensors, {"configuration": checkpoint._digest_of(configuration)})
    digest = hashlib.sha256(content).hexdigest()
    described["tensors"] = {"file": f"tensors-{digest[:16]}.safetensors", "sha256": digest}
    old.unlink()
    (folder / described["tensors"]["file"]).write_bytes(content)
    (folder / JSON_NAME).write_text(json.dumps(described))


def setter(path: str, value: Any) -> Callable[..., None]:
    def change(described: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        *parents, last = path.split(".")
        place: Any = described
        for key in parents:
            place = place[int(key) if key.isdigit() else key]
        if value is ...:
            del place[last]
        else:
            place[last] = value

    return change


def tensor_setter(name: str, value: torch.Tensor | None) -> Callable[..., None]:
    def change(described: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value

    return change


PREDICTOR = "about.predictor"
FORGERIES: dict[str, Callable[..., None]] = {
    "a solver as the gradient": setter("model.config.gradient", {"type": "FixedPoint"}),
    "an estimator as the solver": setter("model.config.solver", {"type": "CenteredEP"}),
    "a component as a number": setter("model.config.radius", {"type": "Tanh"}),
    "a class that is a list": setter("model.config.gradient", {"type": ["CenteredEP"]}),
    "a model that is a list": setter("model.name", ["looped"]),
    "no configuration": setter("model.config", None),
    "another dtype": setter("model.dtype", "float64"),
    "ragged labels": setter(f"{PREDICTOR}.labels", ["a", ["b", "c"], "d"]),
    "labels twice": setter(f"{PREDICTOR}.labels", ["a", "a", "b"]),
    "labels of two kinds": setter(f"{PREDICTOR}.labels", ["a", 1, 2.5]),
    "too few labels": setter(f"{PREDICTOR}.labels", ["a", "b"]),
    "labels that are text": setter(f"{PREDICTOR}.labels", "abc"),
    "columns that are numbers": setter(f"{PREDICTOR}.columns", [1, 2]),
    "too few columns": setter(f"{PREDICTOR}.columns", ["u"]),
    "no features": setter(f"{PREDICTOR}.features", None),
    "features as text": setter(f"{PREDICTOR}.features", "2"),
    "a target that is a list": setter(f"{PREDICTOR}.target", ["kind"]),
    "about as a list": setter("about", [["predictor", {}]]),
    "no predictor": setter(PREDICTOR, ...),
    "no scaling": tensor_setter("about.mean", None),
    "scaling of another shape": tensor_setter("about.mean", torch.zeros(3, 3).double()),
    "scaling by zero": tensor_setter("about.scale", torch.zeros(2).double()),
    "a tensor too few": tensor_setter("model.readout.weight", None),
    "epoch as text": setter("training.epoch", "two"),
}


@pytest.mark.parametrize("kind", sorted(FORGERIES))
def test_a_forged_checkpoint_is_refused_in_a_sentence(copy: Path, kind: str) -> None:
    forge(copy / "run", FORGERIES[kind])
    result = run("predict", copy / "run", copy / "data.csv")
    assert isinstance(result.exception, TorEqPropError), (result.output, result.exception)
    assert "\n" not in str(result.exception)


def test_an_unchanged_forgery_is_accepted(copy: Path) -> None:
    forge(copy / "run", lambda described, tensors: None)
    assert run("predict", copy / "run", copy / "data.csv").exit_code == 0
    assert resume(copy).exit_code == 0


MOMENT = "optimizer.0.exp_avg"
UNRESUMABLE: dict[str, Callable[..., None]] = {
    "no history": setter("about.history", ...),
    "an empty history": setter("about.history", []),
    "a history of numbers": setter("about.history", [1, 2]),
    "a history of other epochs": setter("about.history.0.epoch", 7),
    "no training": setter("training", None),
    "no settings": setter("about.training", ...),
    "groups of nothing": setter("training.groups", []),
    "groups as text": setter("training.groups", "lr"),
    "another rate": setter("training.groups.0.initial_lr", 9.0),
    "a rate as text": setter("training.groups.0.lr", "fast"),
    "other parameters": setter("training.groups.0.params", [0, 1]),
    "no schedule": setter("training.scheduler", None),
    "a schedule of its own": setter("training.scheduler.T_max", 7),
    "a schedule as a list": setter("training.scheduler", [1]),
    "a moment of another shape": tensor_setter(MOMENT, torch.zeros(3)),
    "a moment that is not finite": tensor_setter("optimizer.1.exp_avg_sq", torch.full((6,), -1.0)),
    "a moment too few": tensor_setter(MOMENT, None),
    "a moment of nothing": tensor_setter("optimizer.99.step", torch.tensor(1.0)),
    "an index that is no number": tensor_setter("optimizer.x.step", torch.tensor(1.0)),
    "no order of batches": tensor_setter("random.batches", None),
    "an order of another kind": tensor_setter("random.batches", torch.zeros(3)),
    "noise of another size": tensor_setter("random.noise", torch.zeros(3, dtype=torch.uint8)),
}


def resume(folder: Path) -> Result:
    return run(
        "train", folder / "data.csv", *SMALL, *COMMON, "--output", folder / "run", "--resume"
    )


@pytest.mark.parametrize("kind", sorted(UNRESUMABLE))
def test_a_forged_training_is_not_gone_on_from(copy: Path, kind: str) -> None:
    forge(copy / "run", UNRESUMABLE[kind])
    before = (copy / "run" / JSON_NAME).read_bytes()
    result = resume(copy)
    assert isinstance(result.exception, TorEqPropError), (result.output, result.exception)
    assert "\n" not in str(result.exception)
    assert (copy / "run" / JSON_NAME).read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe{}", b'{"format": NaN}', b'{"format": 1e999}', b"[" * 100_000, b"9" * 10_000, b""],
    ids=["not UTF-8", "NaN", "1e999", "deep", "long number", "empty"],
)
def test_a_description_that_is_no_json_is_damaged(copy: Path, content: bytes) -> None:
    (copy / "run" / JSON_NAME).write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged: it is not JSON"):
        load(copy / "run")
    assert isinstance(resume(copy).exception, CheckpointError)
    fresh = run("train", copy / "data.csv", *SMALL, "--output", copy / "run", "--fresh")
    assert fresh.exit_code == 0, (fresh.output, fresh.exception)


@pytest.mark.parametrize("text", ["NaN", "1e999", "-Infinity"])
def test_numbers_that_are_none_are_damage(copy: Path, text: str) -> None:
    path = copy / "run" / JSON_NAME
    described = json.loads(path.read_text())
    described["model"]["config"]["radius"] = "RADIUS"
    path.write_text(json.dumps(described).replace('"RADIUS"', text))
    with pytest.raises(CheckpointError, match="is damaged: it is not JSON"):
        load(copy / "run")


@pytest.mark.parametrize("hidden", [20_000, 10**6, 10**12, 10**30])
def test_sizes_are_compared_before_a_model_is_built(copy: Path, hidden: int) -> None:
    """A model with 20,000 hidden neurons takes gigabytes; refusing it takes next to nothing."""
    forge(copy / "run", setter("model.config.hidden_features", hidden))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match="cannot be used") as caught:
        load(copy / "run")
    assert "\n" not in str(caught.value)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200_000  # kilobytes: the matrix alone would be 1,600,000


@pytest.mark.parametrize(
    "build",
    [
        lambda: teq.LoopedMLP(784, 256, 10),
        lambda: teq.LoopedMLP(3, 512, 2),
        lambda: teq.HopfieldMLP([64, *[32] * 12, 10]),
        lambda: teq.HopfieldMLP.deep(16, 16, 20, 4),
        lambda: teq.HopfieldConvNet(),
        lambda: teq.EquilibriumTransformer(12, 16, layers=2, width=64, heads=4),
        lambda: teq.BackpropMLP(784, 256, 10),
    ],
    ids=["images", "wide", "layered", "deep", "conv", "transformer", "backprop"],
)
def test_the_limits_leave_room_for_models_in_use(
    tmp_path: Path, build: Callable[[], torch.nn.Module]
) -> None:
    model = build()
    checkpoint.save(tmp_path, checkpoint.Checkpoint(model))
    found = load(tmp_path).model.state_dict()
    assert all(torch.equal(found[key], tensor) for key, tensor in model.state_dict().items())


def test_the_first_thing_a_process_does_may_be_to_load(tmp_path: Path) -> None:
    """What a kernel sets up once, larger than this model, is not taken for a part of it."""
    checkpoint.save(tmp_path, checkpoint.Checkpoint(teq.LoopedMLP(2, 3, 2)))
    kernels._build.cache_clear()
    assert isinstance(load(tmp_path).model, teq.LoopedMLP)


def test_a_stack_of_a_million_layers_is_not_built(tmp_path: Path) -> None:
    from toreqprop import HopfieldMLP

    checkpoint.save(tmp_path, checkpoint.Checkpoint(HopfieldMLP([2, 3, 2])))
    forge(tmp_path, setter("model.config.sizes", [2] * 10**6))
    with pytest.raises(CheckpointError, match="more parts than there are tensors for"):
        load(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes and devices")
@pytest.mark.parametrize("part", ["description", "tensors"])
@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_what_has_no_end_is_not_read(copy: Path, part: str, kind: str) -> None:
    described = json.loads((copy / "run" / JSON_NAME).read_text())
    path = copy / "run" / (JSON_NAME if part == "description" else described["tensors"]["file"])
    path.unlink()
    if kind == "device":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    with pytest.raises(CheckpointError, match="is a pipe or a device"):
        load(copy / "run")


def test_a_file_beyond_the_limit_is_not_read(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "TENSOR_LIMIT", 100)
    with pytest.raises(CheckpointError, match="more than the 100 that are read"):
        load(copy / "run")


def test_a_folder_may_be_text(copy: Path) -> None:
    assert checkpoint.exists(str(copy / "run"))
    stored = load(str(copy / "run"))
    checkpoint.save(str(copy / "again"), stored)
    assert load(copy / "again").about == stored.about
    for wrong in ("", 3, None, b"run", "a\0b"):
        with pytest.raises(InvalidInputError, match="folder must be a path"):
            load(wrong)  # type: ignore[arg-type]


def test_only_plain_data_is_kept_about_a_model(copy: Path, tmp_path: Path) -> None:
    stored = load(copy / "run")
    for about in ({"x": float("nan")}, {"x": print}, {"x": {1, 2}}):
        stored.about = about
        with pytest.raises(CheckpointError, match="plain data and finite numbers"):
            checkpoint.save(tmp_path / "odd", stored)


def test_two_trainings_do_not_share_a_folder(copy: Path) -> None:
    """The lock belongs to an open file: it is the other's here as in another process."""
    pytest.importorskip("fcntl")
    before = (copy / "run" / JSON_NAME).read_bytes()
    with lock_folder(copy / "run"):
        result = resume(copy)
        assert isinstance(result.exception, InvalidInputError)
        assert "Another training writes into" in str(result.exception)
    assert (copy / "run" / JSON_NAME).read_bytes() == before
    assert resume(copy).exit_code == 0
