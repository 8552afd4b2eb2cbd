"""What the classifier and the regressor share: parameters, training, early stopping."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning as NotConverged
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from toreqprop import checks
from toreqprop.energies import Bound
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import CenteredEP
from toreqprop.models import EquilibriumModel, LoopedMLP, ResistiveMLP
from toreqprop.private_generator import drawing_from
from toreqprop.sklearn.scaling import Scaling
from toreqprop.table_defaults import CLASSES, TableDefaults

_LEFT_OPEN = {
    "hidden_size": "hidden", "learning_rate": "learning_rate", "alpha": "alpha",
    "max_iter": "epochs", "schedule": "schedule", "label_smoothing": "label_smoothing",
    "bound": "bound",
}  # fmt: skip
"""Parameters that may be None, and what they are called among the defaults."""

FLOATS = (np.float64, np.float32)


class EqPropEstimator(BaseEstimator):
    """What classifier and regressor share: parameters, the training loop, early stopping.

    The defaults are those of every small table (`toreqprop.table_defaults`): parameters left at
    None are what was chosen for classes, or for numbers.
    """

    _defaults: ClassVar[TableDefaults]

    def __init__(
        self,
        hidden_size: int | None = None,
        *,
        beta: float = CLASSES.beta,
        radius: float = CLASSES.radius,
        learning_rate: float | None = None,
        alpha: float | None = None,
        schedule: str | None = None,
        label_smoothing: float | None = None,
        batch_size: int | str = "auto",
        max_iter: int | None = None,
        tol: float = 1e-4,
        n_iter_no_change: int = CLASSES.patience,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        standardize: bool = True,
        relaxation_tol: float = 1e-3,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
        network: str = "looped",
        bound: str | None = None,
    ) -> None:
        self.hidden_size = hidden_size
        self.beta = beta
        self.radius = radius
        self.learning_rate = learning_rate
        self.alpha = alpha
        self.schedule = schedule
        self.label_smoothing = label_smoothing
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.standardize = standardize
        self.relaxation_tol = relaxation_tol
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.network = network
        self.bound = bound

    # What differs between the two ---------------------------------------------------------

    def _outputs(self) -> int:
        raise NotImplementedError

    def _encode(self, y: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _losses(self, output: Tensor, target: Tensor) -> Tensor:
        raise NotImplementedError

    def _score_encoded(self, output: np.ndarray, target: np.ndarray, weight: np.ndarray) -> float:
        raise NotImplementedError

    # Training -----------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        checks.choice("network", self.network, ("looped", "resistive"))
        checks.choice("bound", self._setting("bound"), get_args(Bound))
        for name in ("hidden_size", "max_iter", "n_iter_no_change"):
            checks.whole_number(name, self._setting(name), 1)
        checks.choice("schedule", self._setting("schedule"), ("constant", "cosine"))
        for name in ("alpha", "tol"):
            checks.number(name, self._setting(name), 0)
        smoothing = self._setting("label_smoothing")
        if checks.number("label_smoothing", smoothing, 0, typical="0.1") > 1:
            raise InvalidInputError(
                f"label_smoothing must be from 0 to 1, got {checks.shown(smoothing)}. Typical: 0.1."
            )
        for name in ("learning_rate", "beta", "radius", "relaxation_tol"):
            checks.number(name, self._setting(name), 0, above=True)
        if not (isinstance(self.batch_size, str) and self.batch_size == "auto") and not (
            isinstance(self.batch_size, Integral) and self.batch_size >= 1
        ):
            raise InvalidInputError(
                f'batch_size must be "auto" or >= 1, got {checks.shown(self.batch_size)}.'
            )
        fraction = self.validation_fraction
        if not isinstance(fraction, Real) or not 0 < fraction < 1:
            raise InvalidInputError(
                f"validation_fraction must be between 0 and 1, got {checks.shown(fraction)}."
            )
        for name in ("early_stopping", "standardize", "warm_start", "verbose"):
            if not isinstance(getattr(self, name), bool | np.bool_ | int):
                raise InvalidInputError(
                    f"{name} must be True or False, got {checks.shown(getattr(self, name))}."
                )

    def _setting(self, name: str) -> Any:
        """A parameter, or where it is None what was chosen for tables of this kind."""
        given = getattr(self, name)
        if given is not None or name not in _LEFT_OPEN:
            return given
        return getattr(self._defaults, _LEFT_OPEN[name])

    def _start(self, x: np.ndarray, target: np.ndarray, weight: np.ndarray | None) -> None:
        """A new network, its optimizer and scaling, from this data's dtype and random_state."""
        self._random = check_random_state(self.random_state)
        self._dtype = torch.float64 if x.dtype == np.float64 else torch.float32
        self._scaling = Scaling.fit(x, weight) if self.standardize else Scaling.identity()
        self._target_scaling = self._scale_target(target, weight)
        seed = int(self._random.randint(2**31 - 1))
        with drawing_from(torch.Generator().manual_seed(seed)):
            self.model_ = self._network(x.shape[1])
        self.model_ = self.model_.to(self._dtype)
        rate = float(self._setting("learning_rate"))
        self._optimizer = torch.optim.Adam(self.model_.parameters(), lr=rate)
        self.loss_curve_: list[float] = []
        self.validation_scores_: list[float] | None = [] if self.early_stopping else None
        self.n_iter_ = 0
        self.t_ = 0

    def _network(self, features: int) -> EquilibriumModel:
        hidden, outputs = int(self._setting("hidden_size")), self._outputs()
        gradient, tol = CenteredEP(float(self.beta)), float(self.relaxation_tol)
        if self.network == "resistive":
            return ResistiveMLP([features, hidden, outputs], gradient=gradient, tol=tol)
        return LoopedMLP(
            features,
            hidden,
            outputs,
            radius=float(self.radius),
            bound=self._setting("bound"),
            gradient=gradient,
            tol=tol,
        )

    def _scale_target(self, target: np.ndarray, weight: np.ndarray | None) -> Scaling:
        return Scaling.identity()

    def _tensors(
        self, x: np.ndarray, target: np.ndarray, weight: np.ndarray | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        count = np.ones(len(x)) if weight is None else weight
        goal = self._target_scaling(target)
        return (
            torch.as_tensor(self._scaling(x)).to(self._dtype),
            torch.as_tensor(goal).to(torch.long if goal.dtype.kind == "i" else self._dtype),
            torch.as_tensor(count).to(self._dtype),
        )

    def _size(self, rows: int) -> int:
        """Samples of a step."""
        return min(CLASSES.batch_size, rows) if self.batch_size == "auto" else int(self.batch_size)

    def _epoch(
        self,
        x: Tensor,
        target: Tensor,
        weight: Tensor,
        rates: Iterator[float] | None = None,
    ) -> float:
        """One pass of shuffled minibatches, each at its own rate; the mean loss."""
        size = self._size(len(x))
        order = torch.arange(len(x))
        if size < len(x):
            order = torch.from_numpy(self._random.permutation(len(x)))
        total, alpha = 0.0, self._setting("alpha")
        for batch in order.split(size):
            if rates is not None:
                self._optimizer.param_groups[0]["lr"] = next(rates)
            self._optimizer.zero_grad()
            losses = self._losses(self.model_(x[batch]), target[batch])
            share = weight[batch]
            loss = (share * losses).sum() / share.sum()
            penalty = sum((p.square().sum() for p in self._weights()), x.new_zeros(()))
            (loss + 0.5 * alpha / float(share.sum()) * penalty).backward()
            self._optimizer.step()
            total += float(loss.detach()) * float(share.sum())
            self.t_ += len(batch)
        return total / float(weight.sum())

    def _weights(self) -> list[Tensor]:
        return [p for p in self.model_.parameters() if p.dim() > 1]

    def _train(self, x: np.ndarray, target: np.ndarray, weight: np.ndarray | None) -> None:
        if weight is not None and bool((weight == 0).any()):
            kept = weight != 0
            x, target, weight = x[kept], target[kept], weight[kept]
        if not (self.warm_start and hasattr(self, "model_")):
            self._start(x, target, weight)
        held = None
        if self.early_stopping:
            rows = np.arange(len(x))
            train, test = train_test_split(
                rows,
                test_size=self.validation_fraction,
                random_state=self._random.randint(2**31 - 1),
                stratify=target if target.dtype.kind == "i" else None,
            )
            held = (x[test], target[test], None if weight is None else weight[test])
            x, target = x[train], target[train]
            weight = None if weight is None else weight[train]
        tensors = self._tensors(x, target, weight)
        best, since, kept_weights = np.inf, 0, None
        passes = int(self._setting("max_iter"))
        rates = self._rates(passes * -(-len(x) // self._size(len(x))))
        for _ in range(passes):
            loss = self._epoch(*tensors, rates)
            self.loss_curve_.append(loss)
            self.n_iter_ += 1
            measure = loss
            if held is not None:
                score = self._score_encoded(
                    self._output(held[0]),
                    held[1],
                    np.ones(len(held[0])) if held[2] is None else held[2],
                )
                assert self.validation_scores_ is not None
                self.validation_scores_.append(score)
                measure = -score
            if self.verbose:
                shown = "" if held is None else f", validation score {-measure:.4f}"
                print(f"iteration {self.n_iter_}, loss {loss:.6f}{shown}")
            since = 0 if measure < best - self.tol else since + 1
            if measure < best:
                best = measure
                if held is not None:
                    kept_weights = copy.deepcopy(self.model_.state_dict())
            if since >= self.n_iter_no_change:
                break
        else:
            if self.max_iter is not None:  # else it is as many as were found to be best
                _warn_not_converged(int(self.max_iter))
        if kept_weights is not None:
            self.model_.load_state_dict(kept_weights)
        self.loss_ = self.loss_curve_[-1]
        self.best_loss_ = None if self.early_stopping else min(self.loss_curve_)
        self.best_validation_score_ = -float(best) if self.early_stopping else None

    def _rates(self, steps: int) -> Iterator[float]:
        """The learning rate of every step of a fit."""
        rate = float(self._setting("learning_rate"))
        falls = self._setting("schedule") == "cosine"
        for step in range(steps):
            yield rate * (1 + math.cos(math.pi * step / steps)) / 2 if falls else rate

    def _train_a_part(
        self, x: np.ndarray, target: np.ndarray, weight: np.ndarray | None, *, first: bool
    ) -> None:
        """One pass over what may be a part of the data."""
        if first:
            self._start(x, target, weight)
        self.loss_curve_.append(self._epoch(*self._tensors(x, target, weight)))
        self.n_iter_ += 1
        self.loss_ = self.loss_curve_[-1]

    @torch.no_grad()
    def _output(self, x: np.ndarray) -> np.ndarray:
        scaled = torch.as_tensor(self._scaling(x)).to(self._dtype)
        return torch.cat([self.model_(part) for part in scaled.split(1000)]).numpy()

    def _checked(self, x: Any) -> np.ndarray:
        check_is_fitted(self)
        return validate_data(self, x, dtype=FLOATS, reset=False)


def _warn_not_converged(max_iter: int) -> None:
    import warnings

    warnings.warn(
        f"The loss was still falling after max_iter={max_iter} iterations: raise max_iter or tol.",
        NotConverged,
        stacklevel=4,
    )
