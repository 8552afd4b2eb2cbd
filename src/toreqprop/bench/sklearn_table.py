"""`EqPropClassifier` and `EqPropRegressor` against scikit-learn's own networks, all at defaults.

Both models of a comparison get the same folds, the same random_state and the same features, once
standardised by a `StandardScaler` fitted in each training fold and once as they are. A comparison
passes if the mean score is at least that of the other model less `BOUNDS`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from toreqprop.errors import InvalidInputError
from toreqprop.evidence import Measurement
from toreqprop.sklearn import EqPropClassifier, EqPropRegressor

Score = Literal["accuracy", "R²"]
Features = Literal["standardised", "raw"]

FOLDS = 5
BOUNDS: dict[Score, float] = {"accuracy": 0.01, "R²": 0.03}
"""How far below scikit-learn's network the mean score may be."""


@dataclass(frozen=True)
class Data:
    """A data set of scikit-learn's, by the function that loads it."""

    name: str
    load: Callable[..., Any]
    score: Score


DATA = (
    Data("digits", load_digits, "accuracy"),
    Data("wine", load_wine, "accuracy"),
    Data("breast cancer", load_breast_cancer, "accuracy"),
    Data("iris", load_iris, "accuracy"),
    Data("diabetes", load_diabetes, "R²"),
)
MODELS: dict[Score, tuple[type[BaseEstimator], type[BaseEstimator]]] = {
    "accuracy": (EqPropClassifier, MLPClassifier),
    "R²": (EqPropRegressor, MLPRegressor),
}


@dataclass(frozen=True)
class Comparison:
    """One data set: the scores of every fold, seed by seed."""

    data: str
    features: Features
    score: Score
    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def our_mean(self) -> float:
        return float(np.mean(self.ours))

    @property
    def their_mean(self) -> float:
        return float(np.mean(self.theirs))

    @property
    def gap(self) -> float:
        """EP minus scikit-learn's network."""
        return self.our_mean - self.their_mean

    @property
    def passed(self) -> bool:
        # Means of equal scores in another order may differ in the last digit.
        return self.gap >= -BOUNDS[self.score] - 1e-12

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        means = {"our_mean": self.our_mean, "their_mean": self.their_mean, "gap": self.gap}
        return {**asdict(self), **means, "bound": -BOUNDS[self.score], "passed": self.passed}


def select(names: Sequence[str] | None) -> tuple[Data, ...]:
    """The data sets of these names; all where there are none."""
    known = {data.name: data for data in DATA}
    for name in names or ():
        if name not in known:
            raise InvalidInputError(f"There is no data set {name!r}: choose {', '.join(known)}.")
    return tuple(known[name] for name in names) if names else DATA


KINDS: tuple[Features, ...] = ("standardised", "raw")


def compare(data: str, features: Features, seeds: Sequence[int]) -> dict[str, Any]:
    """Cross-validate both models on a data set, with or without a scaler before them."""
    (chosen,) = select([data])
    x, y = chosen.load(return_X_y=True)
    x = x.astype(np.float32)  # both models compute in the type they are given
    found = [
        _cross_validate(cls, x, y, chosen.score, features, seeds) for cls in MODELS[chosen.score]
    ]
    (ours, our_seconds), (theirs, their_seconds) = found
    made = Comparison(data, features, chosen.score, ours, theirs)
    return {**made.as_dict(), "timing": {"ours": our_seconds, "theirs": their_seconds}}


def measurements(chosen: Sequence[Data], seeds: Sequence[int]) -> list[Measurement]:
    """All comparisons as jobs."""
    return [
        Measurement(
            "sklearn",
            f"{data.name}, {features}, {len(seeds)} from {seeds[0]}",
            f"{__name__}:compare",
            (("data", data.name), ("features", features), ("seeds", tuple(seeds))),
            weight=2.0 if data.name == "digits" else 1.0,
        )
        for data in chosen
        for features in KINDS
    ]


def _cross_validate(
    cls: type[BaseEstimator],
    x: np.ndarray,
    y: np.ndarray,
    score: Score,
    features: Features,
    seeds: Sequence[int],
) -> tuple[tuple[float, ...], float]:
    split = StratifiedKFold if score == "accuracy" else KFold
    scores, started = [], time.perf_counter()
    for seed in seeds:
        for train, test in split(FOLDS, shuffle=True, random_state=seed).split(x, y):
            model = cls(random_state=seed)
            if features == "standardised":
                model = make_pipeline(StandardScaler(), model)
            with warnings.catch_warnings():
                # Neither is finished after its default number of passes on every data set.
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(x[train], y[train])
            scores.append(float(model.score(x[test], y[test])))
    return tuple(scores), time.perf_counter() - started
