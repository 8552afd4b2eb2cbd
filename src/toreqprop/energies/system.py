"""A system bound to its tensors: what solvers iterate and estimators ask."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.activations import HIGHER
from toreqprop.energies.base import Energy, Layerwise, Pairs, Params, Signals, VectorField
from toreqprop.energies.nudging import LinearNudge, Nudge, Opposed, check_nudge
from toreqprop.energies.pairs import Pair
from toreqprop.errors import InvalidInputError, TorEqPropError, UnsupportedModelError
from toreqprop.kernels.reference import ACTIVITY_FLOOR, DRIFT, NUDGE_SLACK
from toreqprop.solution import State
from toreqprop.tracing import pace


@dataclass(frozen=True)
class System:
    """A vector field with inputs, parameters and, in a nudged phase, a nudge.

    ``contraction`` is a Lipschitz constant of the free map in the Euclidean norm, or None.
    Residuals are measured with it, so one kept by an estimate will do; error bounds compute their
    own.
    """

    field: VectorField
    x: Tensor
    params: Params
    drive: Params
    nudge: Nudge | None = None
    contraction: float | None = None

    def __post_init__(self) -> None:
        _check_parts(self.field, self.x, self.params)
        checks.tensors("drive", self.drive)
        if self.nudge is not None:
            check_nudge("nudge", self.nudge)
        if self.contraction is not None:
            checks.number("contraction", self.contraction, 0)

    @staticmethod
    def bind(
        field: VectorField, x: Tensor, params: Params, contraction: float | None = None
    ) -> System:
        """Bind tensors to a field and compute its drive, once for every phase."""
        try:
            drive = field.prepare(x, params)
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError) as error:
            if isinstance(error, TorEqPropError):
                raise
            _check_parts(field, x, params)
            raise InvalidInputError(
                f"{type(field).__name__} cannot use x of shape {tuple(x.shape)} with parameters of "
                f"shapes {[tuple(p.shape) for p in params]}: {str(error).splitlines()[0]}."
            ) from error
        _check_parts(field, x, params)
        if contraction is not None:
            checks.number("contraction", contraction, 0)
        return checks.unchecked(
            System, field=field, x=x, params=params, drive=drive, contraction=contraction
        )

    @property
    def free(self) -> bool:
        return self.nudge is None

    def layers(self, state: State) -> int:
        """How many layers a state of this system has."""
        return len(state)

    def nudged(self, nudge: Nudge) -> System:
        """The same system under a nudge; only a constant force keeps the contraction factor."""
        kept = self.contraction if isinstance(nudge, LinearNudge) else None
        return replace(self, nudge=nudge, contraction=kept)

    def initial_state(self) -> State:
        return self.field.initial_state(self.drive, self.params)

    def preactivation(self, state: State) -> State:
        """``u(s) − β·∂C/∂s``."""
        u = self.field.preactivation(state, self.drive, self.params)
        if self.nudge is None:
            return u
        return tuple(a - b for a, b in zip(u, self.nudge.force(state), strict=True))

    def activate(self, preactivation: State) -> State:
        """``σ(u)``."""
        return self.field.activate(preactivation)

    def deactivate(self, state: State) -> State:
        """``u`` with ``σ(u) = s``."""
        return self.field.deactivate(state)

    def map(self, state: State) -> State:
        """The fixed-point map ``f(s) = σ(u(s) − β·∂C/∂s)``."""
        return self.field.activate(self.preactivation(state))

    def update(self, layers: Iterable[int], state: State) -> State:
        """``f`` for these layers alone; the others stay."""
        layered, swept = _layerwise(self.field), list(state)
        force = None if self.nudge is None else self.nudge.force(state)
        for layer in layers:
            u = layered.layer_preactivation(layer, state, self.drive, self.params)
            swept[layer] = layered.activate_layer(layer, u if force is None else u - force[layer])
        return tuple(swept)

    def energy(self, state: State) -> Tensor:
        """``E(s) + β·C(s)`` for each sample, shape (batch,)."""
        if not isinstance(self.field, Energy):
            raise UnsupportedModelError(
                f"{type(self.field).__name__} has no energy (its weights are not symmetric): "
                "use a symmetric model, or solver=FixedPoint() and VectorFieldEP()."
            )
        energy = self.field.energy(state, self.x, self.params)
        return energy if self.nudge is None else energy + self.nudge.energy(state)

    def sizes(self, image: State) -> tuple[Tensor, Tensor]:
        """For each sample and layer, (batch, layers): what a residual is relative to, and the size
        of what is rounded in it."""
        size = layer_norms(image)
        return _active(size, image), size

    def metric(self, image: State) -> Tensor:
        """The roots of the temperatures: in that norm the slope of an energy is symmetric."""
        heat = [self.field.temperature(layer) ** 0.5 for layer in range(len(image))]
        # Filled in on the device: what is brought to it makes it wait.
        return torch.cat([image[0].new_full((1, 1), h, dtype=torch.float64) for h in heat], 1)

    def hold(self, before: State, after: State, relative: Tensor, tol: float) -> State:
        """Every layer moves."""
        return after

    def colours(self, state: State) -> tuple[tuple[int, ...], ...]:
        """Groups of layers that can be updated at once."""
        return _layerwise(self.field).colours(len(state))

    def error_bound(self, state: State) -> Tensor:
        """``(‖f(s) − s‖ + rounding)/(1 − L) ≥ ‖s − s*‖`` for each sample, in float64.

        ``f`` is evaluated in float64 whatever the dtype, and its rounding bounded entry by entry.
        """
        unknown = torch.full((state[0].shape[0],), torch.inf, dtype=torch.float64)
        constant = self.nudge is None or isinstance(self.nudge, LinearNudge)
        if not constant or state[0].is_complex():
            return unknown
        s, x, params = _double(state), _double((self.x,))[0], _double(self.params)
        try:
            factor = self.field.lipschitz(params, [tuple(v.shape[1:]) for v in s])
        except UnsupportedModelError:
            return unknown
        # The norms of matrices are computed too: some 100 roundings for each row of them.
        factor *= 1 + 100 * torch.finfo(torch.float64).eps * max(v[0].numel() for v in s)
        if not factor < 1:
            return unknown
        rounded = self.field.rounding(s, x, params)
        if rounded is None:
            return unknown
        nudge = self.nudge
        if isinstance(nudge, LinearNudge):
            nudge = replace(nudge, direction=_double(nudge.direction))
        system = replace(System.bind(self.field, x, params), nudge=nudge)
        u = system.preactivation(s)
        image = self.field.activate(u)
        eps = torch.finfo(torch.float64).eps
        slope = self.field.activation.slope
        # σ is right to a few units of rounding; subtracting the force rounds u once more.
        slack = tuple(
            slope * (r + 4 * eps * v.abs()) / self.field.temperature(layer)
            + 8 * eps * (1 + f.abs())
            for layer, (r, v, f) in enumerate(zip(rounded, u, image, strict=True))
        )
        # The factor holds in the norm weighted by temperatures, which is at least the plain one.
        heat = [self.field.temperature(layer) ** 0.5 for layer in range(len(s))]
        gap, slack_norm = (
            sample_norm(tuple(h * v for h, v in zip(heat, vs, strict=True)))
            for vs in (tuple(a - b for a, b in zip(image, s, strict=True)), slack)
        )
        total = (gap + slack_norm) * (1 + 4 * eps * neurons(state))
        return total / (1 - factor)


@dataclass(frozen=True)
class PairSystem:
    """Both nudged phases of a system, relaxed together as ``center ± shift``.

    A state is ``(*centers, *shifts)``. The shift is carried through every operation without
    cancellation where the field takes pairs, else differenced in double precision.
    """

    system: System
    nudge: Opposed
    free: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        checks.instance("system", self.system, System, "use System.bind(field, x, params)")
        checks.instance("nudge", self.nudge, Opposed, "use Opposed(LinearNudge(direction, beta))")

    @property
    def contraction(self) -> float | None:
        linear = isinstance(self.nudge.up, LinearNudge) and self.nudge.asymmetry is None
        return self.system.contraction if linear else None

    def layers(self, state: State) -> int:
        """How many layers a state of this system has."""
        return len(state) // 2

    def start(self, state: State) -> State:
        """Both phases at the free equilibrium."""
        return (*state, *(torch.zeros_like(s) for s in state))

    def preactivation(self, state: State) -> State:
        """``u(s±) − force±``, as means and half differences."""
        pairs = paired(state)
        u = self._field(pairs)
        return split(tuple(a - b for a, b in zip(u, self.nudge.force(pairs), strict=True)))

    def _field(self, pairs: Pairs) -> Pairs:
        system = self.system
        if system.field.pairs:
            return system.field.preactivation(pairs, system.drive, system.params)
        dtype = pairs[0].dtype
        exact = HIGHER.get(dtype, dtype)
        drive, params = (tuple(t.to(exact) for t in ts) for ts in (system.drive, system.params))
        cast = [(p.center.to(exact), p.shift.to(exact)) for p in pairs]
        up = system.field.preactivation(tuple(c + d for c, d in cast), drive, params)
        down = system.field.preactivation(tuple(c - d for c, d in cast), drive, params)
        both = zip(up, down, strict=True)
        return tuple(Pair((0.5 * (a + b)).to(dtype), (0.5 * (a - b)).to(dtype)) for a, b in both)

    def activate(self, preactivation: State) -> State:
        """``σ(u±)``."""
        return split(self.system.field.activate(paired(preactivation)))

    def deactivate(self, state: State) -> State:
        """``u`` with ``σ(u) = s``, for a start whose shift is zero."""
        centers = state[: len(state) // 2]
        found = self.system.field.deactivate(centers)
        return (*found, *(torch.zeros_like(u) for u in found))

    def map(self, state: State) -> State:
        """The fixed-point map of both phases."""
        return self.activate(self.preactivation(state))

    def update(self, layers: Iterable[int], state: State) -> State:
        """The map for these layers alone; the others stay."""
        system, pairs = self.system, paired(state)
        layered = _layerwise(system.field)
        swept, force = list(pairs), self.nudge.on_layers(pairs)
        for layer in layers:
            if system.field.pairs:
                u = layered.layer_preactivation(layer, pairs, system.drive, system.params)
            else:
                u = self._field(pairs)[layer]
            swept[layer] = layered.activate_layer(layer, u - force(layer))
        return split(tuple(swept))

    def energy(self, state: State) -> Tensor:
        """The nudged energies of both phases, added up, shape (batch,)."""
        pairs = paired(state)
        up, down = tuple(p.up for p in pairs), tuple(p.down for p in pairs)
        both = self.system.energy(up) + self.system.energy(down)
        return both + self.nudge.energy(up, down)

    def sizes(self, image: State) -> tuple[Tensor, Tensor]:
        """As `System.sizes`; a shift is held against itself, `NUDGE_SLACK` times less exactly."""
        count = len(image) // 2
        size = layer_norms(image)
        center, shift = size[:, :count], size[:, count:]
        scale = torch.cat([_active(center, image[:count]), NUDGE_SLACK * shift], 1)
        if self.system.field.pairs:
            return scale, size
        # The difference was taken in double precision, of numbers as large as the center.
        lost = self.resolution(image[0].dtype) * center
        return scale, torch.cat([center, shift + lost], 1)

    def metric(self, image: State) -> Tensor:
        """As `System.metric`; centers and shifts each relative to the norm of all of them."""
        count = len(image) // 2
        heat, size = self.system.metric(image[:count]), layer_norms(image)
        center, shift = (
            heat * one_over((heat * part).norm(dim=1, keepdim=True))
            for part in (size[:, :count], NUDGE_SLACK * size[:, count:])
        )
        return torch.cat([center, shift], 1)

    def hold(self, before: State, after: State, relative: Tensor, tol: float) -> State:
        """A sample's center moves on only where its residual is a good part of what is allowed.

        To first order in β it does not move at all; see `kernels.reference.relax_pair`.
        """
        count = len(after) // 2
        still = (relative[:, :count] <= DRIFT * tol).all(1)
        centers = [
            torch.where(per_sample(still, a), b, a)
            for b, a in zip(before[:count], after[:count], strict=True)
        ]
        return (*centers, *after[count:])

    def resolution(self, dtype: torch.dtype) -> float:
        """Rounding of a difference relative to the numbers it was taken of, in units of eps."""
        return torch.finfo(HIGHER.get(dtype, dtype)).eps / torch.finfo(dtype).eps

    def colours(self, state: State) -> tuple[tuple[int, ...], ...]:
        """Groups of layers that can be updated at once."""
        return _layerwise(self.system.field).colours(len(state) // 2)

    def error_bound(self, state: State) -> Tensor:
        """The larger of the two phases' bounds; infinite where a nudge is not constant."""
        pairs = paired(_double(state))
        bounds = []
        for nudge, phase in (
            (self.nudge.up, tuple(p.up for p in pairs)),
            (self.nudge.down, tuple(p.down for p in pairs)),
        ):
            system = self.system if nudge is None else self.system.nudged(nudge)
            bounds.append(system.error_bound(phase))
        if self.nudge.asymmetry is not None:
            return torch.full_like(bounds[0], torch.inf)
        return torch.maximum(*bounds)


