"""Track 6: feedback alignment, and what its certificate says."""

from __future__ import annotations

from toreqprop.verify.baselines import random_feedback_track

TRACK = random_feedback_track(
    6,
    "Feedback Alignment",
    "feedback alignment",
    "chain",
    "Errors sent down through fixed random matrices are no gradient, and the certificate says so; "
    "forward weights turn towards them all the same, and the network learns.",
)
