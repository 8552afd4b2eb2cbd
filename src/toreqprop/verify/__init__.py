"""Numbered scientific checks: evidence that could have failed."""
