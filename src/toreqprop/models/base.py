"""What every equilibrium model shares: an energy, a solver, an estimator and a readout."""

from __future__ import annotations

import inspect
import itertools
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies import Energy, Params, StackEnergy, VectorField
from toreqprop.equilibrium import Settings, equilibrium
from toreqprop.errors import (
    ConvergenceError,
    ConvergenceWarning,
    InvalidInputError,
    UnsupportedModelError,
)
from toreqprop.gradients import ESTIMATORS, CenteredEP, GradientEstimator, VectorFieldEP
from toreqprop.kernels import get_kernel
from toreqprop.models.compiled_step import compiled_step
from toreqprop.models.readout import Readout
from toreqprop.solution import Solution, State
from toreqprop.solvers import CIRCUIT_SOLVERS, SOLVERS, FixedPoint, Hook, Solver, Trace
from toreqprop.tracing import full_precision, is_autocast, is_finite, is_traced

OnFailure = Literal["warn", "raise", "ignore"]
KernelName = Literal["auto", "numba", "torch", "numpy"]


class EquilibriumModel(nn.Module, ABC):
    """An ``nn.Module`` whose forward relaxes and whose backward is a gradient estimator.

    Args:
        field: the energy or vector field.
        gradient: how ``loss.backward()`` computes gradients; exchange it at any time.
        solver: how equilibria are found, and when that ends: ``FixedPoint(tol=1e-3)``.
        tol, max_steps: a shorter way to give the solver another tolerance.
        on_failure: what to do when a relaxation does not converge: "warn" (the first time; they
            are counted in ``failures``), "raise" or "ignore".
        kernel: the code that relaxes one dense layer by plain iteration: "auto" (the fastest
            here), "numba", "torch" (the general path, which serves every other case whatever is
            chosen), "numpy".

    Attributes:
        failures: how many relaxations ended with which status, in which phase and layer:
            ``{("nudged", "MAX_STEPS", 2): 17}``.
        relaxations: how many there were in all.
    """

    def __init__(
        self,
        field: VectorField,
        *,
        gradient: GradientEstimator | str | None = None,
        solver: Solver | str | None = None,
        tol: float | None = None,
        max_steps: int | None = None,
        on_failure: OnFailure = "warn",
        kernel: KernelName | None = "auto",
    ) -> None:
        super().__init__()
        self.field = field
        if gradient is None:
            gradient = CenteredEP() if isinstance(field, Energy) else VectorFieldEP()
        self.gradient = gradient
        self.solver = FixedPoint() if solver is None else solver
        self.solver = self.solver.limited(tol, max_steps)
        self.on_failure = on_failure
        self.kernel = kernel
        self.failures: Counter[tuple[str, str, int | None]] = Counter()
        self.relaxations = 0
        self._warned: set[str] = set()
        self._hooks: dict[int, Hook] = {}
        self._hook_ids = itertools.count()

    @abstractmethod
    def system_parameters(self) -> Params:
        """The effective (symmetrised, normalised) parameters of the field, with their graph."""

    def matrices(self) -> Sequence[nn.Module] | None:
        """The layers whose weights and biases, in turn, are `system_parameters`, where that is all
        there is to them; None elsewhere. With them `compiled_step` may take over."""
        return None

    def field_input(self, x: Tensor) -> Tensor:
        """What the field is given for a batch ``x``, with its graph: ``x``, unless embedded."""
        return x

    @abstractmethod
    def readout_from(self, state: State) -> Tensor:
        """The model's output at an equilibrium."""

    def linear_readout(self) -> Readout | None:
        """What `readout_from` does, where it is linear in the top layer and nothing else; with it
        `compiled_step` may take over that too."""
        return None

    @abstractmethod
    def check_input(self, x: Tensor) -> None:
        """Refuse a batch that cannot be used, with one sentence that says what to do."""

    def feedforward(self, x: Tensor) -> Tensor | None:
        """The output of one plain pass upwards through the same parameters, with its graph; None
        where there is no such pass.

        It is what the model's output tends to as its feedback goes to zero, and its gradient is
        backpropagation's: the certificate says how far EP's is from it.
        """
        if not (isinstance(self.field, StackEnergy) and self.field.one_way):
            return None
        params = self.system_parameters()
        drive = self.field.prepare(self.field_input(x), params)
        return self.readout_from(self.field.initial_state(drive, params))

    def layer_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the free layers, without the batch, where a bound depends on them."""
        return []

    @torch.no_grad()
    def lipschitz(self) -> float:
        """An upper bound on the fixed-point map's Lipschitz constant, from the exact norms of the
        weights and the slope of the activation; in the norm of `VectorField.lipschitz`.

        Raises:
            UnsupportedModelError: none is known, and why.
        """
        return self.field.lipschitz(self.system_parameters(), self.layer_shapes())

    def config(self) -> dict[str, Any]:
        """Constructor arguments that build this model again, weights apart."""
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in names if name not in ("self", "generator")}

    variants: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    """Options of :meth:`example` with which the contract tests run it, one after the other."""

    @classmethod
    def example(cls, **options: Any) -> tuple[EquilibriumModel, Tensor, Tensor]:
        """A small instance with a batch of inputs and class targets, for the contract tests."""
        raise NotImplementedError(f"{cls.__name__} has no example: registered models need one.")

    @classmethod
    def for_rows(
        cls, features: int, hidden: int, outputs: int, *, layers: int | None = None, **options: Any
    ) -> EquilibriumModel:
        """A model for samples that are rows of numbers, for the command line.

        ``layers`` counts hidden layers where that can be chosen; ``options`` are those of the
        constructor. A model whose samples have another shape also overrides `arrange`.
        """
        raise UnsupportedModelError(
            f"{cls.__name__} cannot be built for rows of numbers: build it in Python."
        )

    def arrange(self, rows: Tensor) -> Tensor:
        """Rows (batch, features) in the shape `forward` takes."""
        return rows

    def certified_contraction(self) -> float | None:
        """A Lipschitz constant known without computation (from the parametrization), or None."""
        return None

    def residual_factor(self) -> float | None:
        """What the last step of plain iteration is multiplied with, to be the next one at most.

        `certified_contraction`, or a constant that is kept by an estimate: it decides when a phase
        ends, while every bound on an error is computed from the weights.
        """
        return self.certified_contraction()

    @property
    def gradient(self) -> GradientEstimator:
        """How gradients are computed; setting it takes an estimator or a registered name."""
        return self._gradient

    @gradient.setter
    def gradient(self, value: GradientEstimator | str) -> None:
        self._gradient: GradientEstimator = named("gradient", value, GradientEstimator, ESTIMATORS)

    @property
    def solver(self) -> Solver:
        """How equilibria are found; setting it takes a solver or a registered name."""
        return self._solver

    @solver.setter
    def solver(self, value: Solver | str) -> None:
        self._solver: Solver = named("solver", value, Solver, SOLVERS | CIRCUIT_SOLVERS)

    @property
    def on_failure(self) -> OnFailure:
        """What to do when a relaxation does not converge."""
        return self._on_failure

    @on_failure.setter
    def on_failure(self, value: OnFailure) -> None:
        checks.choice("on_failure", value, get_args(OnFailure))
        self._on_failure: OnFailure = value

    @property
    def kernel(self) -> KernelName | None:
        """The code that relaxes one dense layer by plain iteration."""
        return self._kernel

    @kernel.setter
    def kernel(self, value: KernelName | None) -> None:
        get_kernel(value)  # refuses an unknown name
        self._kernel: KernelName | None = value

    @property
    def tol(self) -> float:
        """The solver's tolerance; setting it exchanges the solver."""
        return self.solver.tol

    @tol.setter
    def tol(self, value: float) -> None:
        self.solver = self.solver.limited(tol=value)

    @property
    def max_steps(self) -> int:
        """The solver's limit; setting it exchanges the solver."""
        return self.solver.max_steps

    @max_steps.setter
    def max_steps(self, value: int) -> None:
        self.solver = self.solver.limited(max_steps=value)

    def forward(self, x: Tensor) -> Tensor:
        """Relax, then read out. Raises `InvalidInputError`, `ConvergenceError` (if asked to)."""
        readout = self.linear_readout()
        found = None if readout is None else compiled_step(self, x, readout)
        if found is not None and found[1] is not None:
            return found[1]
        return self.readout_from(self.equilibrium(x).state)

    def equilibrium(
        self, x: Tensor, *, start: State | None = None, trace: Trace | None = None
    ) -> Solution:
        """The free equilibrium that `forward` reads out, with residuals, status and error bound.

        Its state is differentiable like the output: a penalty on activity trains by EP too.
        ``start`` is where the relaxation begins, ``trace`` records it.
        """
        check_tensor(x)
        if is_autocast(x) and x.is_floating_point():
            x = x.to(next(self.parameters()).dtype)
        with full_precision(x):
            self.check_input(x)
            if start is None and trace is None:
                found = compiled_step(self, x)
                if found is not None:
                    return found[0]
            if trace is not None:
                checks.instance("trace", trace, Trace, "use Trace()")
            settings = checks.unchecked(
                Settings,
                field=self.field,
                solver=self._solver,
                gradient=self._gradient,
                report=self._report,
                contraction=self.residual_factor(),
                kernel=self._kernel,
                start=start,
                trace=trace,
            )
            return equilibrium(settings, self.field_input(x), self.system_parameters())

    def energy(self, x: Tensor) -> Tensor:
        """Energy of each sample at its equilibrium, shape (batch,).

        Differentiable in the parameters with the state held fixed; at an equilibrium that is the
        total derivative (envelope theorem).
        """
        if not isinstance(self.field, Energy):
            raise UnsupportedModelError(
                f"{type(self.field).__name__} has no energy (its weights are not symmetric): "
                "use a symmetric model."
            )
        state = self.equilibrium(x).state
        return self.field.energy(state, self.field_input(x), self.system_parameters())

    def register_relaxation_hook(self, hook: Hook) -> int:
        """Call ``hook(phase, solution)`` after every relaxation; returns a key to remove it."""
        checks.function("hook", hook)
        key = next(self._hook_ids)
        self._hooks[key] = hook
        return key

    def remove_relaxation_hook(self, key: int) -> None:
        """Undo :meth:`register_relaxation_hook`."""
        if type(key) is not int or self._hooks.pop(key, None) is None:
            raise InvalidInputError(
                f"There is no hook {checks.shown(key)}: use what register_relaxation_hook returned."
            )

    def estimated_parameters(self) -> list[str]:
        """Names of the parameters the estimator trains: those the field depends on.

        The others, a readout's, get their gradient from autograd alone.
        """
        named = dict(self.named_parameters())
        with torch.enable_grad():
            effective = [p.sum() for p in self.system_parameters() if p.requires_grad]
            effective += [p.sum() for p in self._embedded() if p.requires_grad]
        if not effective:
            return []
        asked = {name: p for name, p in named.items() if p.requires_grad}
        with unchanged_buffers(self):
            found = torch.autograd.grad(effective, list(asked.values()), allow_unused=True)
        return [name for name, g in zip(asked, found, strict=True) if g is not None]

    def _embedded(self) -> list[Tensor]:
        """The parameters that the field's input is made with."""
        return []

    def _report(self, phase: str, solution: Solution) -> None:
        for hook in tuple(self._hooks.values()):
            hook(phase, solution)
        self.__dict__["relaxations"] += 1  # nn.Module's own way of setting a number is slow
        if solution.converged:
            return
        self.failures[phase, solution.status.name, solution.layer] += 1
        if self.on_failure == "ignore":
            return
        where = "" if solution.layer is None else f", layer {solution.layer}"
        message = (
            f"{phase} phase{where}: {solution.status.value} (worst relative residual "
            f"{solution.worst_residual:.1e} after {solution.steps} steps; tol={self.tol:g}, "
            f"max_steps={self.max_steps})."
        )
        if self.on_failure == "raise":
            raise ConvergenceError(message)
        if solution.status.name not in self._warned:
            self._warned.add(solution.status.name)
            warnings.warn(message, ConvergenceWarning, stacklevel=2)


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Backward passes within it leave no trace in the buffers (the start of a `TightBall`)."""
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in kept:
                buffer.copy_(before)


Kind = TypeVar("Kind")


def named(setting: str, value: Any, kind: Any, known: Mapping[str, type[Kind]]) -> Kind:
    """``value`` itself where it is of its kind, or the registered one of that name."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str) and value in known:
        return known[value]()
    names = ", ".join(f'"{name}"' for name in known)
    raise InvalidInputError(
        f"{setting} must be a {kind.__name__} or one of {names}, got {checks.shown(value)}."
    )


