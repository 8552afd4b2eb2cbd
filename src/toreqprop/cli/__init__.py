"""The command line: one program, ``toreqprop``."""

from __future__ import annotations

from toreqprop.cli.app import app, main

__all__ = ["app", "main"]