def check_state(name: str, given: State, own: State) -> None:
    """Refuse what is no state of the system of which ``own`` is one."""
    layers = list(given) if isinstance(given, tuple | list) else []
    found = [(s.shape, s.dtype) if isinstance(s, Tensor) else None for s in layers]
    if found != [(s.shape, s.dtype) for s in own]:
        shapes = ", ".join(f"{tuple(s.shape)} of {s.dtype}" for s in own)
        raise InvalidInputError(
            f"{name} must be a tuple with a tensor for each layer, {shapes}: use the state of an "
            "earlier equilibrium of this batch."
        )


def paired(state: State) -> Pairs:
    """``(*centers, *shifts)`` as pairs."""
    count = len(state) // 2
    return tuple(map(Pair, state[:count], state[count:]))


def split(pairs: Signals) -> State:
    """Pairs as ``(*centers, *shifts)``."""
    return (*(p.center for p in pairs), *(p.shift for p in pairs))


def layer_norms(state: State) -> Tensor:
    """Euclidean norm of each sample and layer, (batch, layers).

    In double precision: a shift of 1e-25 has a square below float32's range.
    """
    exact = HIGHER.get(state[0].dtype, state[0].dtype)
    rows = [in_order(s).flatten(1) for s in state]
    norms = [torch.linalg.vector_norm(r, dim=1, dtype=exact) for r in rows]
    return norms[0].unsqueeze(1) if len(norms) == 1 else torch.stack(norms, 1)


