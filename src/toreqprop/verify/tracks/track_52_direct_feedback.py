"""Track 52: direct feedback alignment, and what its certificate says."""

from __future__ import annotations

from toreqprop.verify.baselines import random_feedback_track

TRACK = random_feedback_track(
    52,
    "Direct Feedback Alignment",
    "direct feedback",
    "direct",
    "Errors sent to every layer at once through random matrices of its own are no gradient, and "
    "the certificate says so; the network learns by them all the same.",
)
