"""Transformers whose attention is an equilibrium, trained by equilibrium propagation."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies import (
    AttentionCoupling,
    AttentionEnergy,
    AttentionField,
    AttentionStackField,
    Bound,
    IdentityCoupling,
    Params,
    StackEnergy,
    VectorField,
)
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.gradients import GradientEstimator
from toreqprop.models.attention_blocks import (
    EMBEDDING_SCALE,
    Attention,
    EnergyAttention,
    EnergyBlock,
    FieldBlock,
    Limit,
    bounded_linear,
)
from toreqprop.models.base import EquilibriumModel, OnFailure
from toreqprop.private_generator import drawing_from
from toreqprop.solution import State
from toreqprop.solvers import Anderson, FixedPoint, GaussSeidel, Solver

Variant = Literal["energy", "attention", "stacked"]


class EquilibriumTransformer(EquilibriumModel):
    """Tokens in, one set of logits per position out; attention relaxes instead of being applied.

    Args:
        vocab_size: how many tokens there are, in and out.
        max_length: the longest sequence; shorter ones work too.
        variant: "energy", attention that derives from an energy (with several ``layers``, a deep
            energy whose layers attend to the one below and feed back to it); "attention", the
            standard form with independent projections, a vector field; "stacked", standard blocks
            on top of each other, a layered vector field.
        layers: by default 1, 1 and 2 for the three variants; "attention" has one.
        width, heads: neurons per token, and heads that share them.
        causal: tokens see only earlier ones. Not for "energy": its couplings act both ways.
        feedback: how strongly layers hear the one above. In a deep energy the ratio of what comes
            from above to what comes from below; in "stacked" the spectral norm of the weights from
            above. Zero ("stacked" alone): a feed-forward network, and EP that is backpropagation
            in disguise.
        radius: bound on the spectral norms of the projections (``W_q``, ``W_k`` and, where there
            are any, ``W_v``, ``W_u``) and of the ``W`` between layers.
        bound: how they are kept: "tight", "proven" or "exact", as in `LoopedMLP`.
        generator: what the initial weights are drawn from; torch's global one by default.
        gradient, solver, tol, max_steps, on_failure: see `EquilibriumModel`.

    Shapes: input (batch, length) of int64 tokens, output (batch, length, vocab_size).
    """

    def __init__(
        self,
        vocab_size: int = 10,
        max_length: int = 8,
        *,
        variant: Variant = "energy",
        layers: int | None = None,
        width: int = 64,
        heads: int = 2,
        causal: bool = False,
        feedback: float = 0.2,
        radius: float = 0.7,
        bound: Bound = "tight",
        gradient: GradientEstimator | None = None,
        solver: Solver | None = None,
        tol: float | None = None,
        max_steps: int | None = None,
        on_failure: OnFailure = "warn",
        generator: torch.Generator | None = None,
    ) -> None:
        for name, size in (
            *(("vocab_size", vocab_size), ("max_length", max_length)),
            *(("width", width), ("heads", heads)),
        ):
            checks.whole_number(name, size, 1)
        checks.flag("causal", causal)
        radius = checks.number("radius", radius, 0, above=True, typical="0.1 to 0.95")
        checks.choice("bound", bound, get_args(Bound))
        _check_variant(variant, layers, causal, feedback)
        if width % heads:
            raise InvalidInputError(f"width must be a multiple of heads, got {width} and {heads}.")
        layers = _DEFAULT_LAYERS[variant] if layers is None else layers
        field = _field(variant, layers, heads, causal, feedback)
        super().__init__(
            field,
            gradient=gradient,
            solver=_solver(field) if solver is None else solver,
            tol=tol,
            max_steps=max_steps,
            on_failure=on_failure,
        )
        self.vocab_size, self.max_length = vocab_size, max_length
        self.variant: Variant = variant
        self.layers, self.width, self.heads = layers, width, heads
        self.causal, self.feedback, self.radius = causal, feedback, radius
        self.bound: Bound = bound
        with drawing_from(generator):
            self._build(field)

    def _build(self, field: VectorField) -> None:
        """The parameters, drawn in this order."""
        width, heads, max_length = self.width, self.heads, self.max_length
        limit = Limit(self.radius, self.bound)
        self.embedding = nn.Embedding(self.vocab_size, width)
        self.position = nn.Parameter(torch.randn(max_length, width) * EMBEDDING_SCALE)
        nn.init.normal_(self.embedding.weight, std=EMBEDDING_SCALE)
        make = {
            AttentionEnergy: lambda: EnergyAttention(width, heads, max_length, limit),
            AttentionField: lambda: Attention(width, heads, max_length, limit),
            StackEnergy: lambda: EnergyBlock(width, heads, max_length, limit),
            AttentionStackField: lambda: FieldBlock(width, heads, max_length, limit),
        }[type(field)]
        count = self.layers - isinstance(field, StackEnergy)
        self.blocks = nn.ModuleList(make() for _ in range(count))
        top_down = self.layers - 1 if self.variant == "stacked" and self.feedback > 0 else 0
        down = Limit(self.feedback, self.bound)
        self.top_down = nn.ModuleList(bounded_linear(width, down) for _ in range(top_down))
        self.readout = nn.Linear(width, self.vocab_size)

    def field_input(self, x: Tensor) -> Tensor:
        return self.embedding(x) + self.position[: x.shape[1]]

    def system_parameters(self) -> Params:
        found: list[Tensor] = []
        for block in self.blocks:
            found += block.parts()  # type: ignore[operator]
        return *found, *(layer.weight for layer in self.top_down)  # type: ignore[arg-type]

    def readout_from(self, state: State) -> Tensor:
        return _READOUT_GAIN * self.readout(state[-1])

    def check_input(self, x: Tensor) -> None:
        check_tokens(x, self.vocab_size, self.max_length)

    def _embedded(self) -> list[Tensor]:
        return [self.embedding.weight, self.position]

    variants: ClassVar[tuple[dict[str, Any], ...]] = (
        {"variant": "energy"},
        {"variant": "energy", "layers": 3},
        {"variant": "attention"},
        {"variant": "stacked"},
    )

    @classmethod
    def example(cls, **options: Any) -> tuple[EquilibriumTransformer, Tensor, Tensor]:
        tokens = torch.randint(0, 5, (6, 4))
        return cls(5, 4, width=16, **options), tokens, tokens.flip(1)

    def extra_repr(self) -> str:
        return (
            f"variant={self.variant!r}, layers={self.layers}, gradient={self.gradient}, "
            f"solver={self.solver}, tol={self.tol:g}, max_steps={self.max_steps}"
        )


def check_tokens(x: Tensor, vocab_size: int, max_length: int) -> None:
    """Refuse anything but a non-empty (batch, length) tensor of int64 tokens in range."""
    if not isinstance(x, Tensor):
        raise InvalidInputError(
            f"The input must be a torch tensor, got {type(x).__name__}: use torch.as_tensor(x)."
        )
    if x.dtype != torch.int64:
        raise InvalidInputError(
            f"Tokens must be torch.int64, got {x.dtype}: convert them with x.long()."
        )
    if x.dim() != 2:
        raise InvalidInputError(
            f"The input must have shape (batch, length), got {tuple(x.shape)}: add the dimension "
            "that is missing, for instance with x.unsqueeze(0)."
        )
    if x.numel() == 0:
        raise InvalidInputError(
            f"The batch is empty (shape {tuple(x.shape)}): pass at least one token."
        )
    if x.shape[1] > max_length:
        raise InvalidInputError(
            f"The sequences have {x.shape[1]} tokens and the model takes {max_length}: shorten "
            f"them or build it with max_length={x.shape[1]}."
        )
    low, high = (int(v) for v in torch.aminmax(x))
    if low < 0 or high >= vocab_size:
        raise InvalidInputError(
            f"Tokens must be 0 to {vocab_size - 1}, got {low if low < 0 else high}: build the "
            "model with a larger vocab_size or map the tokens."
        )


_DEFAULT_LAYERS: dict[Variant, int] = {"energy": 1, "attention": 1, "stacked": 2}
_READOUT_GAIN = 8.0
"""Bounded couplings leave differences between states small; the readout makes up for it."""


def _field(variant: Variant, layers: int, heads: int, causal: bool, feedback: float) -> VectorField:
    if variant == "attention":
        return AttentionField(heads, causal)
    if variant == "stacked":
        return AttentionStackField(heads, feedback > 0, causal)
    return AttentionEnergy(heads) if layers == 1 else _deep(heads, layers, feedback)


def _deep(heads: int, layers: int, feedback: float) -> StackEnergy:
    upper = (AttentionCoupling(heads),) * (layers - 1)
    return StackEnergy((IdentityCoupling(), *upper), feedback=feedback)


def _solver(field: VectorField) -> Solver:
    """Sweeps where they descend, plain steps where feedback is a small part, extrapolated ones
    where there is an energy, damped ones else."""
    if isinstance(field, StackEnergy):
        return GaussSeidel(order="sequential")
    if isinstance(field, AttentionEnergy):
        return Anderson(memory=2, careful=True)
    return FixedPoint() if isinstance(field, AttentionStackField) else FixedPoint(0.5)


def _check_variant(variant: str, layers: int | None, causal: bool, feedback: float) -> None:
    checks.choice("variant", variant, get_args(Variant))
    if layers is not None:
        checks.whole_number("layers", layers, 1)
    if variant == "attention" and layers not in (None, 1):
        raise InvalidInputError(
            f'variant="attention" has one layer, got layers={layers}: use variant="stacked".'
        )
    feedback = checks.number("feedback", feedback, typical="0.2")
    if not 0 <= feedback <= 1 or (variant == "energy" and feedback == 0):
        raise InvalidInputError(
            f'feedback must be in (0, 1], or 0 with variant="stacked", got {feedback}.'
        )
    if variant == "energy" and causal:
        raise UnsupportedModelError(
            "An energy couples tokens both ways, so no mask keeps later tokens from earlier "
            'outputs: use causal=True with variant="attention" or "stacked".'
        )
