"""What a run of the benchmark is trained with: complete, so that it depends on no file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from toreqprop.training import TrainingConfig

ModelName = Literal["ep", "backprop", "shallow", "implicit"]
"""The arms of a row: the equilibrium network by EP; feed-forward networks by backpropagation, with
as many parameters and with the same depth; the equilibrium network by the implicit gradient."""

MODELS: tuple[ModelName, ...] = get_args(ModelName)


@dataclass(frozen=True)
class ModelSettings:
    """What may differ between the arms of a row: ``gain`` is that of the readout, ``beta`` and
    ``tol`` are EP's nudge and the tolerance of its relaxations, None where an arm has none."""

    learning_rate: float
    weight_decay: float
    schedule: Literal["constant", "cosine"] = "cosine"
    gain: float = 1.0
    beta: float | None = None
    tol: float | None = None


@dataclass(frozen=True)
class TaskSettings:
    """The network of a row, what its arms share, and the settings of each arm.

    ``shallow`` is None where the network with as many parameters has the same depth. The implicit
    gradient trains with EP's settings: whatever then differs, the gradient alone did.
    """

    task: str
    network: str
    options: tuple[tuple[str, Any], ...]
    layers: int
    twin: int
    hidden: int
    epochs: int
    batch_size: int
    ep: ModelSettings
    backprop: ModelSettings
    shallow: ModelSettings | None = None

    @property
    def arms(self) -> tuple[ModelName, ...]:
        """The arms of the row."""
        return tuple(name for name in MODELS if name != "shallow" or self.shallow is not None)

    @property
    def baselines(self) -> tuple[ModelName, ...]:
        """The arms that backpropagation trains."""
        return tuple(name for name in self.arms if name in ("backprop", "shallow"))

    def model(self, name: ModelName) -> ModelSettings:
        """The settings of an arm."""
        if name == "shallow" and self.shallow is not None:
            return self.shallow
        return self.backprop if name == "backprop" else self.ep

    def training(self, name: ModelName, seed: int) -> TrainingConfig:
        """How that arm is trained; AdamW, which without weight decay is Adam."""
        settings = self.model(name)
        return TrainingConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            schedule=settings.schedule,
            optimizer="adamw",
            seed=seed,
        )
