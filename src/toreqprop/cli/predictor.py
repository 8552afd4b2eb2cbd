"""A trained model with what it takes to use it on raw rows: scaling, labels, columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.checkpoint import Checkpoint
from toreqprop.cli.samples import Part, Samples
from toreqprop.errors import CheckpointError, InvalidInputError
from toreqprop.models import EquilibriumModel
from toreqprop.sklearn.scaling import Scaling
from toreqprop.training import Loss


@dataclass(frozen=True, eq=False)
class Predictor:
    """Raw rows in, labels or numbers out; ``labels`` is None for a regression."""

    model: nn.Module
    features: int
    scaling: Scaling
    target_scaling: Scaling
    labels: np.ndarray | None
    target_name: str
    columns: tuple[str, ...] | None

    @property
    def loss(self) -> Loss:
        return F.mse_loss if self.labels is None else F.cross_entropy

    def inputs(self, raw: np.ndarray) -> Tensor:
        """Scaled rows in float32, in the shape the model takes."""
        if raw.shape[1] != self.features:
            raise InvalidInputError(
                f"The data has {raw.shape[1]} features and the model takes {self.features}."
            )
        rows = torch.from_numpy(self.scaling(raw).astype(np.float32))
        return self.model.arrange(rows) if isinstance(self.model, EquilibriumModel) else rows

    def targets(self, y: np.ndarray) -> Tensor:
        """Class numbers (n,), or scaled numbers (n, 1)."""
        if self.labels is None:
            if y.dtype.kind == "U":
                raise InvalidInputError(f"The target {self.target_name!r} is text, not numbers.")
            scaled = self.target_scaling(y.astype(np.float64))
            return torch.from_numpy(scaled.astype(np.float32)).reshape(-1, 1)
        # As text, so that a task's 7 and a CSV file's 7 are one label and 007 is another.
        known = {str(label): k for k, label in enumerate(self.labels.tolist())}
        written = [str(label) for label in y.tolist()]
        unknown = [label for label in written if label not in known]
        if unknown:
            raise InvalidInputError(
                f"The target {self.target_name!r} has the label {unknown[0]!r}, which the model "
                "was not trained on."
            )
        return torch.tensor([known[label] for label in written])

    @torch.no_grad()
    def outputs(self, raw: np.ndarray) -> Tensor:
        """What the model gives for raw rows: logits, or scaled numbers."""
        self.model.eval()
        found = torch.cat([self.model(part) for part in self.inputs(raw).split(1000)])
        width = 1 if self.labels is None else len(self.labels)
        if found.shape != (len(raw), width):
            raise CheckpointError(
                f"The model has outputs of shape {tuple(found.shape[1:])} for {width} of the "
                "checkpoint: train it again."
            )
        return found

    def predict(self, raw: np.ndarray) -> np.ndarray:
        """The most likely label, or the number, of each row."""
        outputs = self.outputs(raw)
        if self.labels is None:
            return self.target_scaling.invert(outputs[:, 0].double().numpy())
        return self.labels[outputs.argmax(1).numpy()]

    def probabilities(self, raw: np.ndarray) -> np.ndarray:
        """Probability of each label, shape (n, labels)."""
        return self.outputs(raw).double().softmax(1).numpy()

    def scores(self, part: Part) -> dict[str, float]:
        """Accuracy, chance and loss; or R², root mean square and mean absolute error."""
        raw, y = part
        target = self.targets(y)
        outputs = self.outputs(raw)
        if self.labels is not None:
            counts = torch.bincount(target)
            return {
                "accuracy": float((outputs.argmax(1) == target).double().mean()),
                "chance": float(counts.max() / len(target)),
                "loss": float(F.cross_entropy(outputs, target)),
            }
        error = self.predict(raw) - y
        spread = float(np.square(y - y.mean()).sum())
        if spread == 0:
            raise InvalidInputError(
                f"The target {self.target_name!r} is the same in every row: R² is not defined."
            )
        return {
            "r2": 1 - float(np.square(error).sum()) / spread,
            "rmse": float(np.sqrt(np.square(error).mean())),
            "mae": float(np.abs(error).mean()),
        }


def predictor_for(samples: Samples, model: nn.Module, labels: np.ndarray | None) -> Predictor:
    """What a model about to be trained on ``samples`` will be used with."""
    target_scaling = Scaling.identity()
    if samples.regression:
        target_scaling = Scaling.fit(samples.train[1].reshape(-1, 1), None)
    return Predictor(
        model,
        samples.train[0].shape[1],
        samples.scaling,
        target_scaling,
        labels,
        samples.target_name,
        samples.columns,
    )


def labels_of(samples: Samples) -> np.ndarray | None:
    """The classes, sorted; None for a regression."""
    if samples.regression:
        return None
    parts = (samples.train, samples.validation, samples.test)
    return np.unique(np.concatenate([part[1] for part in parts if part is not None]))


def describe(predictor: Predictor) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `restore` needs: plain data and tensors."""
    about = {
        "features": predictor.features,
        "target": predictor.target_name,
        "columns": None if predictor.columns is None else list(predictor.columns),
        "labels": None if predictor.labels is None else predictor.labels.tolist(),
    }
    arrays = {
        "mean": predictor.scaling.mean,
        "scale": predictor.scaling.scale,
        "target_mean": predictor.target_scaling.mean,
        "target_scale": predictor.target_scaling.scale,
    }
    return about, {name: torch.from_numpy(np.asarray(a)) for name, a in arrays.items()}


