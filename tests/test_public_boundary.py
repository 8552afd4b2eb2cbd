"""Every public function outside the core refuses nonsense in one sentence, argument by argument.

Each has one good call here. Every argument of it is replaced by every piece of nonsense in turn:
the call still succeeds, or raises an error of this library with one sentence. A public name without
an entry fails the test.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import toreqprop as teq
from tests.nonsense import NONSENSE, meanings, unrefused
from toreqprop import checkpoint, plots, sklearn, tasks, training
from toreqprop.errors import TorEqPropError
from toreqprop.tasks.tables import read_table
from toreqprop.training import TrainingConfig

torch.manual_seed(0)
MODEL = teq.LoopedMLP(6, 5, 3)
X, Y = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
RECORDER = plots.SpectrumRecorder(X)
RECORDER(MODEL)
ARRAYS = tasks.get("digits").load(0, False)


def folder(tmp_path: Path) -> Path:
    checkpoint.save(tmp_path, checkpoint.Checkpoint(MODEL))
    return tmp_path


@cache
def certificate() -> teq.Certificate:
    return teq.certify(MODEL, X, Y)


@cache
def history() -> training.History:
    model = teq.LoopedMLP(6, 5, 3)
    return training.fit(model, X, Y, TrainingConfig(epochs=2), validation=(X, Y))


Good = Callable[[Path], dict[str, Any]]

PLOTS: dict[str, Good] = {
    "SpectrumRecorder": lambda _: {"x": X, "every": 2},
    "alignment": lambda _: {"certificates": certificate()},
    "alignment_data": lambda _: {"certificates": {"a": certificate()}},
    "alignment_figure": lambda _: {"data": plots.alignment_data(certificate())},
    "angle": lambda _: {"cosine": 0.5},
    "coupling_matrix": lambda _: {"model": MODEL, "x": X},
    "plain_style": lambda _: {},
    "relaxation": lambda _: {
        "model": MODEL,
        "x": X,
        "y": Y,
        "loss": torch.nn.functional.cross_entropy,
    },
    "relaxation_data": lambda _: {"model": MODEL, "x": X, "y": Y, "tol": 1e-6},
    "relaxation_figure": lambda _: {"data": plots.relaxation_data(MODEL, X, Y)},
    "save": lambda at: {"figure": plots.training(history()), "path": at / "figure.svg"},
    "spectrum": lambda _: {"runs": RECORDER, "radius": 0.5},
    "svg": lambda _: {"name": "figure", "size": (2.0, 1.0), "draw": lambda axes: None},
    "training": lambda _: {"runs": history()},
    "training_data": lambda _: {"runs": {"a": history()}},
    "training_figure": lambda _: {"data": plots.training_data(history())},
    "trajectories": lambda _: {"model": MODEL, "x": X, "y": Y, "sample": 1},
    "trajectory_data": lambda _: {"model": MODEL, "x": X, "y": Y, "sample": 1},
    "trajectory_figure": lambda _: {"data": plots.trajectory_data(MODEL, X, Y)},
}
TASKS: dict[str, Good] = {
    "Dataset": lambda _: {
        name: getattr(ARRAYS, name)
        for name in ("train_x", "train_y", "test_x", "test_y", "classes", "standardiser")
    }
    | {"name": "digits", "checksums": {}},
    "get": lambda _: {"name": "digits"},
    "rollout": lambda _: {
        "policy": tasks.TASKS["cartpole"].expert, "environment": "CartPole-v1", "episodes": 1,
        "seed": 0,
    },
}  # fmt: skip
TRAINING: dict[str, Good] = {
    "TrainingConfig": lambda _: {
        "epochs": 1, "batch_size": 2, "learning_rate": 0.1, "weight_decay": 0.0,
        "schedule": "cosine", "optimizer": "adam", "seed": 0,
    },
    "accuracy": lambda _: {"model": MODEL, "x": X, "y": Y},
    "fit": lambda _: {
        "model": teq.LoopedMLP(6, 5, 3), "x": X, "y": Y, "config": TrainingConfig(epochs=1),
        "validation": (X, Y), "on_epoch": None, "on_step": None, "on_checkpoint": None,
        "resume": None, "loss": torch.nn.functional.cross_entropy,
    },
    "minibatches": lambda _: {"count": 3, "batch_size": 2, "generator": torch.Generator()},
    "predict": lambda _: {"model": MODEL, "x": X, "batch_size": 2},
}  # fmt: skip
CHECKPOINT: dict[str, Good] = {
    "describe": lambda at: {"folder": folder(at)},
    "exists": lambda at: {"folder": folder(at)},
    "load": lambda at: {"folder": folder(at)},
    "network_name": lambda _: {"model": MODEL},
    "save": lambda at: {"folder": at / "new", "checkpoint": checkpoint.Checkpoint(MODEL)},
    "encode": lambda _: {"value": 1},
    "decode": lambda _: {"value": 1},
}
CORE: dict[str, Good] = {
    "load": lambda _: {"name": "digits"},
    "Anderson": lambda _: {"memory": 3, "inner": teq.GaussSeidel(), "tol": 1e-3, "max_steps": 9},
    "AveragePooling": lambda _: {"size": 2},
    "Block": lambda _: {
        "net": torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh()),
        "feedback": 0.5, "encoder": None, "shape": (6,), "gradient": "centered",
        "solver": "anderson", "tol": 1e-3, "max_steps": 9, "on_failure": "warn",
    },
    "CenteredEP": lambda _: {"beta": 0.1, "max_gain": 2.0},
    "ContinualEP": lambda _: {"beta": 0.1, "rate": 1e-3},
    "ContrastiveLearning": lambda _: {"stiffness": 0.1},
    "CoupledLearning": lambda _: {"eta": 0.1, "stiffness": 0.1},
    "FixedPoint": lambda _: {"damping": 0.5, "tol": 1e-3, "max_steps": 9},
    "GaussSeidel": lambda _: {"order": "parity", "tol": 1e-3, "max_steps": 9},
    "GradientDescent": lambda _: {"step_size": 0.5, "tol": 1e-3, "max_steps": 9},
    "HolomorphicEP": lambda _: {"beta": 0.1, "points": 4},
    "ImplicitGradient": lambda _: {"solver": teq.Anderson()},
    "MaxPooling": lambda _: {"size": 2},
    "OneSidedEP": lambda _: {"beta": 0.1, "negative": True},
    "RandomSignEP": lambda _: {"beta": 0.1},
    "RecurrentBackprop": lambda _: {},
    "Residual": lambda _: {
        "body": torch.nn.Linear(3, 3), "shortcut": torch.nn.Identity(), "scale": 1.0,
    },
    "SoftPooling": lambda _: {"size": 2, "temperature": 0.5},
    "UnrolledGradient": lambda _: {"steps": 5},
    "VectorFieldEP": lambda _: {"beta": 0.1, "correction": True},
    "certify": lambda _: {
        "model": MODEL, "x": X, "y": Y, "loss": torch.nn.functional.cross_entropy,
        "min_cosine": 0.9, "max_norm_error": 0.1,
    },
    "convert": lambda _: {
        "net": torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)),
        "feedback": 0.5, "encoder": torch.nn.Identity(), "shape": (6,), "gradient": None,
        "solver": teq.GaussSeidel(), "tol": 1e-3, "max_steps": 9, "on_failure": "warn",
    },
    "nudged_backward": lambda _: {"model": MODEL, "x": X, "y": Y, "gradient": teq.CenteredEP()},
    "nudged_gradients": lambda _: {"model": MODEL, "x": X, "y": Y, "gradient": None},
    "project_": lambda _: {"model": teq.LoopedMLP(6, 5, 3, spectral_norm=False), "radius": 0.5},
}  # fmt: skip
GOOD: dict[ModuleType, dict[str, Good]] = {
    teq: CORE,
    plots: PLOTS,
    tasks: TASKS,
    training: TRAINING,
    checkpoint: CHECKPOINT,
}

MODELS = {"BackpropConvNet", "BackpropMLP", *(m.__name__ for m in teq.models.MODELS.values())}
PLAIN = {
    "PhaseTrace", "trace_phases", "Certificate", "EquilibriumModel", "Solution", "Status", "Trace",
    *(n for n in teq.__all__ if n.endswith(("Error", "Warning"))),
    *MODELS,
    "TASKS", "Task", "Standardiser", "Epoch", "History", "RelaxationMonitor", "Checkpoint",
}  # fmt: skip
"""Tables and containers that take what they are given; models are in `test_model_boundary`."""


FUNCTIONS = {"policy", "draw", "loss", "on_epoch", "on_step", "on_checkpoint"}
"""Arguments that are functions: what they raise themselves is theirs."""


def public(module: ModuleType) -> set[str]:
    named = getattr(module, "__all__", None)
    if named is not None:
        return set(named)
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    }


@pytest.mark.parametrize("module", GOOD, ids=lambda m: m.__name__)
def test_every_public_name_is_looked_at(module: ModuleType) -> None:
    assert public(module) - PLAIN == set(GOOD[module])


def consume(found: Any) -> None:
    """Generators and contexts do their work, and their checks, when they are used."""
    if hasattr(found, "__enter__"):
        with found:
            return
    if inspect.isgenerator(found):
        list(found)


CALLS = [(m, name) for m, entries in GOOD.items() for name in entries]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("module", "name"), CALLS, ids=[f"{m.__name__}.{n}" for m, n in CALLS])
def test_nonsense_is_refused_in_a_sentence(
    module: ModuleType, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a text may be taken for the name of a folder to write to
    call, entry = getattr(module, name), GOOD[module][name]
    consume(call(**entry(tmp_path)))
    wrong = unrefused(
        lambda **given: consume(call(**given)), lambda: entry(tmp_path), FUNCTIONS, meanings(call)
    )
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", [n for n in sklearn.__all__ if n.startswith("EqProp")])
@pytest.mark.filterwarnings("ignore")
def test_parameters_of_estimators(name: str) -> None:
    """Refused by this library, or by scikit-learn where the parameter is one of its own."""
    cls = getattr(sklearn, name)
    small = {"hidden_size": 3, "max_iter": 1}
    y = Y.numpy() % 2
    wrong = []
    for parameter in inspect.signature(cls).parameters:
        for kind, value in NONSENSE.items():
            try:
                cls(**{**small, parameter: value}).fit(X.numpy(), y)
            except ValueError as error:
                if "\n" in str(error) and parameter != "random_state":
                    wrong.append(f"{parameter} = {kind}: several lines, {error}")
            except Exception as error:
                wrong.append(f"{parameter} = {kind}: {type(error).__name__} {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", sorted(NONSENSE))
def test_tables(kind: str, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    for options in ({"path": NONSENSE[kind]}, {"target": NONSENSE[kind]}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                read_table(**{"path": tmp_path / "data.csv", **options})
            except TorEqPropError as error:
                said = str(error)
            else:
                said = ""
        assert "\n" not in said


def test_fit_wants_a_target_for_each_sample() -> None:
    with pytest.raises(teq.InvalidInputError, match="x has 4 samples and y has 6"):
        training.fit(MODEL, X, torch.zeros(6).long(), TrainingConfig(epochs=1))
    with pytest.raises(teq.InvalidInputError, match="labels from 0 to 7 and the model has 3"):
        training.fit(MODEL, X, torch.tensor([0, 7, 1, 2]), TrainingConfig(epochs=1))
    with pytest.raises(teq.InvalidInputError, match="must be int64"):
        training.fit(MODEL, X, Y.int(), TrainingConfig(epochs=1))
