"""Trained networks that ship with the library, each with the record of how it was made."""

from __future__ import annotations

from toreqprop.zoo.recipes import RECIPES
from toreqprop.zoo.shipped import load, record

__all__ = ["RECIPES", "load", "record"]
