"""Files damaged at random: each is refused in one sentence, or means what it meant before."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load as parse
from safetensors.torch import save as serialise

from tests.fuzz.damage import altered, cases, damaged
from tests.verify.cheap_tracks import cheap
from toreqprop import LoopedMLP, checkpoint
from toreqprop.bench import hyperparameters
from toreqprop.bench.plan import make_plan
from toreqprop.checkpoint import JSON_NAME, Checkpoint
from toreqprop.cli.predictor import describe, predictor_for, restore
from toreqprop.cli.samples import from_table
from toreqprop.errors import TorEqPropError
from toreqprop.evidence import Store
from toreqprop.tasks import files
from toreqprop.tasks.idx import parse_idx
from toreqprop.tasks.tables import read_table
from toreqprop.training import TrainerState, TrainingConfig, fit
from toreqprop.verify.levels import QUICK
from toreqprop.verify.records import Job, perform

CSV = "size,weight,kind\n" + "".join(f"{k % 7},{k / 4},{'abc'[k % 3]}\n" for k in range(24))


@contextmanager
def refused() -> Iterator[None]:
    """What is in the block succeeds, or fails in one sentence."""
    said = ""
    try:
        yield
    except TorEqPropError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 2000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def pair(folder: Path) -> tuple[bytes, bytes]:
    """The two files of a checkpoint in the middle of a training."""
    path = folder / "data.csv"
    path.write_text(CSV)
    samples = from_table(read_table(path), None, 0.0, 0)
    torch.manual_seed(0)
    model = LoopedMLP(2, 4, 3)
    predictor = predictor_for(samples, model, np.unique(samples.train[1]))
    about, arrays = describe(predictor)
    states: list[TrainerState] = []
    x, y = predictor.inputs(samples.train[0]), predictor.targets(samples.train[1])
    fit(model, x, y, TrainingConfig(epochs=1), on_checkpoint=states.append)
    whole = Checkpoint(model, states[-1], {"predictor": about, "history": [{"epoch": 1}]}, arrays)
    checkpoint.save(folder / "run", whole)
    (tensors,) = (folder / "run").glob("*.safetensors")
    return (folder / "run" / JSON_NAME).read_bytes(), tensors.read_bytes()


def place(folder: Path, description: bytes, tensors: bytes, name: str) -> None:
    for path in folder.iterdir():
        path.unlink()
    (folder / JSON_NAME).write_bytes(description)
    (folder / name).write_bytes(tensors)


@cases
@given(data=st.data())
def test_a_checkpoint(data: st.DataObject, folder: Path, pair: tuple[bytes, bytes]) -> None:
    description, tensors = pair
    name = json.loads(description)["tensors"]["file"]
    if data.draw(st.booleans()):
        broken = (data.draw(damaged(description)), tensors)
    else:
        broken = (description, data.draw(damaged(tensors)))
    place(folder / "run", *broken, name)
    with refused():
        found = checkpoint.load(folder / "run")
        for key, tensor in found.model.state_dict().items():
            assert torch.equal(tensor, parse(tensors)[f"model.{key}"])
        assert found.about == json.loads(description)["about"]


@cases
@given(data=st.data())
def test_a_forged_checkpoint(data: st.DataObject, folder: Path, pair: tuple[bytes, bytes]) -> None:
    """Any configuration, with digests that agree: refused, or a model that predicts."""
    description, tensors = pair
    described = json.loads(description)
    parts = ("model", "training", "about")
    configuration = data.draw(altered({key: described[key] for key in parts}))
    owner = checkpoint._digest_of(configuration)
    content = serialise(parse(tensors), {"configuration": owner})
    digest = hashlib.sha256(content).hexdigest()
    name = f"tensors-{digest[:16]}.safetensors"
    head = {key: value for key, value in described.items() if key not in parts}
    head["tensors"] = {"file": name, "sha256": digest}
    place(folder / "run", json.dumps({**head, **configuration}).encode(), content, name)
    with refused():
        found = checkpoint.load(folder / "run")
        predicted = restore(found).predict(np.ones((2, 2)))
        assert len(predicted) == 2


def check_table(path: Path) -> None:
    with refused():
        table = read_table(path)
        assert table.features.dtype == np.float64
        assert np.isfinite(table.features).all()
        assert table.target is not None
        assert len(table.target) == len(table.features) > 0
        if table.numbers is not None:
            assert np.isfinite(table.numbers).all()
            assert len(table.numbers) == len(table.target)
        from_table(table, None, 0.2, 0)


@cases
@given(content=damaged(CSV.encode()))
def test_a_csv_file(content: bytes, folder: Path) -> None:
    (folder / "table.csv").write_bytes(content)
    check_table(folder / "table.csv")


def archive(compressed: bool, labels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    write = np.savez_compressed if compressed else np.savez
    write(stream, x=np.arange(24.0).reshape(12, 2), y=labels)
    return stream.getvalue()


@cases
@given(data=st.data())
def test_an_npz_file(data: st.DataObject, folder: Path) -> None:
    kinds = (np.arange(12) % 3, np.arange(12) / 8, np.array(["u", "v", "wx"] * 4))
    labels = kinds[data.draw(st.integers(0, 2))]
    content = archive(data.draw(st.booleans()), labels)
    (folder / "table.npz").write_bytes(data.draw(damaged(content)))
    check_table(folder / "table.npz")


RUN = make_plan(["digits"], seeds=1).runs()[0]


@cases
@given(data=st.data())
def test_a_record_of_a_benchmark(data: st.DataObject, folder: Path) -> None:
    run, store = RUN, Store(folder / "store")
    store.path(run).unlink(missing_ok=True)
    whole = store.save(run, {"accuracy": 0.5, "epochs": [{"loss": 1.5}], "timing": {"total": 3.0}})
    content = store.path(run).read_bytes()
    if data.draw(st.booleans()):
        content = data.draw(damaged(content))
    else:
        content = json.dumps(data.draw(altered(json.loads(content)))).encode()
    store.path(run).write_bytes(content)
    assert store.load(run) in (None, whole)


JOB = Job(cheap(), QUICK, (42,))
RECORD = json.loads(json.dumps(perform(JOB)))


@cases
@given(data=st.data())
def test_a_record_of_a_verification(data: st.DataObject, folder: Path) -> None:
    records = Store(folder / "records")
    records.path(JOB).unlink(missing_ok=True)
    whole = records.save(JOB, RECORD)
    content = records.path(JOB).read_bytes()
    if data.draw(st.booleans()):
        content = data.draw(damaged(content))
    else:
        content = json.dumps(data.draw(altered(json.loads(content)))).encode()
    records.path(JOB).write_bytes(content)
    assert records.load(JOB) in (None, whole)


IMAGES = b"\x00\x00\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (5, 2, 2)) + bytes(range(20))


@cases
@given(data=st.data())
def test_a_data_file(data: st.DataObject, folder: Path) -> None:
    """A damaged copy is never used; what is read of any bytes fits its header."""
    zipped = data.draw(st.booleans())
    broken = data.draw(damaged(gzip.compress(IMAGES, mtime=0) if zipped else IMAGES))
    known = files.DataFile("images", len(IMAGES), hashlib.sha256(IMAGES).hexdigest())
    collection = files.Collection("mnist", (known,), ("",), None, (), "the remedy")
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "images").write_bytes(broken)
    with pytest.MonkeyPatch.context() as patch, refused():
        patch.setitem(files.COLLECTIONS, "mnist", collection)
        patch.setattr(files, "cache_folder", lambda: folder / "cache")
        assert files.load_contents("mnist", folder / "data") == {"images": IMAGES}
    with refused():
        assert parse_idx(broken, 3).ndim == 3


@cases
@given(data=st.data())
def test_a_file_of_hyperparameters(data: st.DataObject, folder: Path) -> None:
    content: Any = {"rows": {"digits": hyperparameters.read()["rows"]["digits"]}}
    content["rows"]["digits"].pop("search")
    if data.draw(st.booleans()):
        broken = data.draw(damaged(json.dumps(content).encode()))
    else:
        broken = json.dumps(data.draw(altered(content))).encode()
    (folder / "hyperparameters.json").write_bytes(broken)
    with refused():
        found = hyperparameters.read(folder / "hyperparameters.json")
        hyperparameters.settings("digits", content=found)
