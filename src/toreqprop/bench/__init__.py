"""Measurements first (plain data, JSON); renderers compute nothing."""
