"""`toreqprop train`, `evaluate` and `predict` as a user runs them on files."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from safetensors.torch import load_file
from typer.testing import CliRunner

import toreqprop as teq
from tests.processes import running, wait_until
from toreqprop import checkpoint as checkpoints
from toreqprop.checkpoint import JSON_NAME, NETWORKS, Checkpoint
from toreqprop.cli import app
from toreqprop.cli.resume import Output
from toreqprop.errors import TorEqPropError

SMALL = ["--hidden", "12", "--kernel", "torch", "--learning-rate", "0.02"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def succeed(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def refuse(*arguments: object) -> str:
    """The one sentence `main` prints, with exit code 2, for what it catches."""
    result = run(*arguments)
    assert isinstance(result.exception, TorEqPropError), result.output
    sentence = str(result.exception)
    assert "\n" not in sentence
    return sentence


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three well separated classes with text labels, and a quantity with a fraction."""
    folder = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 40)
    x = random.normal(size=(120, 4)) * [1, 10, 100, 1] + 4 * np.eye(3, 4)[label] * [1, 10, 100, 1]
    names = np.array(["red", "green", "blue"])[label]
    quantity = 2.5 * x[:, 0] - 0.1 * x[:, 1] + 1000.25
    with (folder / "colours.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["u", "v", "w", "constant", "colour"])
        writer.writerows([*row[:3], 7, name] for row, name in zip(x, names, strict=True))
    with (folder / "quantity.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["amount", "u", "v"])
        writer.writerows(zip(quantity, x[:, 0], x[:, 1], strict=True))
    np.savez(folder / "colours.npz", x=x, y=label, names=names)
    return folder


@pytest.fixture(scope="module")
def colours(files: Path) -> Path:
    """A checkpoint trained on the CSV of colours."""
    folder = files / "colours"
    succeed("train", files / "colours.csv", *SMALL, "--epochs", 20, "--output", folder)
    return folder


def test_text_classes_from_csv(files: Path, colours: Path) -> None:
    found = succeed("evaluate", colours, files / "colours.csv")
    assert found["accuracy"] > 0.9
    assert found["chance"] == pytest.approx(1 / 3)
    assert found["samples"] == 120
    about = json.loads((colours / JSON_NAME).read_text())["about"]
    assert about["predictor"]["labels"] == ["blue", "green", "red"]
    assert about["predictor"]["columns"] == ["u", "v", "w", "constant"]
    assert len(about["history"]) == 20
    assert all(row["validation"] is not None for row in about["history"])


def test_scaling_is_measured_on_the_training_part(files: Path, colours: Path) -> None:
    rows = np.loadtxt(files / "colours.csv", delimiter=",", skiprows=1, usecols=range(4))
    mean = checkpoints.load(colours).arrays["mean"].numpy()
    assert mean.shape == (4,)
    assert not np.allclose(mean[:3], rows.mean(0)[:3], rtol=1e-6)  # a fifth was held out
    assert np.allclose(mean, rows.mean(0), rtol=0.5, atol=1.0)


def test_predictions_as_csv_and_json(files: Path, colours: Path, tmp_path: Path) -> None:
    shuffled = tmp_path / "new.csv"
    shuffled.write_text("w,extra,constant,v,u\n400,text,7,0,0\n0,text,7,0,4\n")
    result = run("predict", colours, shuffled, "--proba", "--output", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["colour"] for row in rows] == ["blue", "red"]
    for row in rows:
        chances = {c: float(row[f"p({c})"]) for c in ("blue", "green", "red")}
        assert sum(chances.values()) == pytest.approx(1)
        assert max(chances, key=chances.__getitem__) == row["colour"]
    assert succeed("predict", colours, shuffled) == [{"colour": "blue"}, {"colour": "red"}]
    assert run("predict", colours, shuffled).stdout == "colour\nblue\nred\n"


def test_regression_is_inferred_from_a_fraction(files: Path, tmp_path: Path) -> None:
    data = files / "quantity.csv"
    options = [*SMALL, "--epochs", 60, "--target", "amount", "--output", tmp_path / "run"]
    found = succeed("train", data, *options)
    assert found["scored_on"] == "validation"
    assert found["r2"] > 0.9
    again = succeed("evaluate", tmp_path / "run", data)
    assert again["r2"] > 0.9
    assert again["mae"] <= again["rmse"]
    predicted = succeed("predict", tmp_path / "run", data)
    assert np.mean([row["amount"] for row in predicted]) == pytest.approx(1000, abs=10)
    assert "predicts numbers" in refuse("predict", tmp_path / "run", data, "--proba")


FOR_ROWS = sorted(n for n, c in NETWORKS.items() if n == "backprop" or "for_rows" in vars(c))


@pytest.mark.parametrize("model", sorted(set(NETWORKS) - set(FOR_ROWS)))
def test_a_model_for_other_data_says_so(files: Path, model: str) -> None:
    said = refuse("train", files / "colours.npz", "--model", model)
    assert "cannot be built for rows" in said


def test_a_convolutional_model_takes_square_images(files: Path, tmp_path: Path) -> None:
    said = refuse("train", files / "colours.npz", "--model", "conv")
    assert "leave nothing of 2 x 2 pixels" in said
    options = ["--model", "conv", "--hidden", 16, "--learning-rate", "0.01", "--epochs", 2]
    found = succeed("train", "digits", *options, "--output", tmp_path / "run")
    assert found["accuracy"] > 0.7
    assert succeed("evaluate", tmp_path / "run", "digits")["accuracy"] == found["accuracy"]


@pytest.mark.parametrize("model", sorted(set(FOR_ROWS) - {"conv"}))
def test_every_model_trains_on_npz(files: Path, tmp_path: Path, model: str) -> None:
    options = ["--model", model, "--hidden", 12, "--learning-rate", "0.02", "--epochs", 20]
    found = succeed("train", files / "colours.npz", *options, "--output", tmp_path / "run")
    assert found["accuracy"] > 0.85
    again = succeed("evaluate", tmp_path / "run", files / "colours.npz", "--target", "y")
    assert again["accuracy"] > 0.85


def test_a_task_and_its_test_data(tmp_path: Path) -> None:
    options = [*SMALL, "--epochs", 2, "--validation-fraction", "0.1", "--output", tmp_path / "run"]
    found = succeed("train", "digits", *options, "--seed", 7)
    assert found["scored_on"] == "test"
    again = succeed("evaluate", tmp_path / "run", "digits")
    assert again["accuracy"] == found["accuracy"] > 0.7
    assert len(succeed("predict", tmp_path / "run", "digits")) == again["samples"]


KILLED = """
import os, signal, sys, threading
import sklearn.model_selection, torch._dynamo  # what every program would import for itself
import toreqprop.cli.train
from toreqprop import checkpoint
from toreqprop.cli import main
real = checkpoint.save
def killed_after(stop_after):
    def save(folder, content):
        real(folder, content)
        if content.training.epoch == stop_after:
            # a few milliseconds later, wherever training is then
            threading.Timer(0.003, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return save
for number in (3, 10):
    program = os.fork()
    if program == 0:
        checkpoint.save = killed_after(number)
        main()
    ended = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    print("killed", ended, checkpoint.load(FOLDER).training.epoch, flush=True)
"""


def test_kill_and_resume_ends_in_the_same_bits(files: Path, tmp_path: Path) -> None:
    """SIGKILL in the middle, twice; the resumed run must equal one that was never stopped."""
    epochs = 40
    options = ["--gradient", "random_sign", "--schedule", "cosine", "--epochs", str(epochs)]
    command = ["train", str(files / "colours.csv"), *SMALL, *options]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    script, words = f"FOLDER = {str(killed)!r}" + KILLED, ["--output", str(killed), "--resume"]
    ran = subprocess.run(
        [sys.executable, "-c", script, *command, *words], capture_output=True, text=True, check=True
    )
    told = [line.split()[1:] for line in ran.stdout.splitlines() if line.startswith("killed ")]
    for (ended, done), stop_after in zip(told, (3, 10), strict=True):
        assert int(ended) == -signal.SIGKILL, ran.stderr
        assert stop_after <= int(done) < epochs
    resumed = succeed(*command, "--output", killed, "--resume")
    assert resumed["resumed_after"] >= 10
    straight = succeed(*command, "--output", whole)
    assert straight["resumed_after"] is None
    first, second = (tensors(folder) for folder in (killed, whole))
    assert first.keys() == second.keys()
    assert all(bool((first[k] == second[k]).all()) for k in first)
    # Digests, names and configuration agree as well: the two checkpoints are the same files.
    assert sorted(p.name for p in killed.iterdir()) == sorted(p.name for p in whole.iterdir())
    assert (killed / JSON_NAME).read_text() == (whole / JSON_NAME).read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_interrupted_it_says_what_is_kept(files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stopped"
    command = ["train", str(files / "colours.csv"), *SMALL, "--epochs", "5000"]
    program = [sys.executable, "-m", "toreqprop", *command, "--output", str(folder)]
    with running(program) as process:
        wait_until(process, lambda: epochs_done(folder) >= 2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130
    *_, kept, last = filter(None, said.splitlines())
    assert kept.startswith(f"Epoch {epochs_done(folder)} is saved in {folder}: ")
    assert last == "Stopped."


def test_what_an_interruption_leaves_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert "with --output" in Output(None, False, False).after_interruption()
    where = Output(folder, False, False)
    where.check()
    assert where.after_interruption() == "No epoch was finished, so nothing was kept."
    succeed("train", "digits", *SMALL, "--epochs", 1, "--output", folder)
    assert where.after_interruption().startswith(f"Epoch 1 is saved in {folder}")
    again = Output(folder, False, True)
    again.check()
    assert f"the checkpoint in {folder} is as it was" in again.after_interruption()


def epochs_done(folder: Path) -> int:
    try:
        return json.loads((folder / JSON_NAME).read_text())["training"]["epoch"]
    except FileNotFoundError:
        return 0


def tensors(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("*.safetensors")
    return load_file(path)


def test_resume_wants_the_same_training(files: Path, colours: Path, tmp_path: Path) -> None:
    command = ["train", files / "colours.csv", *SMALL, "--output", colours]
    before = (colours / JSON_NAME).read_text()
    assert "--resume to continue" in refuse(*command, "--epochs", 20)
    resume = [*command, "--epochs", 20, "--resume"]
    assert "holds a looped model, not hopfield" in refuse(
        "train", files / "colours.csv", "--model", "hopfield", "--output", colours, "--resume"
    )
    for other, message in (
        (["--hidden", 13], "hidden_features = 12, not 13"),
        (["--seed", 1], "seed = 42, not 1"),
        (["--beta", 0.3], "gradient"),
        (["--validation-fraction", 0.3], "validation_fraction = 0.2, not 0.3"),
        (["--epochs", 10], "epochs = 20, not 10"),
        (["--drop", "u"], "features"),
        (["--fresh"], "cannot be used together"),
    ):
        assert message in refuse(*resume, *other)
    altered = tmp_path / "colours.csv"
    altered.write_text((files / "colours.csv").read_text() + "1,1,1,7,red\n")
    assert "sha256" in refuse("train", altered, *resume[2:])
    assert (colours / JSON_NAME).read_text() == before
    assert succeed(*resume)["epochs"] == 20  # nothing is left to do
    assert "--output" in refuse("train", "digits", "--resume")


def test_more_epochs_go_on_and_fresh_starts_over(files: Path, tmp_path: Path) -> None:
    command = ["train", files / "colours.csv", *SMALL, "--output"]
    succeed(*command, tmp_path / "a", "--epochs", 2)
    assert succeed(*command, tmp_path / "a", "--epochs", 4, "--resume")["resumed_after"] == 2
    succeed(*command, tmp_path / "b", "--epochs", 4)
    a, b = tensors(tmp_path / "a"), tensors(tmp_path / "b")
    assert all(bool((a[k] == b[k]).all()) for k in b)
    assert succeed(*command, tmp_path / "a", "--epochs", 1, "--fresh")["resumed_after"] is None
    assert epochs_done(tmp_path / "a") == 1


def test_bad_files_get_one_sentence(files: Path, colours: Path, tmp_path: Path) -> None:
    good = files / "colours.csv"
    (tmp_path / "few.csv").write_text("u,v\n1,2\n")
    (tmp_path / "nan.csv").write_text("u,v,w,constant\n1,nan,3,4\n")
    (tmp_path / "label.csv").write_text("u,v,w,constant,colour\n1,2,3,4,pink\n")
    (tmp_path / "single.csv").write_text("a,b\n1,x\n2,x\n")
    (tmp_path / "rare.csv").write_text("a,b\n1,x\n2,x\n3,y\n")
    (tmp_path / "many.csv").write_text("a,b\n" + "".join(f"{k},{k}\n" for k in range(50)))
    (tmp_path / "two.csv").write_text("a,b\n1,x\n2,x\n3,y\n4,y\n")
    for command, message in (
        (["predict", colours, tmp_path / "few.csv"], "no column 'w'"),
        (["predict", colours, tmp_path / "nan.csv"], "'v' is nan"),
        (["predict", colours, "digits"], "64 features and the model takes 4"),
        (["predict", tmp_path, good], "no checkpoint"),
        (["predict", colours, "nonsense"], "neither a task"),
        (["evaluate", colours, tmp_path / "few.csv"], "no column 'colour'"),
        (["evaluate", colours, tmp_path / "label.csv"], "label 'pink'"),
        (["train", good, "--target", "taste"], "no column 'taste'"),
        (["train", good, "--regression"], "is text"),
        (["train", files / "quantity.csv", "--target", "amount", "--classification"], "quantity"),
        (["train", tmp_path / "single.csv"], "one class, x"),
        (["train", tmp_path / "rare.csv"], "class y has one row"),
        (["train", tmp_path / "many.csv"], "add --regression"),
        (["train", tmp_path / "two.csv"], "cannot be held out"),
        (["train", tmp_path / "absent.csv"], "No such file"),
        (["train", good, "--validation-fraction", 1], "from 0 to below 1"),
        (["train", "digits", "--target", "y"], "built-in task"),
        (["train", good, "--full-data"], "for built-in tasks"),
        (["train", good, "--model", "backprop", "--radius", "0.5"], "takes no --radius"),
        (["train", good, "--gradient", "unrolled", "--beta", "0.5"], "no nudge"),
        (["train", good, "--layers", 3], "one hidden layer"),
        (["train", good, "--kernel", "numpy", "--output", tmp_path / "x"], "NumPy reference"),
        (
            [
                "train",
                good,
                *SMALL,
                "--learning-rate",
                "1e37",
                "--max-steps",
                5,
                "--batch-size",
                64,
                "--weight-decay",
                0,
            ],
            "--learning-rate",
        ),
    ):
        assert message in refuse(*command), command


def test_a_damaged_checkpoint_is_refused_by_the_program(colours: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in colours.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    (name,) = broken.glob("*.safetensors")
    name.write_bytes(name.read_bytes()[:-100])
    result = subprocess.run(
        [sys.executable, "-m", "toreqprop", "evaluate", str(broken), "digits"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "is damaged" in result.stderr
    assert "\x1b" not in result.stderr  # not a terminal: no colours


def test_a_checkpoint_without_a_reader_is_refused(files: Path, tmp_path: Path) -> None:
    checkpoints.save(tmp_path, Checkpoint(teq.LoopedMLP(4, 5, 3)))
    assert "`toreqprop train` did not write it" in refuse(
        "predict", tmp_path, files / "colours.csv"
    )


@pytest.mark.filterwarnings("ignore")  # TensorBoard's, about what it imports
def test_tensorboard_gets_every_epoch(files: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    logs = tmp_path / "logs"
    succeed("train", files / "colours.csv", *SMALL, "--epochs", 3, "--tensorboard", logs)
    (path,) = logs.iterdir()
    content = path.read_bytes()
    for tag in (b"\x04loss", b"\x0avalidation", b"free_steps"):  # after the length of the name
        assert content.count(tag) == 3


def test_tensorboard_missing_is_said(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toreqprop.cli.training_log.find_spec", lambda name: None)
    sentence = refuse("train", files / "colours.csv", "--tensorboard", "logs")
    assert "toreqprop[tensorboard]" in sentence
