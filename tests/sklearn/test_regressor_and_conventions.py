"""What the classifier's tests do not show: the regressor, defaults, generators, weights."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from toreqprop.sklearn import EqPropClassifier, EqPropRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, Y = make_regression(120, 4, noise=5.0, random_state=0)
SMALL: dict[str, Any] = {"hidden_size": 16, "max_iter": 60, "learning_rate": 0.01}


def test_regressor_in_pipelines_searches_and_copies() -> None:
    pipeline = make_pipeline(StandardScaler(), EqPropRegressor(**SMALL, random_state=0))
    grid = {"eqpropregressor__alpha": [1e-4, 1e-1]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, Y)
    assert search.best_score_ > 0.9
    assert cross_val_score(clone(pipeline), X, Y, cv=3).min() > 0.9
    model = clone(search.best_estimator_).fit(X, Y)
    assert (pickle.loads(pickle.dumps(model)).predict(X) == model.predict(X)).all()


def test_regressor_reproduces_and_learns_in_parts() -> None:
    whole = [EqPropRegressor(**SMALL, random_state=s).fit(X, Y).predict(X) for s in (3, 3, 4)]
    assert (whole[0] == whole[1]).all()
    assert not (whole[0] == whole[2]).all()
    model = EqPropRegressor(**SMALL, random_state=0)
    for _ in range(60):
        for part in np.array_split(np.random.default_rng(0).permutation(len(X)), 3):
            model.partial_fit(X[part], Y[part])
    assert model.score(X, Y) > 0.9


def test_regressor_stops_early_by_held_out_score() -> None:
    settings = {**SMALL, "max_iter": 400}
    model = EqPropRegressor(
        **settings, early_stopping=True, validation_fraction=0.25, random_state=0
    ).fit(X, Y)
    assert model.n_iter_ < 400
    assert len(model.validation_scores_) == len(model.loss_curve_) == model.n_iter_
    assert model.best_validation_score_ == max(model.validation_scores_) > 0.9


def test_weights_count_as_repetitions() -> None:
    """A weight of two is the sample twice: the same loss, and so the same optimum."""
    weight = np.where(X[:, 0] > 0, 2.0, 1.0)
    twice = np.concatenate([np.arange(len(X)), np.flatnonzero(weight == 2)])
    settings = {**SMALL, "batch_size": 1000, "random_state": 0}
    weighted = EqPropRegressor(**settings).fit(X, Y, sample_weight=weight)
    repeated = EqPropRegressor(**settings).fit(X[twice], Y[twice])
    plain = EqPropRegressor(**settings).fit(X, Y)
    assert np.allclose(weighted.predict(X), repeated.predict(X), rtol=1e-6)
    assert not np.allclose(weighted.predict(X), plain.predict(X), rtol=1e-6)


def test_loss_curve_and_iterations() -> None:
    model = EqPropClassifier(**SMALL, random_state=0).fit(*load_iris(return_X_y=True))
    assert model.n_iter_ == len(model.loss_curve_) == 60
    assert model.loss_ == model.loss_curve_[-1]
    assert model.best_loss_ == min(model.loss_curve_)
    assert model.loss_curve_[-1] < 0.5 * model.loss_curve_[0]


def test_random_state_takes_a_generator() -> None:
    first, second = (
        EqPropClassifier(**SMALL, random_state=np.random.RandomState(5))
        .fit(*load_iris(return_X_y=True))
        .predict_proba(load_iris().data)
        for _ in range(2)
    )
    assert (first == second).all()


def test_fitting_leaves_the_global_generators_alone() -> None:
    import torch

    torch.manual_seed(0)
    np.random.seed(0)
    before = torch.get_rng_state().clone(), np.random.get_state()[1].copy()
    EqPropRegressor(**SMALL, random_state=0).fit(X, Y)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()


def test_regressor_keeps_names_of_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    model = EqPropRegressor(**SMALL, random_state=0).fit(frame, pandas.Series(Y))
    assert list(model.feature_names_in_) == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("bacd")])
