"""Track 51: errors that settle, with a random way down."""

from __future__ import annotations

from toreqprop.verify.baselines import random_feedback_track

TRACK = random_feedback_track(
    51,
    "Equilibrium Alignment",
    "equilibrium alignment",
    "equilibrium",
    "A nudged phase whose way down is random settles at errors that are no gradient, and the "
    "certificate says so; forward weights turn towards them, and the network learns.",
)
