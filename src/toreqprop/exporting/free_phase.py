"""A trained network's free phase in three parts that can be traced: start, step, read out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies import StackEnergy, System
from toreqprop.energies.circuits import ResistiveEnergy
from toreqprop.energies.system import layer_norms
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.models import EquilibriumModel, OnChip
from toreqprop.solution import State
from toreqprop.solvers import FixedPoint, GaussSeidel, Solver


class FreePhase(nn.Module):
    """What ``model(x)`` computes, without training: constraints applied, weights constant.

    Stacks settle by symmetric sweeps, everything else by plain iteration, until the largest
    relative residual of any sample and layer is at most ``tol`` or after ``max_steps``; with
    ``tol=0`` every input takes exactly ``max_steps``. The whole batch goes on until its slowest
    sample has settled.

    Args:
        model: a trained model.
        example: a batch of two or more inputs, for the shapes.
        tol, max_steps: when the relaxation ends.
        scaling: mean and scale of the features, to take raw inputs; None where they are scaled.

    Raises:
        UnsupportedModelError: the model has no free phase another program could run.
    """

    def __init__(
        self,
        model: EquilibriumModel,
        example: Tensor,
        *,
        tol: float = 1e-6,
        max_steps: int = 500,
        scaling: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        super().__init__()
        _check(model)
        checks.tensor("example", example, 2)
        if len(example) < 2:
            raise InvalidInputError(
                "example must have two samples or more, got 1: one alone hides what the batch is."
            )
        self.tol = checks.number("tol", tol, 0)
        self.max_steps = checks.whole_number("max_steps", max_steps, 1)
        if scaling is not None:
            checks.tensors("scaling", scaling, 2)
        self.model, self.field, self.example = model, model.field, example
        with torch.no_grad():
            effective = [p.detach().clone() for p in model.system_parameters()]
        for number, value in enumerate(effective):
            self.register_buffer(f"parameter_{number}", value)
        self.parameters_of_field = len(effective)
        self.scaling: tuple[Tensor, Tensor] | None = None
        if scaling is not None:
            self.scaling = (scaling[0].to(example), scaling[1].to(example))
        with torch.no_grad():
            drives = [self._drive(part) for part in (example, example[:1])]
            system = self._system(drives[0])
            first = system.initial_state()
            floor = system.sizes(tuple(torch.zeros_like(s[:1]) for s in first))[0]
        self.layers = len(first)
        self.register_buffer("floor", floor)
        # What does not change with the batch is prepared once and stays inside.
        pairs = enumerate(zip(*drives, strict=True))
        self.moving = [number for number, (a, b) in pairs if a.shape != b.shape]
        for number, value in enumerate(drives[0]):
            self.register_buffer(
                f"drive_{number}", torch.zeros(0) if number in self.moving else value.clone()
            )
        self.drives = len(drives[0])
        self.eval()
        layered = isinstance(self.field, StackEnergy) and self.layers > 1
        self.sweep: Solver = GaussSeidel("symmetric") if layered else FixedPoint()

    def forward(self, x: Tensor) -> Tensor:
        """The output at the equilibrium, as `to_program` loops."""
        drive, state = self.start(x)
        for _ in range(self.max_steps):
            state, residual = self.step(drive, state)
            if float(residual) <= self.tol:
                break
        return self.read(state)

    def start(self, x: Tensor) -> tuple[State, State]:
        """What the input gives: the drives that depend on it, and the first state."""
        if self.scaling is not None:
            x = (x - self.scaling[0]) / self.scaling[1]
        drive = self._drive(x)
        return tuple(drive[k] for k in self.moving), self._system(drive).initial_state()

    def step(self, moving: State, state: State) -> tuple[State, Tensor]:
        """One evaluation: the next state, and the largest relative residual in all of the batch."""
        drive = [getattr(self, f"drive_{number}") for number in range(self.drives)]
        for number, value in zip(self.moving, moving, strict=True):
            drive[number] = value
        system = self._system(tuple(drive))
        image = self.sweep.evaluate(system, state)
        gap = layer_norms(tuple(a - b for a, b in zip(image, state, strict=True)))
        scale = torch.maximum(layer_norms(image), torch.as_tensor(self.floor))
        return image, (gap / scale).amax((0, 1)).to(state[0].dtype)

    def read(self, state: State) -> Tensor:
        """The model's output."""
        return self.model.readout_from(state)

    def _effective(self) -> State:
        return tuple(getattr(self, f"parameter_{k}") for k in range(self.parameters_of_field))

    def _drive(self, x: Tensor) -> State:
        return self.field.prepare(self.model.field_input(x), self._effective())

    def _system(self, drive: State) -> System:
        return System(self.field, drive[0], self._effective(), drive)


def _check(model: EquilibriumModel) -> None:
    if not isinstance(model, EquilibriumModel):
        raise UnsupportedModelError(
            f"{type(model).__name__} does not settle: give it to torch.export or torch.onnx as it "
            "is."
        )
    if isinstance(model, OnChip):
        raise UnsupportedModelError(
            "A chip's noise and faults are not exported: export the network it was made from."
        )
    if isinstance(model.field, ResistiveEnergy):
        raise UnsupportedModelError(
            "A resistive network is a circuit, whose diodes have no closed form here: write its "
            "netlist with `toreqprop circuit export` or hardware.netlist(model)."
        )
