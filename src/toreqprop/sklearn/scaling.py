"""Standardisation inside an estimator, weighted as its samples are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scaling:
    """``(values − mean) / scale`` for each column."""

    mean: np.ndarray
    scale: np.ndarray

    @staticmethod
    def fit(values: np.ndarray, weight: np.ndarray | None) -> Scaling:
        """Weighted mean and deviation of each column; a constant column keeps its scale."""
        wide = values.astype(np.float64)
        mean = np.average(wide, axis=0, weights=weight)
        variance = np.average((wide - mean) ** 2, axis=0, weights=weight)
        scale = np.sqrt(variance)
        # Below this a column varies by rounding only.
        constant = scale <= 1e-12 * np.maximum(np.abs(mean), 1.0)
        return Scaling(mean, np.where(constant, 1.0, scale))

    @staticmethod
    def identity() -> Scaling:
        """No change."""
        return Scaling(np.zeros(1), np.ones(1))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        if values.dtype.kind == "i":
            return values
        return (values - self.mean) / self.scale

    def invert(self, values: np.ndarray) -> np.ndarray:
        """Back to the original units."""
        return values * self.scale + self.mean