def one_over(size: Tensor) -> Tensor:
    """``1/size``, and zero for what is too small to be weighed."""
    return torch.where(size > torch.finfo(size.dtype).tiny, 1 / size, 0.0)


def row_norms(values: Tensor) -> Tensor:
    """Euclidean norm of each sample of one layer, (batch,), in double precision."""
    rows = in_order(values).flatten(1)
    exact = HIGHER.get(values.dtype, values.dtype)
    unread = pace(values) > 1 or torch.compiler.is_compiling()
    if exact == values.dtype or values.is_complex() or unread:
        return torch.linalg.vector_norm(rows, dim=1, dtype=exact)
    # Summing up in double precision takes five times as long: only where squares leave the range.
    norms = torch.linalg.vector_norm(rows, dim=1).to(exact)
    if bool(((norms > _SMALL) & (norms < _LARGE) | (norms == 0)).all()) and bool(norms.all()):
        return norms
    return torch.linalg.vector_norm(rows, dim=1, dtype=exact)


_SMALL, _LARGE = 1e-12, 1e18
"""Between them the squares of float32 numbers and their sum are numbers with all their digits."""


def in_order(values: Tensor) -> Tensor:
    """A view of maps in which numbers follow each other as in memory; for anything else itself."""
    return values if values.dim() != 4 or values.is_contiguous() else values.permute(0, 2, 3, 1)


