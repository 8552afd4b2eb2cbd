"""Faster paths, each proven against the NumPy reference."""