def check_batch(x: Tensor, width: int, dtype: torch.dtype) -> None:
    """Refuse anything but a finite, non-empty (batch, width) tensor of the model's dtype."""
    check_tensor(x)
    if x.dim() != 2 or x.shape[1] != width:
        raise InvalidInputError(
            f"The input must have shape (batch, {width}), got {tuple(x.shape)}: "
            f"reshape it with x.reshape(-1, {width}) or build the model with that many inputs."
        )
    check_samples(x, dtype)


def check_tensor(x: Tensor) -> None:
    """Refuse what is no tensor."""
    if not isinstance(x, Tensor):
        raise InvalidInputError(
            f"The input must be a torch tensor, got {type(x).__name__}: use torch.as_tensor(x)."
        )


def check_samples(x: Tensor, dtype: torch.dtype) -> None:
    """Refuse an empty batch, another dtype, and numbers that are not finite."""
    if x.shape[0] == 0:
        raise InvalidInputError("The batch is empty: pass at least one sample.")
    if x.dtype != dtype:
        raise InvalidInputError(
            f"The input is {x.dtype} and the model {dtype}: convert it with x.to({dtype})."
        )
    if is_traced():
        return
    if not is_finite(x.detach() if x.requires_grad else x):
        raise InvalidInputError(
            "The input has NaN or infinite entries: clean it, for instance with torch.nan_to_num."
        )