def sample_norm(state: State) -> Tensor:
    """Euclidean norm of each sample over all its layers, shape (batch,)."""
    if len(state) == 1:
        return torch.linalg.vector_norm(state[0].flatten(1), dim=1)
    return torch.linalg.vector_norm(
        torch.stack([torch.linalg.vector_norm(s.flatten(1), dim=1) for s in state]), dim=0
    )


def neurons(state: State) -> int:
    """How many neurons one sample has."""
    return sum(s[0].numel() for s in state)


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """Reshape (batch,) so that it broadcasts against (batch, ...)."""
    return values.reshape(-1, *[1] * (like.dim() - 1))


def _active(size: Tensor, state: State) -> Tensor:
    """Norms (batch, layers), or what counts as activity where they are less."""
    floors = [ACTIVITY_FLOOR * s[0].numel() ** 0.5 for s in state]
    if len(floors) == 1:
        return size.clamp_min(floors[0])
    # Filled in where they are: to bring a list to a device makes it wait at every step.
    return torch.maximum(size, torch.cat([size.new_full((1,), floor) for floor in floors]))


def _check_parts(field: VectorField, x: Tensor, params: Params) -> None:
    checks.instance("field", field, VectorField, "use DenseEnergy() or another energy")
    checks.tensor("x", x, 0)
    checks.tensors("params", params, least=0)


def _layerwise(field: VectorField) -> Layerwise:
    if not isinstance(field, Layerwise):
        raise UnsupportedModelError(
            "GaussSeidel sweeps need a layered model such as HopfieldMLP: use solver=FixedPoint()."
        )
    return field


def _double(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(t.detach().double() if t.is_floating_point() else t for t in tensors)
