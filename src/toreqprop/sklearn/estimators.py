"""`EqPropClassifier` and `EqPropRegressor`: looped or resistive networks behind fit and predict."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import _check_sample_weight, validate_data
from torch import Tensor
from torch.nn import functional as F

from toreqprop.errors import InvalidInputError
from toreqprop.sklearn.base import FLOATS, EqPropEstimator
from toreqprop.sklearn.scaling import Scaling
from toreqprop.table_defaults import CLASSES, NUMBERS


class EqPropClassifier(ClassifierMixin, EqPropEstimator):
    """A classifier trained by equilibrium propagation, with `MLPClassifier`'s conventions.

    Args:
        hidden_size: neurons of the hidden layer; None, as for ``learning_rate``, ``alpha``,
            ``schedule``, ``label_smoothing``, ``bound`` and ``max_iter``, is what was chosen on
            validation folds of small tables.
        beta: strength of the nudge.
        radius: bound on the recurrent spectral norm.
        learning_rate, batch_size, max_iter, tol, n_iter_no_change: Adam's rate; samples per step
            ("auto" is 200 or all); most passes; training stops after ``n_iter_no_change`` passes
            that improve by less than ``tol``.
        alpha: strength of the L2 penalty, half of it over the number of samples in a step.
        schedule: "cosine", where the rate falls to zero over ``max_iter`` passes, or "constant".
        label_smoothing: part of a label's probability that is spread over all classes.
        early_stopping, validation_fraction: stop by a held-out score instead of the loss.
        standardize: scale features to mean zero and variance one, inside the estimator.
        relaxation_tol: relative residual of the relaxations.
        warm_start: continue from the last fit.
        random_state: seed or generator; an integer reproduces a fit exactly.
        verbose: print every pass.
        network: "looped", or "resistive" for a circuit of conductances, which has no radius and
            learns faster: try a learning rate of 0.05.
        bound: how the norm is kept: "tight", "proven" or "exact", see `LoopedMLP`.

    Attributes:
        model_: the trained network. classes_, n_features_in_, feature_names_in_, n_iter_,
        loss_curve_, loss_, best_loss_, validation_scores_, best_validation_score_: as usual.
    """

    _defaults = CLASSES

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> EqPropClassifier:
        """Train on X (samples, features) and labels y (samples,)."""
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=FLOATS)
        check_classification_targets(y)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        if not (self.warm_start and hasattr(self, "classes_")):
            self.classes_ = unique_labels(y)
        self._train(X, self._encode(y), weight)
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> EqPropClassifier:
        """One more pass over a part of the data; name all ``classes`` the first time."""
        first = not hasattr(self, "model_")
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=FLOATS, reset=first)
        check_classification_targets(y)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        if first:
            self.classes_ = unique_labels(y) if classes is None else unique_labels(classes)
        self._train_a_part(X, self._encode(y), weight, first=first)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, shape (samples, classes)."""
        logits = self._output(self._checked(X))
        odds = np.exp(logits - logits.max(1, keepdims=True))
        return odds / odds.sum(1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most likely label of each sample."""
        output = self._output(self._checked(X))
        return self.classes_[output.argmax(1)]

    def _outputs(self) -> int:
        return len(self.classes_)

    def _encode(self, y: np.ndarray) -> np.ndarray:
        unknown = set(np.unique(y)) - set(self.classes_)
        if unknown:
            raise InvalidInputError(
                f"y has labels that were not there at first: {sorted(unknown)}; name every class "
                "in the first partial_fit(..., classes=...)."
            )
        return np.searchsorted(self.classes_, y).astype(np.int64)

    def _losses(self, output: Tensor, target: Tensor) -> Tensor:
        smoothing = float(self._setting("label_smoothing"))
        return F.cross_entropy(output, target, reduction="none", label_smoothing=smoothing)

    def _score_encoded(self, output: np.ndarray, target: np.ndarray, weight: np.ndarray) -> float:
        return float(accuracy_score(target, output.argmax(1), sample_weight=weight))


class EqPropRegressor(RegressorMixin, EqPropEstimator):
    """A regressor trained by equilibrium propagation on the squared error.

    Parameters as for `EqPropClassifier`, ``label_smoothing`` without effect; with ``standardize``
    the target is scaled as well. Several targets at once, y of shape (samples, targets), are
    predicted together.
    """

    _defaults = NUMBERS

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> EqPropRegressor:
        """Train on X (samples, features) and numbers y (samples,) or (samples, targets)."""
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=FLOATS, multi_output=True, y_numeric=True)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        self._check_targets(y, first=not (self.warm_start and hasattr(self, "model_")))
        self._train(X, self._encode(y), weight)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> EqPropRegressor:
        """One more pass over a part of the data; the first part sets the scaling."""
        first = not hasattr(self, "model_")
        self._check_parameters()
        X, y = validate_data(
            self, X, y, dtype=FLOATS, multi_output=True, y_numeric=True, reset=first
        )
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        self._check_targets(y, first=first)
        self._train_a_part(X, self._encode(y), weight, first=first)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The predicted numbers, in the shape y had."""
        output = self._output(self._checked(X))
        output = self._target_scaling.invert(output)
        return output[:, 0] if self._flat else output

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _outputs(self) -> int:
        return self._targets

    def _check_targets(self, y: np.ndarray, *, first: bool) -> None:
        """Note the shape of y the first time; refuse another shape from then on."""
        flat, targets = y.ndim == 1, 1 if y.ndim == 1 else y.shape[1]
        if first:
            self._flat, self._targets = flat, targets
        elif (flat, targets) != (self._flat, self._targets):
            known = "(samples,)" if self._flat else f"(samples, {self._targets})"
            raise InvalidInputError(
                f"y has shape {y.shape} and had {known} at first: keep the targets, or fit a new "
                "regressor."
            )

    def _encode(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y, dtype=np.float64).reshape(len(y), -1)

    def _scale_target(self, target: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.fit(target, weight) if self.standardize else Scaling.identity()

    def _losses(self, output: Tensor, target: Tensor) -> Tensor:
        return 0.5 * (output - target).square().mean(1)

    def _score_encoded(self, output: np.ndarray, target: np.ndarray, weight: np.ndarray) -> float:
        return float(r2_score(target, self._target_scaling.invert(output), sample_weight=weight))
