"""Estimators with scikit-learn's conventions, trained by equilibrium propagation."""

from __future__ import annotations

from toreqprop.sklearn.estimators import EqPropClassifier, EqPropRegressor
from toreqprop.sklearn.searching import searching_on

__all__ = ["EqPropClassifier", "EqPropRegressor", "searching_on"]
