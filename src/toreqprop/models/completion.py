"""Fill in what is hidden: features and the neurons above them settle around what is seen."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies import Activation, Bound, CompletionEnergy, Params, Tanh
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.models.base import EquilibriumModel, OnFailure, check_batch
from toreqprop.models.constrained import balls, constrained, weights_and_biases
from toreqprop.private_generator import drawing_from
from toreqprop.solution import State
from toreqprop.solvers import Anderson, GaussSeidel, Solver
from toreqprop.tracing import is_traced


class CompletionNetwork(EquilibriumModel):
    """``v = Wᵀh + a`` where hidden, ``v = x`` where seen, ``h = σ(Wv + Be + b)`` above them
    and drivers ``e = σ(D(m⊙x, m) + d + γBᵀh)``.

    What is seen is held fast, and the rest settles around it, with any mask: one matrix says both
    what features mean and what a meaning looks like. The drivers say more of what is seen than a
    guess does: D is an input's, so that no norm bounds it. A class is no different from a
    pixel: give it features of its own that are never seen (or always, to see what it looks like).

    Near a norm of one completion is at its best, and slow: with small activities the network is
    Gaussian, ``1 − WᵀW`` is the precision of the features, and what varies most together has an
    eigenvalue next to zero.

    Args:
        features: numbers of a sample, seen or not.
        hidden: neurons above the features.
        drivers: neurons that what is seen drives, and that drive the hidden ones.
        scale: what features are multiplied by inside: larger ones drive the neurons further into
            saturation.
        drive_scale: the same of what the drivers see; ``scale`` by default.
        feedback: γ, how much weaker hidden neurons drive the drivers than the other way round: the
            weaker, the more the drivers may say within the norm.
        activation: of hidden neurons and drivers.
        spectral_norm: keep ``‖(W, √γB)‖`` below ``radius``, so that the plain map contracts by it
            and there is one equilibrium whatever is seen.
        radius, bound: as in `HopfieldMLP`.
        generator: what the initial weights are drawn from; torch's global one by default.
        gradient, solver, tol, max_steps, on_failure: see `EquilibriumModel`. By default the nudge
            is weak: the nearer to one the norm is, the further a nudge moves what is hidden.

    Shapes: input (batch, 2·features), values and then the mask, 1 where a feature is seen and 0
    where its value does not matter; output (batch, features), the seen ones as given. Or
    (batch, 3·features): a second mask, 0 where the drivers do not see what is seen. Drawn anew for
    each batch of a training it keeps them from relying on single features.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        drivers: int,
        *,
        scale: float = 1.0,
        drive_scale: float | None = None,
        feedback: float = 0.1,
        activation: Activation | None = None,
        spectral_norm: bool = True,
        radius: float = 0.99,
        bound: Bound = "tight",
        gradient: GradientEstimator | None = None,
        solver: Solver | None = None,
        tol: float | None = None,
        max_steps: int | None = None,
        on_failure: OnFailure = "warn",
        generator: torch.Generator | None = None,
    ) -> None:
        features = checks.whole_number("features", features, 1)
        hidden = checks.whole_number("hidden", hidden, 1)
        drivers = checks.whole_number("drivers", drivers, 1)
        scale = checks.number("scale", scale, 0, above=True, typical="1 to 10")
        own = scale if drive_scale is None else drive_scale
        drive_scale = checks.number("drive_scale", own, 0, above=True, typical="1 to 10")
        feedback = checks.between("feedback", feedback, 0, 1, typical="0.1 to 1")
        checks.instance("activation", activation, Activation, "use Tanh()", optional=True)
        checks.flag("spectral_norm", spectral_norm)
        checks.choice("bound", bound, get_args(Bound))
        radius = checks.number("radius", radius, 0, above=True, typical="0.9 to 0.99")
        super().__init__(
            CompletionEnergy(Tanh() if activation is None else activation, feedback),
            gradient=CenteredEP(beta=1e-3) if gradient is None else gradient,
            solver=_SWEEPS if solver is None else solver,
            tol=tol,
            max_steps=max_steps,
            on_failure=on_failure,
        )
        self.features, self.hidden, self.drivers = features, hidden, drivers
        self.scale, self.drive_scale, self.feedback = scale, drive_scale, feedback
        self.spectral_norm, self.radius = spectral_norm, radius
        self.bound: Bound = bound
        self.offset = nn.Parameter(torch.zeros(features))
        shape = hidden, features + drivers
        limits = balls(bound, radius, shape) if spectral_norm else []
        with drawing_from(generator):
            # (W, √γB): features and drivers meet in the hidden neurons alone, so that one norm is
            # that of the whole.
            self.couplings = constrained(nn.Linear(features + drivers, hidden), *limits)
            self.drive = nn.Linear(2 * features, drivers)

    @property
    def activation(self) -> Activation:
        return self.field.activation

    def field_input(self, x: Tensor) -> Tensor:
        values, masks = x[:, : self.features], x[:, self.features :]
        return torch.cat([self.scale * values * masks[:, : self.features], masks], 1)

    def system_parameters(self) -> Params:
        joint, bias = weights_and_biases([self.couplings])
        weight, back = joint.split([self.features, self.drivers], 1)
        drive, threshold = weights_and_biases([self.drive])
        values, mask = drive.chunk(2, 1)
        drive = torch.cat([values * (self.drive_scale / self.scale), mask], 1)
        return self.offset, weight, bias, back / self.feedback**0.5, drive, threshold

    def readout_from(self, state: State) -> Tensor:
        return state[0] / self.scale

    def check_input(self, x: Tensor) -> None:
        several = 3 if x.ndim == 2 and x.shape[1] == 3 * self.features else 2
        check_batch(x, several * self.features, self.offset.dtype)
        mask = x[:, self.features :]
        if not is_traced() and bool(((mask != 0) & (mask != 1)).any()):
            raise InvalidInputError(
                f"After its {self.features} values a sample says what is seen, 1 or 0: use "
                "torch.cat([values, mask], 1)."
            )

    variants: ClassVar[tuple[dict[str, Any], ...]] = (
        {},
        {"feedback": 1.0, "scale": 2.0, "drive_scale": 3.0},
    )

    @classmethod
    def example(cls, **options: Any) -> tuple[CompletionNetwork, Tensor, Tensor]:
        """Class features that are never seen, beside others of which half are."""
        seen = torch.cat([torch.rand(5, 6) < 0.5, torch.zeros(5, 4)], 1)
        x = torch.cat([torch.randn(5, 10) * seen, seen], 1)
        return cls(10, **({"hidden": 9, "drivers": 7} | options)), x, torch.randint(6, 10, (5,))

    def extra_repr(self) -> str:
        return (
            f"features={self.features}, hidden={self.hidden}, drivers={self.drivers}, "
            f"scale={self.scale:g}, drive_scale={self.drive_scale:g}, feedback={self.feedback:g}, "
            f"gradient={self.gradient}, solver={self.solver}"
        )


_SWEEPS = Anderson(2, GaussSeidel(), max_steps=500)
"""Features and drivers, then hidden neurons, extrapolated from the last two sweeps, enough of them
for a norm next to one."""
