"""scikit-learn's own checks, and what its users do with an estimator."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from toreqprop.errors import InvalidInputError
from toreqprop.sklearn import EqPropClassifier, EqPropRegressor

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",  # short trainings, on purpose
    "ignore::sklearn.exceptions.SkipTestWarning",  # checks of array libraries not installed
)

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]
SMALL: dict[str, Any] = {"hidden_size": 16, "max_iter": 60, "learning_rate": 0.01}


@parametrize_with_checks(
    [EqPropClassifier(**SMALL, random_state=0), EqPropRegressor(**SMALL, random_state=0)]
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_string_labels_probabilities_and_score() -> None:
    model = EqPropClassifier(**SMALL, random_state=0).fit(X, NAMES)
    assert set(model.predict(X)) <= set(NAMES)
    assert model.score(X, NAMES) > 0.93
    probability = model.predict_proba(X)
    assert probability.shape == (150, 3)
    assert np.allclose(probability.sum(1), 1)
    assert np.allclose(np.exp(model.predict_log_proba(X)), probability)
    assert (model.classes_[probability.argmax(1)] == model.predict(X)).all()


def test_random_state_reproduces() -> None:
    fits = [EqPropClassifier(**SMALL, random_state=s).fit(X, Y).predict_proba(X) for s in (1, 1, 2)]
    assert (fits[0] == fits[1]).all()
    assert not (fits[0] == fits[2]).all()


def test_pipeline_grid_search_and_cross_validation() -> None:
    pipeline = make_pipeline(StandardScaler(), EqPropClassifier(**SMALL, random_state=0))
    search = GridSearchCV(pipeline, {"eqpropclassifier__beta": [0.05, 0.2]}, cv=3, n_jobs=2).fit(
        X, Y
    )
    assert search.best_score_ > 0.9
    assert cross_val_score(clone(pipeline), X, Y, cv=3).mean() > 0.9


def test_pickle_and_joblib(tmp_path: Any) -> None:
    model = EqPropClassifier(**SMALL, random_state=0).fit(X, Y)
    joblib.dump(model, tmp_path / "model.joblib")
    for other in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib")):
        assert (other.predict_proba(X) == model.predict_proba(X)).all()


def test_partial_fit_learns_in_parts() -> None:
    order = np.random.default_rng(0).permutation(150)
    model = EqPropClassifier(**SMALL, random_state=0)
    for _ in range(40):
        for part in np.array_split(order, 3):
            model.partial_fit(X[part], NAMES[part], classes=np.unique(NAMES))
    assert model.score(X, NAMES) > 0.93
    assert model.n_iter_ == 120
    with pytest.raises(ValueError, match="classes"):
        model.partial_fit(X[:2], ["other", "setosa"])


def test_early_stopping_uses_held_out_data() -> None:
    settings = {**SMALL, "max_iter": 500}
    model = EqPropClassifier(
        **settings, early_stopping=True, validation_fraction=0.2, random_state=0
    ).fit(X, Y)
    assert model.n_iter_ < 500
    assert len(model.validation_scores_) == model.n_iter_ == len(model.loss_curve_)
    assert model.best_validation_score_ == max(model.validation_scores_)


def test_sample_weight_matters() -> None:
    """Weighting one class away makes the model forget it."""
    weight = np.where(Y == 2, 0.0, 1.0)
    model = EqPropClassifier(**SMALL, random_state=0).fit(X, Y, sample_weight=weight)
    assert (model.predict(X[Y == 2]) != 2).all()


def test_data_frames_keep_their_names() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    model = EqPropClassifier(**SMALL, random_state=0).fit(frame, Y)
    assert list(model.feature_names_in_) == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c", "d"]])


def test_regression_one_and_several_targets() -> None:
    for targets in (1, 2):
        x, y = make_regression(200, 5, n_targets=targets, noise=1.0, random_state=0)
        model = EqPropRegressor(hidden_size=32, max_iter=150, learning_rate=0.01, random_state=0)
        assert model.fit(x, y).predict(x).shape == y.shape
        assert model.score(x, y) > 0.95


def test_verbose_prints_every_pass(capsys: pytest.CaptureFixture[str]) -> None:
    EqPropClassifier(hidden_size=4, max_iter=3, verbose=True, random_state=0).fit(X, Y)
    assert capsys.readouterr().out.count("iteration") == 3


def test_warm_start_goes_on() -> None:
    model = EqPropClassifier(hidden_size=8, max_iter=5, warm_start=True, random_state=0)
    first = model.fit(X, Y).loss_
    assert model.fit(X, Y).loss_ < first
    assert model.n_iter_ == 10


def test_not_converged_says_what_to_do() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        EqPropClassifier(hidden_size=4, max_iter=2, random_state=0).fit(X, Y)
    assert [w.category for w in caught] == [ConvergenceWarning]
    assert "raise max_iter" in str(caught[0].message)


@pytest.mark.parametrize(
    "bad",
    [
        {"hidden_size": 0},
        {"learning_rate": -1.0},
        {"batch_size": 0},
        {"validation_fraction": 1.0},
        {"max_iter": "many"},
    ],
)
def test_bad_parameters(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        EqPropClassifier(**bad).fit(X, Y)


def test_a_resistive_network_behind_fit_and_predict() -> None:
    x, y = load_iris(return_X_y=True)
    options = {"network": "resistive", "hidden_size": 8, "learning_rate": 0.05, "max_iter": 60}
    found = EqPropClassifier(random_state=0, **options).fit(x[::2], y[::2])
    assert type(found.model_).__name__ == "ResistiveMLP"
    assert found.score(x[1::2], y[1::2]) > 0.9
    with pytest.raises(InvalidInputError, match="network"):
        EqPropClassifier(network="relay").fit(x, y)
