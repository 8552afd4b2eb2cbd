"""What a network of a small table is trained with where its user says nothing.

The scikit-learn estimators and ``toreqprop train FILE`` share these. Those for classes were chosen
by ``toreqprop tables`` on validation folds of public tables, among the candidates that
``results/tables.json`` lists; those for numbers on generated data (`make_friedman1`,
`make_regression`), among about ten pairs of learning rate and penalty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class TableDefaults:
    """Settings of a training on a small table.

    Attributes:
        hidden: neurons of the hidden layer.
        beta: strength of the nudge.
        radius: bound on the recurrent spectral norm.
        learning_rate: Adam's rate.
        alpha: L2 penalty; half of it over the samples of a step multiplies the squared weights.
        schedule: "cosine" lets the rate fall to zero over all passes, "constant" does not.
        label_smoothing: part of a label's probability that is spread over all classes.
        bound: how the recurrent norm is kept within the radius.
        batch_size: samples per step, or all where there are fewer.
        epochs: most passes over the data.
        patience: passes without improvement after which training stops.
    """

    hidden: int = 64
    beta: float = 0.05
    radius: float = 0.3
    learning_rate: float = 1e-2
    alpha: float = 0.3
    schedule: Literal["constant", "cosine"] = "cosine"
    label_smoothing: float = 0.1
    bound: Literal["proven", "tight"] = "proven"
    batch_size: int = 200
    epochs: int = 50
    patience: int = 10


CLASSES = TableDefaults()
"""Where the target is a class."""
NUMBERS = replace(
    CLASSES,
    hidden=100,
    learning_rate=3e-3,
    alpha=1.0,
    schedule="constant",
    label_smoothing=0.0,
    epochs=200,
)
"""Where the target is a number."""
