"""The same seed gives the same fit in any thread, and a regressor keeps its targets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from toreqprop.errors import InvalidInputError
from toreqprop.sklearn import EqPropClassifier, EqPropRegressor

pytestmark = pytest.mark.filterwarnings("ignore:The loss was still falling")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 5))
LABELS = (X[:, 0] > 0).astype(int)


def weights(model: Any) -> list[np.ndarray]:
    return [p.detach().numpy() for p in model.model_.parameters()]


def same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_forty_eight_fits_in_threads_are_one_fit() -> None:
    def fit(number: int) -> list[np.ndarray]:
        torch.rand(number)  # other users of torch's generator, at any moment
        model = EqPropClassifier(16, max_iter=3, tol=0, n_iter_no_change=9, random_state=7)
        return weights(model.fit(X, LABELS))

    alone = fit(0)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(fit, range(48)))
    different = [k for k, each in enumerate(found) if not same(alone, each)]
    assert not different


def test_a_fit_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    EqPropClassifier(4, max_iter=1, tol=1, n_iter_no_change=1, random_state=0).fit(X, LABELS)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("change", ["more", "fewer", "column"])
@pytest.mark.parametrize("how", ["partial_fit", "warm_start"])
def test_a_regressor_keeps_its_targets(how: str, change: str) -> None:
    one, two = X[:, 0], X[:, :2]
    first, second = {
        "more": (one, two),
        "fewer": (two, one),
        "column": (one, one[:, None]),
    }[change]
    model = EqPropRegressor(8, max_iter=1, tol=1e9, n_iter_no_change=1, random_state=0)
    if how == "warm_start":
        model.set_params(warm_start=True)
        model.fit(X, first)
        again = model.fit
    else:
        model.partial_fit(X, first)
        again = model.partial_fit
    before = model.predict(X)
    with pytest.raises(InvalidInputError, match="keep the targets, or fit a new regressor"):
        again(X, second)
    assert np.array_equal(model.predict(X), before)
    assert before.shape == first.shape


def test_a_new_fit_may_have_other_targets() -> None:
    model = EqPropRegressor(8, max_iter=1, tol=1e9, n_iter_no_change=1, random_state=0)
    assert model.fit(X, X[:, 0]).predict(X).shape == (40,)
    assert model.fit(X, X[:, :2]).predict(X).shape == (40, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0),
        ("learning_rate", float("nan")),
        ("beta", 0),
        ("beta", "0.1"),
        ("alpha", float("inf")),
        ("radius", None),
        ("tol", "small"),
        ("relaxation_tol", -1),
        ("max_iter", 2.5),
        ("hidden_size", True),
        ("validation_fraction", "half"),
        ("batch_size", 0),
        ("early_stopping", "yes"),
    ],
)
def test_bad_parameters_are_named(name: str, value: Any) -> None:
    model = EqPropClassifier().set_params(**{name: value})
    with pytest.raises(InvalidInputError, match=f"^{name} must be"):
        model.fit(X, LABELS)
