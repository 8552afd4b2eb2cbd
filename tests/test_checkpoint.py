"""Checkpoints: exact, whole whatever happens, refused in a sentence, and never executed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save as serialise
from torch import nn

import toreqprop as teq
from toreqprop import checkpoint
from toreqprop.checkpoint import JSON_NAME, NETWORKS, Checkpoint, decode, encode, load, save
from toreqprop.errors import CheckpointError
from toreqprop.models import MODELS
from toreqprop.training import TrainerState, TrainingConfig, fit


def trained(epochs: int = 2, schedule: Any = "cosine") -> tuple[nn.Module, TrainerState]:
    torch.manual_seed(0)
    model, x, y = MODELS["looped"].example()
    states: list[TrainerState] = []
    config = TrainingConfig(epochs=epochs, batch_size=2, schedule=schedule)
    fit(model, x, y, config, on_checkpoint=states.append)
    return model, states[-1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model, state = trained()
    arrays = {"mean": torch.arange(6, dtype=torch.float64)}
    save(tmp_path / "run", Checkpoint(model, state, {"labels": ["a", "b"]}, arrays))
    return tmp_path / "run"


def description(folder: Path) -> dict[str, Any]:
    return json.loads((folder / JSON_NAME).read_text())


def rewrite(folder: Path, described: dict[str, Any]) -> None:
    (folder / JSON_NAME).write_text(json.dumps(described))


def forge(folder: Path, **changes: Any) -> None:
    """Change the configuration and make all digests agree again, as an attacker would."""
    described = {**description(folder), **changes}
    configuration = {k: described[k] for k in ("model", "training", "about")}
    stored = load(folder)
    tensors = {f"model.{k}": t for k, t in stored.model.state_dict().items()}
    content = serialise(tensors, {"configuration": checkpoint._digest_of(configuration)})
    digest = hashlib.sha256(content).hexdigest()
    described["tensors"] = {"file": f"tensors-{digest[:16]}.safetensors", "sha256": digest}
    (folder / described["tensors"]["file"]).write_bytes(content)
    rewrite(folder, described)


@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_model_comes_back_exactly(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model: nn.Module = teq.BackpropMLP(6, 9, 4) if name == "backprop" else MODELS[name].example()[0]
    model.to(dtype)
    save(tmp_path, Checkpoint(model))
    back = load(tmp_path).model
    assert type(back) is type(model)
    assert back.config() == model.config()
    for key, tensor in model.state_dict().items():
        assert torch.equal(back.state_dict()[key], tensor)
        assert back.state_dict()[key].dtype == tensor.dtype


def test_training_state_labels_and_arrays_come_back(folder: Path) -> None:
    _, state = trained()
    back = load(folder / JSON_NAME)  # the file in the folder names it as well
    assert back.about == {"labels": ["a", "b"]}
    assert back.arrays["mean"].tolist() == list(range(6))
    assert back.training is not None
    assert back.training.epoch == 2
    assert back.training.scheduler == state.scheduler
    assert torch.equal(back.training.batches, state.batches)
    for index, entry in state.optimizer["state"].items():
        for key, tensor in entry.items():
            assert torch.equal(back.training.optimizer["state"][index][key], tensor)


@pytest.mark.parametrize("gradient", [teq.RandomSignEP(), teq.ContinualEP(), teq.HolomorphicEP()])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_resumed_training_is_bit_identical(gradient: Any, schedule: Any, tmp_path: Path) -> None:
    def start() -> tuple[Any, ...]:
        torch.manual_seed(1)
        model = teq.LoopedMLP(6, 9, 4, gradient=gradient)
        return model, torch.randn(11, 6), torch.randint(0, 4, (11,))

    config = TrainingConfig(epochs=5, batch_size=4, schedule=schedule)
    whole, x, y = start()
    fit(whole, x, y, config)

    class KilledError(Exception):
        pass

    first, x, y = start()

    def keep(state: TrainerState) -> None:
        save(tmp_path, Checkpoint(first, state))
        if state.epoch == 3:
            raise KilledError

    with pytest.raises(KilledError):
        fit(first, x, y, config, on_checkpoint=keep)
    torch.manual_seed(99)  # another process has another random state
    stored = load(tmp_path)
    history = fit(stored.model, x, y, config, resume=stored.training)
    assert [e.epoch for e in history.epochs] == [4, 5]
    for key, tensor in whole.state_dict().items():
        assert torch.equal(stored.model.state_dict()[key], tensor), key


def test_going_on_with_another_schedule_is_refused() -> None:
    model, state = trained(schedule="constant")
    config = TrainingConfig(epochs=4, schedule="cosine")
    with pytest.raises(teq.InvalidInputError, match="schedule"):
        fit(model, torch.randn(5, 6), torch.zeros(5).long(), config, resume=state)


def test_a_crash_at_any_write_leaves_a_readable_pair(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail at the first, second, ... file operation; the old or the new checkpoint is there."""
    model, newer = trained(epochs=3)
    real = {name: getattr(os, name) for name in ("replace", "fsync", "unlink")}
    seen = set()
    for crash_at in range(1, 7):
        calls = 0

        def operate(name: str, *arguments: Any, limit: int = crash_at, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls >= limit:  # and nothing after it, as if the process had been killed
                raise KeyboardInterrupt
            return real[name](*arguments, **options)

        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(os, name, lambda *a, _n=name, **k: operate(_n, *a, **k))
            with contextlib.suppress(KeyboardInterrupt):
                save(folder, Checkpoint(model, newer))
        seen.add(load(folder).training.epoch)  # type: ignore[union-attr]
    assert seen == {2, 3}
    save(folder, Checkpoint(model, newer))
    assert len(list(folder.iterdir())) == 2  # nothing is left over


@pytest.mark.parametrize("fraction", [0.0, 0.01, 0.5, 0.999])
def test_truncated_files_are_refused(folder: Path, fraction: float) -> None:
    for name in (description(folder)["tensors"]["file"], JSON_NAME):
        path = folder / name
        whole = path.read_bytes()
        path.write_bytes(whole[: int(fraction * len(whole))])
        with pytest.raises(CheckpointError, match="damaged"):
            load(folder)
        path.write_bytes(whole)
    load(folder)


def test_edited_json_is_refused(folder: Path) -> None:
    described = description(folder)
    described["model"]["config"]["radius"] = 0.9  # fits every shape, and is another model
    rewrite(folder, described)
    with pytest.raises(CheckpointError, match="does not belong to its tensors"):
        load(folder)


def test_exchanged_tensors_are_refused(folder: Path, tmp_path: Path) -> None:
    model, state = trained(epochs=3)
    save(tmp_path / "other", Checkpoint(model, state))
    other = description(tmp_path / "other")["tensors"]["file"]
    mine = description(folder)["tensors"]["file"]
    (folder / mine).write_bytes((tmp_path / "other" / other).read_bytes())
    with pytest.raises(CheckpointError, match="damaged"):
        load(folder)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"file": "../../secret.safetensors", "sha256": ""}, "names no tensor file"),
        ({"file": 3}, "names no tensor file"),
        (None, "names no tensor file"),
        ({"file": f"tensors-{'0' * 16}.safetensors", "sha256": ""}, "missing"),
    ],
)
def test_only_its_own_tensors_are_opened(folder: Path, tensors: Any, message: str) -> None:
    rewrite(folder, {**description(folder), "tensors": tensors})
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_what_is_no_checkpoint_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        load(tmp_path / "nothing")
    rewrite(folder, {**description(folder), "version": 99})
    with pytest.raises(CheckpointError, match="version 99"):
        load(folder)
    for content in ("[]", '{"format": "other"}'):
        (folder / JSON_NAME).write_text(content)
        with pytest.raises(CheckpointError, match="does not describe"):
            load(folder)