def restore(checkpoint: Checkpoint) -> Predictor:
    """The predictor of a checkpoint that `toreqprop train` wrote.

    Raises:
        CheckpointError: another program wrote it, or its parts contradict each other.
    """
    about = checkpoint.about.get("predictor")
    arrays = {name: tensor.numpy() for name, tensor in checkpoint.arrays.items()}
    names = ("mean", "scale", "target_mean", "target_scale")
    if (
        not isinstance(about, dict)
        or not {"features", "target", "columns", "labels"} <= set(about)
        or not set(names) <= set(arrays)
    ):
        raise CheckpointError(
            "The checkpoint holds a model but not how to read data: `toreqprop train` did not "
            "write it."
        )
    features, columns = about["features"], about["columns"]
    if type(features) is not int or features < 1:
        raise CheckpointError(f"The checkpoint has {features!r} features: train it again.")
    if columns is not None:
        if not isinstance(columns, list) or not all(isinstance(c, str) for c in columns):
            raise CheckpointError("The checkpoint's columns are not names: train it again.")
        if len(columns) != features:
            raise CheckpointError(
                f"The checkpoint names {len(columns)} columns and has {features} features: train "
                "it again."
            )
    if not isinstance(about["target"], str):
        raise CheckpointError("The checkpoint's target is not a name: train it again.")
    scaling = _scaling(arrays["mean"], arrays["scale"], features)
    target_scaling = _scaling(arrays["target_mean"], arrays["target_scale"], 1)
    labels = None if about["labels"] is None else _labels(about["labels"])
    return Predictor(
        checkpoint.model,
        features,
        scaling,
        target_scaling,
        labels,
        about["target"],
        None if columns is None else tuple(columns),
    )


def _labels(stored: Any) -> np.ndarray:
    """Labels in the type they had: all texts, all whole numbers or all fractions, no two alike."""
    kinds = {type(label) for label in stored} if isinstance(stored, list) else set()
    if kinds not in ({str}, {int}, {float}) or len(set(stored)) < len(stored) or len(stored) < 2:
        raise CheckpointError("The checkpoint's labels are not a list of classes: train it again.")
    if kinds != {int}:
        return np.array(stored)
    large = max(stored) >= 2**63
    if min(stored) < (0 if large else -(2**63)) or max(stored) >= 2**64:
        raise CheckpointError("The checkpoint's labels are beyond 64 bits: train it again.")
    return np.array(stored, np.uint64 if large else np.int64)


def _scaling(mean: np.ndarray, scale: np.ndarray, width: int) -> Scaling:
    for values in (mean, scale):
        if values.shape not in ((), (1,), (width,)) or values.dtype != np.float64:
            raise CheckpointError("The checkpoint's scaling has another shape: train it again.")
    if not np.isfinite(mean).all() or not (np.isfinite(scale) & (scale > 0)).all():
        raise CheckpointError("The checkpoint's scaling is not finite: train it again.")
    return Scaling(mean, scale)
