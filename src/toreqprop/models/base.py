"""What every equilibrium model shares: an energy, a solver, an estimator and a readout."""

from __future__ import annotations

import itertools
import warnings
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from toreqprop.energies import Energy, Params, System, VectorField
from toreqprop.equilibrium import Settings, equilibrium
from toreqprop.errors import (
    ConvergenceError,
    ConvergenceWarning,
    InvalidInputError,
    UnsupportedModelError,
)
from toreqprop.gradients import CenteredEP, GradientEstimator, VectorFieldEP
from toreqprop.kernels import get_kernel
from toreqprop.solution import Solution, State
from toreqprop.solvers import FixedPoint, Hook, Solver, Tolerance, Trace, solve

OnFailure = Literal["warn", "raise", "ignore"]
KernelName = Literal["auto", "numba", "torch", "numpy"]


class EquilibriumModel(nn.Module, ABC):
    """An ``nn.Module`` whose forward relaxes and whose backward is a gradient estimator.

    Args:
        field: the energy or vector field.
        gradient: how ``loss.backward()`` computes gradients; exchange it at any time.
        solver: how equilibria are found.
        tol: relative fixed-point residual at which a relaxation stops.
        max_steps: evaluations after which it stops anyway.
        on_failure: what to do when it had to: "warn" (once per model), "raise" or "ignore".
        kernel: the code that relaxes one dense layer by plain iteration under two-phase EP:
            "auto" (the fastest here), "numba", "torch", "numpy"; None for the general path,
            which serves every other case whatever is chosen.
    """

    def __init__(
        self,
        field: VectorField,
        *,
        gradient: GradientEstimator | None = None,
        solver: Solver | None = None,
        tol: float = 1e-3,
        max_steps: int = 100,
        on_failure: OnFailure = "warn",
        kernel: KernelName | None = "auto",
    ) -> None:
        super().__init__()
        if on_failure not in ("warn", "raise", "ignore"):
            raise InvalidInputError(
                f'on_failure must be "warn", "raise" or "ignore", got {on_failure!r}.'
            )
        if kernel is not None:
            get_kernel(kernel)  # refuses an unknown name
        Tolerance(tol, max_steps)  # refuses bad values here, where the user wrote them
        self.field = field
        if gradient is None:
            gradient = CenteredEP() if isinstance(field, Energy) else VectorFieldEP()
        self.gradient: GradientEstimator = gradient
        self.solver = FixedPoint() if solver is None else solver
        self.tol = tol
        self.max_steps = max_steps
        self.on_failure: OnFailure = on_failure
        self.kernel: KernelName | None = kernel
        self._warned = False
        self._hooks: dict[int, Hook] = {}
        self._hook_ids = itertools.count()

    @abstractmethod
    def system_parameters(self) -> Params:
        """The effective (symmetrised, normalised) parameters of the field, with their graph."""

    def field_input(self, x: Tensor) -> Tensor:
        """What the field is given for a batch ``x``, with its graph: ``x``, unless embedded."""
        return x

    @abstractmethod
    def readout_from(self, state: State) -> Tensor:
        """The model's output at an equilibrium."""

    @abstractmethod
    def check_input(self, x: Tensor) -> None:
        """Refuse a batch that cannot be used, with one sentence that says what to do."""

    @abstractmethod
    def lipschitz(self) -> float:
        """The Lipschitz constant of the fixed-point map; raises where only theory is missing."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Constructor arguments that build this model again, weights apart."""

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

    @property
    def tolerance(self) -> Tolerance:
        """When this model's relaxations stop."""
        return Tolerance(self.tol, self.max_steps)

    def forward(self, x: Tensor) -> Tensor:
        """Relax, then read out. Raises `InvalidInputError`, `ConvergenceError` (if asked to)."""
        self.check_input(x)
        settings = Settings(
            self.field,
            self.solver,
            self.tolerance,
            self.gradient,
            self._report,
            self.certified_contraction(),
            self.kernel,
        )
        state = equilibrium(settings, self.field_input(x), self.system_parameters())
        return self.readout_from(state)

    @torch.no_grad()
    def equilibrium(self, x: Tensor, *, trace: Trace | None = None) -> Solution:
        """The free equilibrium with its residuals, status and a proven error bound."""
        self.check_input(x)
        system = System.bind(
            self.field, self.field_input(x), self.system_parameters(), self._exact_contraction()
        )
        start = system.initial_state()
        solution = solve(system, start, self.solver, self.tolerance, trace=trace)
        self._report("free", solution)
        return solution

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
        key = next(self._hook_ids)
        self._hooks[key] = hook
        return key

    def remove_relaxation_hook(self, key: int) -> None:
        """Undo :meth:`register_relaxation_hook`."""
        del self._hooks[key]

    def _exact_contraction(self) -> float | None:
        try:
            factor = self.lipschitz()
        except UnsupportedModelError:
            return None
        # Rounding of the norm itself must not make the bound optimistic.
        eps = torch.finfo(next(self.parameters()).dtype).eps
        factor *= 1 + 100 * eps
        return factor if factor < 1 else None

    def _report(self, phase: str, solution: Solution) -> None:
        for hook in tuple(self._hooks.values()):
            hook(phase, solution)
        if solution.converged or self.on_failure == "ignore":
            return
        message = (
            f"{phase} phase: {solution.status.value} (worst relative residual "
            f"{solution.worst_residual:.1e} after {solution.steps} steps; tol={self.tol:g}, "
            f"max_steps={self.max_steps})."
        )
        if self.on_failure == "raise":
            raise ConvergenceError(message)
        if not self._warned:
            self._warned = True
            warnings.warn(message, ConvergenceWarning, stacklevel=2)

    # torch's parametrized modules refuse to be pickled; a model is rebuilt from its
    # configuration and given its own tensors back, so ties between models survive.
    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.config()), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        return {
            "parameters": dict(self.named_parameters(remove_duplicate=False)),
            "buffers": dict(self.named_buffers(remove_duplicate=False)),
            "training": self.training,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        for kind in ("parameters", "buffers"):
            for path, tensor in state[kind].items():
                owner, _, name = path.rpartition(".")
                getattr(self.get_submodule(owner), f"_{kind}")[name] = tensor
        self.train(state["training"])


def _rebuild(cls: type[EquilibriumModel], config: dict[str, Any]) -> EquilibriumModel:
    with torch.random.fork_rng(devices=[]):  # initial weights are thrown away, not the RNG state
        return cls(**config)


def check_batch(x: Tensor, width: int, dtype: torch.dtype) -> None:
    """Refuse anything but a finite, non-empty (batch, width) tensor of the model's dtype."""
    if not isinstance(x, Tensor):
        raise InvalidInputError(
            f"The input must be a torch tensor, got {type(x).__name__}: use torch.as_tensor(x)."
        )
    if x.dim() != 2 or x.shape[1] != width:
        raise InvalidInputError(
            f"The input must have shape (batch, {width}), got {tuple(x.shape)}: "
            f"reshape it with x.reshape(-1, {width}) or build the model with that many inputs."
        )
    if x.shape[0] == 0:
        raise InvalidInputError("The batch is empty: pass at least one sample.")
    if x.dtype != dtype:
        raise InvalidInputError(
            f"The input is {x.dtype} and the model {dtype}: convert it with x.to({dtype})."
        )
    # A sum is one pass; only where it is not finite is it worth looking at each entry.
    if not bool(torch.isfinite(x.detach().sum())) and not bool(torch.isfinite(x).all()):
        raise InvalidInputError(
            "The input has NaN or infinite entries: clean it, for instance with torch.nan_to_num."
        )
