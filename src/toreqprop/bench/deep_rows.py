"""Convolutional networks and transformers at their bounds, and their plain twins, for speed rows.

A twin is what one would write in torch without this library: the same layers, eager, no bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.bench.contenders import batches
from toreqprop.energies import AveragePooling, MaxPooling, TightConvolutionBall, convolution_norm
from toreqprop.models import EquilibriumModel, EquilibriumTransformer, HopfieldConvNet
from toreqprop.models.constrained import Constrained

Kind = Literal["average", "max", "transformer"]


@dataclass(frozen=True)
class DeepRow:
    """A convolutional network with this pooling, or a transformer of so many layers."""

    kind: Kind
    layers: int = 2
    batch: int = 64
    tol: float = 1e-2
    radius: float = 0.978

    @property
    def name(self) -> str:
        if self.kind == "transformer":
            return f"transformer energy, {self.layers} layer" + "s" * (self.layers > 1)
        return f"two convolutions 16, 32, {self.kind} pooling"


ROWS = (
    DeepRow("average"),
    DeepRow("max"),
    DeepRow("transformer", 1),
    DeepRow("transformer", 3),
)

IMAGE, CHANNELS, KERNEL, CLASSES = (1, 28, 28), (16, 32), 5, 10
TOKENS, LENGTH, WIDTH, HEADS = 10, 8, 64, 2
OVER = 1.2
"""Couplings start at so many times their radius, so that their balls hold them."""


def model(row: DeepRow, seed: int = 42) -> EquilibriumModel:
    """The network of a row, its bounded couplings enlarged until they are at their bounds.

    The projections of a transformer are kept by a proven bound, which is several times their norm
    (`bench.depth.reaches` measures it): they are at their bounds all the same.
    """
    torch.manual_seed(seed)
    found: EquilibriumModel
    if row.kind == "transformer":
        found = EquilibriumTransformer(
            TOKENS, LENGTH, width=WIDTH, heads=HEADS, layers=row.layers, tol=row.tol
        )
    else:
        pooling = AveragePooling() if row.kind == "average" else MaxPooling()
        found = HopfieldConvNet(
            IMAGE, CHANNELS, CLASSES, kernel_size=KERNEL, pooling=pooling, bound="tight",
            radius=row.radius, tol=row.tol,
        )  # fmt: skip
    with torch.no_grad():
        for layer in found.modules():
            if isinstance(layer, Constrained):
                grown = OVER * limit(layer) / max(norm(layer.raw, layer), 1e-12)
                layer.raw.mul_(max(1.0, grown))
    return found


def twin(row: DeepRow, seed: int = 42) -> nn.Module:
    """The plain network of the same layers."""
    torch.manual_seed(seed)
    if row.kind == "transformer":
        return PlainTransformer(row.layers)
    pool, act = (nn.AvgPool2d, nn.Tanh) if row.kind == "average" else (nn.MaxPool2d, nn.Sigmoid)
    parts: list[nn.Module] = [nn.Unflatten(1, IMAGE)]
    for below, above in zip((IMAGE[0], *CHANNELS), CHANNELS, strict=False):
        parts += [nn.Conv2d(below, above, KERNEL, padding=KERNEL // 2), pool(2), act()]
    side = IMAGE[1] // 2 ** len(CHANNELS)
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(CHANNELS[-1] * side**2, CLASSES))


def loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of images, or of every token."""
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


def draws(row: DeepRow, seed: int = 42) -> Callable[[], tuple[Tensor, Tensor]]:
    """A source of training batches: enlarged digits, or sequences to be reversed."""
    if row.kind != "transformer":
        return batches((row.batch, IMAGE[1] * IMAGE[2], 0), seed)
    generator = torch.Generator().manual_seed(seed)

    def draw() -> tuple[Tensor, Tensor]:
        tokens = torch.randint(0, TOKENS, (row.batch, LENGTH), generator=generator)
        return tokens, tokens.flip(1)

    return draw


def limit(layer: Constrained) -> float:
    """What the norm of a layer's weight stays below."""
    return layer.constraints[0].radius  # type: ignore[return-value]


def norm(weight: Tensor, layer: Constrained) -> float:
    """The norm of a matrix; of a kernel over the maps it sees, from above, on a torus."""
    if weight.dim() == 2:
        return float(torch.linalg.matrix_norm(weight.detach().double(), 2))
    ball = layer.constraints[0]
    if not isinstance(ball, TightConvolutionBall):
        raise TypeError("kernels of these rows are kept by a tight ball")
    return convolution_norm(weight.detach(), ball.start.shape[-2], ball.start.shape[-1])


def reach(network: EquilibriumModel) -> float:
    """The smallest share of its radius that a bounded coupling's norm takes."""
    layers = [layer for layer in network.modules() if isinstance(layer, Constrained)]
    return min(norm(layer.weight, layer) / limit(layer) for layer in layers)


class PlainTransformer(nn.Module):
    """Tokens and positions, layers of standard attention beside a direct way, tanh, a readout."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.5)
        self.blocks = nn.Sequential(*(PlainAttention() for _ in range(layers)))
        self.readout = nn.Linear(WIDTH, TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.blocks(self.embedding(x) + self.position))  # type: ignore[no-any-return]


class PlainAttention(nn.Module):
    """``tanh(x + W_o softmax(q·k/√d + b) v)`` with a bias of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
        )
        size = WIDTH // HEADS
        self.asking = nn.Parameter(torch.randn(HEADS, LENGTH, size) * size**-0.5)
        self.asked = nn.Parameter(torch.randn(HEADS, LENGTH, size))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            project(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        logits = q @ k.mT * q.shape[-1] ** -0.5 + self.asking @ self.asked.mT
        mixed = (torch.softmax(logits, -1) @ v).transpose(1, 2).flatten(2)
        return torch.tanh(x + self.output(mixed))
