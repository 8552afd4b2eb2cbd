"""The names that help and completion show, known without loading PyTorch.

Each is the list of a registry; `tests/test_first_contact.py` holds them against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

MODELS = (
    "looped", "hopfield", "conv", "map", "completion", "transformer", "converted", "resistive",
    "chip", "backprop",
)  # fmt: skip
ESTIMATORS = (
    "one_sided", "centered", "random_sign", "holomorphic", "continual", "vector_field",
    "contrastive", "coupled", "recurrent_backprop", "implicit", "unrolled",
)  # fmt: skip
SOLVERS = ("fixed_point", "gradient_descent", "anderson", "gauss_seidel")
EXAMPLE_NETWORKS = ("lenet", "vgg", "mixer", "residual", "depthwise", "sequence")
MAZE_TASKS = ("maze-reach", "maze-path")
MAZE_METHODS = ("ep", "implicit", "unrolled", "uncoupled", "plain-3", "plain-6", "plain-12")
REWARD_TASKS = ("cartpole", "acrobot")
REWARD_METHODS = ("ep", "implicit", "same-size", "same-depth")
LANGUAGE_METHODS = ("ep", "implicit", "plain")
CIRCUIT_STUDIES = ("mnist-search", "mnist", "digits-search", "digits", "in-situ", "random")
CIFAR_METHODS = ("ep", "backprop")
CIFAR_NETWORKS = ("pure", "hybrid")
COMPLETION_METHODS = ("ep", "implicit", "twin", "deep twin")
CONVOLUTIONAL_TASKS = ("mnist", "fashion")
DEPTH_TASKS = ("mnist", "fashion")
DEPTH_NETWORKS = ("looped", "2", "4", "8")
NORM_KINDS = ("looped", "asymmetric", "stack", "conv", "transformer")
DEVICE_METHODS = ("in situ", "clean EP", "clean backprop", "aware backprop", "frozen")
DATA_VARIABLE = "TOREQPROP_DATA"


def starting(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Shell completion of a known name."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]
