"""The data sets and environments of the benchmark, verified by checksum and split by seed."""

from toreqprop.tasks.control import rollout
from toreqprop.tasks.dataset import Dataset, Standardiser
from toreqprop.tasks.registry import TASKS, Task, get

__all__ = ["TASKS", "Dataset", "Standardiser", "Task", "get", "rollout"]
