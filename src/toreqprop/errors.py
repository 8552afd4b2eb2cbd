"""Exceptions and warnings: each message is one sentence that says what to do."""

from __future__ import annotations


class TorEqPropError(Exception):
    """Base class of every error this library raises on purpose."""


class InvalidInputError(TorEqPropError, ValueError):
    """An argument or a batch that cannot be used; the message says what would be accepted."""


class NotFiniteError(InvalidInputError):
    """A loss whose slope has NaN or infinite entries: no nudge can follow it."""


class ConvergenceError(TorEqPropError, RuntimeError):
    """A relaxation did not reach its tolerance and the caller asked to raise."""


class UnsupportedModelError(TorEqPropError, TypeError):
    """A model cannot serve an estimator or a solver; the message names one that works."""


class DataUnavailableError(TorEqPropError, RuntimeError):
    """No source delivered a data file; the message holds the one command that would help."""


class CheckpointError(TorEqPropError, ValueError):
    """A checkpoint that cannot be used; the message says what is wrong with it."""


class LostWorkError(TorEqPropError, RuntimeError):
    """A piece of work whose process was killed more than once."""


class ConvergenceWarning(UserWarning):
    """A relaxation that went wrong: told once per model and kind, counted at the end of `fit`."""
