"""Measurements first: the multi-task benchmark, estimators and sweeps; reports render them."""
