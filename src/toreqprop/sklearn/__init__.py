"""Estimators with scikit-learn's conventions, trained by equilibrium propagation."""

from __future__ import annotations

from toreqprop.sklearn.estimators import EqPropClassifier, EqPropRegressor

__all__ = ["EqPropClassifier", "EqPropRegressor"]