FORGERIES: list[tuple[dict[str, Any], str]] = [
    ({"name": "os.system"}, "no model"),
    ({"dtype": "complex64"}, "no dtype"),
    ({"config": {"gradient": {"type": "Popen", "args": "true"}}}, "no component"),
    ({"config": {"gradient": {"type": "CenteredEP", "command": "true"}}}, "command"),
    ({"config": {"unknown": 1}}, "unknown"),
    ({"config": {"hidden_features": 8}}, "size mismatch"),
    ({"config": {"hidden_features": "many"}}, "cannot be used"),
]


@pytest.mark.parametrize(("change", "message"), FORGERIES, ids=[m for _, m in FORGERIES])
def test_forged_configurations_run_nothing(
    folder: Path, change: dict[str, Any], message: str
) -> None:
    """Digests that agree do not help: classes come from the registries or not at all."""
    model = description(folder)["model"]
    config = {**model["config"], **change.get("config", {})}
    forge(folder, model={**model, **change, "config": config}, training=None)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_forging_works_without_a_change(folder: Path) -> None:
    forge(folder, training=None)
    assert load(folder).training is None


def test_configurations_are_plain_data() -> None:
    value = {"gradient": teq.HolomorphicEP(points=6), "sizes": (1, 2), "solver": None}
    plain = json.loads(json.dumps(encode(value)))
    assert decode(plain) == {**value, "sizes": [1, 2]}
    with pytest.raises(CheckpointError, match="registered component"):
        encode({"hook": print})
    with pytest.raises(CheckpointError, match="not a registered model"):
        checkpoint.network_name(nn.Linear(1, 1))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match="cannot be written"):
        save(tmp_path / "file", Checkpoint(trained()[0]))


def test_loads_in_a_fresh_process(tmp_path: Path) -> None:
    """Where no model was built before: what a first use sets up must not count as the model's."""
    model, _, _ = MODELS["looped"].example()
    checkpoint.save(tmp_path, checkpoint.Checkpoint(model))
    script = f"from toreqprop import checkpoint; checkpoint.load({str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["looped", "hopfield", "conv", "transformer", "chip"])
def test_a_configuration_that_names_no_bound_means_the_former_one(
    name: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model, x, _ = MODELS[name].example(bound="proven")
    save(tmp_path, Checkpoint(model))
    described = description(tmp_path)["model"]
    config = described["config"]["options"] if name == "chip" else described["config"]
    assert config.pop("bound") == "proven"
    forge(tmp_path, model=described)
    found = load(tmp_path).model
    assert (found.network if name == "chip" else found).bound == "proven"
    assert torch.equal(found(x), model(x))
