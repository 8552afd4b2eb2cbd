"""The networks that `toreqprop speed` times, each with the plain networks it is held against.

A new kind is one function that builds the equilibrium network and its plain twins, and an entry of
`KINDS`; a new row is an entry of `ROWS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.bench.depth import plain
from toreqprop.energies import AveragePooling, MaxPooling
from toreqprop.energies.tight_ball import (
    MARGIN,
    TightBall,
    TightConvolutionBall,
    convolution_products,
    top_singular,
)
from toreqprop.errors import InvalidInputError
from toreqprop.models import (
    EquilibriumModel,
    EquilibriumTransformer,
    HopfieldConvNet,
    HopfieldMLP,
    LoopedMLP,
)
from toreqprop.models.constrained import Constrained
from toreqprop.tasks import get

CLASSES, TOKENS, LENGTH = 10, 10, 8


@dataclass(frozen=True)
class Network:
    """One row: the kind, samples in a batch, inputs, width and number of its layers.

    ``norm`` is what the true norms of its couplings come to when it is timed, None where they are
    as training leaves them, below ``radius``, which then is the model's default. Weak feedback γ
    lets a norm be ``1/√γ`` times larger: what goes once around is ``γ·norm²`` at most. ``tol`` is
    the largest of a few at which certificates along a training pass, nearly all of them;
    ``pooling`` is that of a convolutional network.
    """

    kind: str
    batch: int
    width: int
    layers: int = 1
    inputs: int = 784
    feedback: float = 1.0
    norm: float | None = 0.95
    radius: float = 0.05
    tol: float = 1e-2
    pooling: str = ""

    @property
    def label(self) -> str:
        """A short name for tables."""
        size = f"{self.layers} × {self.width}"
        return f"{self.kind} {size}" + (f", {self.pooling} pooling" if self.pooling else "")


def _around(layers: int) -> float:
    """What the couplings' norm is multiplied with for the norm of all of them together: a chain's
    largest eigenvalue."""
    return 2 * math.cos(math.pi / (layers + 1)) if layers > 1 else 1.0


def _loud(layers: int, feedback: float = 0.1) -> float:
    """The norm at which weak feedback goes around as much as full feedback does at 0.95."""
    return 0.95 / feedback**0.5 / _around(layers)


ROWS = (
    *(
        Network("looped", b, h, inputs=i, norm=None, radius=0.3, tol=1e-3)
        for b, i, h in ((64, 64, 128), (128, 784, 256), (128, 784, 1024))
    ),
    *(
        Network("looped", 64, width, norm=norm, tol=tol)
        for norm in (0.9, 0.95, 0.97)
        for width, tol in ((128, 1e-2), (256, 1e-2), (1024, 5e-3))
    ),
    Network("looped", 64, 4096, tol=5e-3),
    Network("layered", 64, 256, 2, tol=3e-2),
    Network("layered", 64, 256, 2, feedback=0.1, tol=0.1),
    Network("layered", 64, 256, 2, feedback=0.1, norm=_loud(2), tol=4e-2),
    Network("layered", 128, 1024, 2, tol=3e-2),
    Network("layered", 128, 1024, 2, feedback=0.1, tol=0.1),
    Network("layered", 128, 1024, 2, feedback=0.1, norm=_loud(2), tol=5e-2),
    Network("layered", 64, 256, 6, feedback=0.1, tol=0.1),
    Network("layered", 64, 256, 6, feedback=0.1, norm=_loud(6), tol=4e-2),
    Network("layered", 64, 256, 16, feedback=0.1, norm=_loud(16), tol=2e-2),
    Network("layered", 64, 4096, 2, feedback=0.1, norm=_loud(2)),
    Network("convolutional", 64, 16, 2, feedback=0.1, norm=_loud(2), pooling="average", tol=5e-2),
    Network("convolutional", 64, 16, 2, feedback=0.1, norm=_loud(2), pooling="max", tol=3e-2),
    Network("transformer", 64, 64, 1, inputs=LENGTH, feedback=0.2, tol=5e-3),
    Network("transformer", 64, 64, 3, inputs=LENGTH, feedback=0.2),
)
QUICK = (
    Network("looped", 64, 128, inputs=64, norm=None, radius=0.3, tol=1e-3),
    Network("looped", 64, 256, tol=1e-2),
    Network("layered", 64, 256, 2, feedback=0.1, norm=_loud(2), tol=3e-2),
)
"""What people in a hurry see."""

Draw = Callable[[], tuple[Tensor, Tensor]]


class Built(NamedTuple):
    """An equilibrium network and the plain ones: of the same parameter count, of the same depth.

    They are functions, as every contender needs one of its own; ``same_depth`` is None where the
    network of the same size has it too. ``rearranged`` is the plain network computed as cleverly as
    the other one, where it can be.
    """

    model: Callable[[], EquilibriumModel]
    same_size: Callable[[], nn.Module]
    same_depth: Callable[[], nn.Module] | None
    draw: Draw
    rearranged: Callable[[], nn.Module] | None = None


def build(network: Network, seed: int) -> Built:
    """The row's networks and its source of batches."""
    if network.kind not in KINDS:
        known = ", ".join(KINDS)
        raise InvalidInputError(f"{network.kind!r} is no kind of network: use one of {known}.")
    made = KINDS[network.kind](network, seed)

    def model() -> EquilibriumModel:
        torch.manual_seed(seed)
        found = made.model()
        if network.norm is not None:
            enlarge(found)
        return found

    return made._replace(model=model)


def _options(network: Network) -> dict[str, Any]:
    if network.norm is None:
        return {"radius": network.radius, "tol": network.tol}
    radius = network.norm * network.feedback**0.5 * _around(network.layers) * MARGIN
    return {"radius": radius, "bound": "tight", "tol": network.tol}


def _looped(network: Network, seed: int) -> Built:
    inputs, width = network.inputs, network.width
    return Built(
        lambda: LoopedMLP(inputs, width, CLASSES, **_options(network)),
        lambda: plain(inputs, width, 2, CLASSES),
        lambda: plain(inputs, width, 1, CLASSES),
        images(network, seed),
    )


def _layered(network: Network, seed: int) -> Built:
    inputs, width, layers = network.inputs, network.width, network.layers
    sizes = [inputs, *[width] * layers, CLASSES]
    return Built(
        lambda: HopfieldMLP(sizes, feedback=network.feedback, **_options(network)),
        lambda: plain(inputs, width, layers, CLASSES),
        None,
        images(network, seed),
    )


def _convolutional(network: Network, seed: int) -> Built:
    channels = [network.width * 2**layer for layer in range(network.layers)]
    highest = network.pooling == "max"
    pooling = MaxPooling(2) if highest else AveragePooling(2)

    def twin() -> nn.Module:
        parts: list[nn.Module] = [nn.Unflatten(1, (1, 28, 28))]
        for below, above in zip([1, *channels], channels, strict=False):
            pool = nn.MaxPool2d(2) if highest else nn.AvgPool2d(2)
            squash = nn.Sigmoid() if highest else nn.Tanh()
            parts += [nn.Conv2d(below, above, 5, padding=2), pool, squash]
        side = 28 // 2**network.layers
        return nn.Sequential(*parts, nn.Flatten(), nn.Linear(channels[-1] * side**2, CLASSES))

    return Built(
        lambda: HopfieldConvNet(
            (1, 28, 28), channels, CLASSES, pooling=pooling, feedback=network.feedback,
            **_options(network),
        ),
        twin,
        None,
        images(network, seed),
        lambda: _rearranged(twin(), folds=not highest),
    )  # fmt: skip


class _Folded(nn.Module):
    """A convolution and the average over squares of two behind it, as one with a larger kernel."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, maps: Tensor) -> Tensor:
        own = self.convolution
        kernel = F.avg_pool2d(F.pad(own.weight, (1, 1, 1, 1)), 2, 1)
        kernel = kernel.contiguous(memory_format=torch.channels_last)
        return F.conv2d(maps, kernel, own.bias, stride=2, padding=own.padding)  # type: ignore[arg-type]


def _rearranged(twin: nn.Module, *, folds: bool) -> nn.Module:
    """The same map with channels next to each other in memory, and averages folded in."""
    parts: list[nn.Module] = []
    for part in twin.children():
        if folds and isinstance(part, nn.AvgPool2d):
            continue
        parts.append(_Folded(part) if folds and isinstance(part, nn.Conv2d) else part)
    return nn.Sequential(*parts).to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


class _Encoder(nn.Module):
    """A plain transformer that says something about every position."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        self.position = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        block = nn.TransformerEncoderLayer(width, 2, width, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.readout = nn.Linear(width, TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.blocks(self.embedding(x) + self.position))


def _transformer(network: Network, seed: int) -> Built:
    generator = torch.Generator().manual_seed(seed)

    def draw() -> tuple[Tensor, Tensor]:
        x = torch.randint(0, TOKENS, (network.batch, LENGTH), generator=generator)
        return x, x.flip(1)

    return Built(
        lambda: _equilibrium_transformer(network),
        lambda: _Encoder(_encoder_width(network), network.layers),
        lambda: _Encoder(network.width, network.layers),
        draw,
    )


def _equilibrium_transformer(network: Network) -> EquilibriumTransformer:
    return EquilibriumTransformer(
        TOKENS, LENGTH, width=network.width, layers=network.layers, feedback=network.feedback,
        tol=network.tol,
    )  # fmt: skip


def _encoder_width(network: Network) -> int:
    """The width at which a plain transformer has about as many parameters."""
    wanted = parameters(_equilibrium_transformer(network))

    def apart(width: int) -> int:
        return abs(parameters(_Encoder(width, network.layers)) - wanted)

    return min(range(2, 2 * network.width, 2), key=apart)


def parameters(model: nn.Module) -> int:
    """How many numbers a model learns."""
    return sum(p.numel() for p in model.parameters())


KINDS: dict[str, Callable[[Network, int], Built]] = {
    "looped": _looped,
    "layered": _layered,
    "convolutional": _convolutional,
    "transformer": _transformer,
}


def images(network: Network, seed: int) -> Draw:
    """A source of random batches of the digits, scaled up where the row has 784 inputs."""
    data = get("digits").load(seed, False)
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    if network.inputs != x.shape[1]:
        side = round(network.inputs**0.5)
        image = F.interpolate(x.view(-1, 1, 8, 8), size=(side, side), mode="bilinear")
        x = image.reshape(len(x), -1).contiguous()
    generator = torch.Generator().manual_seed(seed)

    def draw() -> tuple[Tensor, Tensor]:
        rows = torch.randint(0, len(x), (network.batch,), generator=generator)
        return x[rows], y[rows]

    return draw


@torch.no_grad()
def enlarge(model: EquilibriumModel) -> None:
    """Make raw couplings so large that their balls hold them, and let the balls look well."""
    for layer, ball in _bounded(model):
        weight = layer.raw
        norm = float(_norm(ball, weight))
        weight.mul_(max(1.0, 1.2 * ball.radius / norm))


@torch.no_grad()
def true_norms(model: EquilibriumModel) -> list[tuple[float, float]]:
    """``‖W‖₂`` of everything that is kept in a ball, and its share of what it may be.

    Weak feedback lets a coupling be larger by one over its square root.
    """
    found = [(float(_norm(ball, layer.weight)), ball.radius) for layer, ball in _bounded(model)]
    return [(norm, norm / radius) for norm, radius in found]


def _bounded(model: EquilibriumModel) -> list[tuple[Constrained, Any]]:
    found = []
    for layer in model.modules():
        for ball in getattr(layer, "constraints", ()):
            radius = [part for part in ball.modules() if hasattr(part, "radius")]
            if isinstance(layer, Constrained) and radius:
                found.append((layer, radius[0]))
    return found


def _norm(ball: Any, weight: Tensor) -> Tensor:
    exact = weight.double()
    if isinstance(ball, TightConvolutionBall):
        both = convolution_products(exact, ball.groups)
        return top_singular(*both, ball.start[0].to(exact), _PAIRS)[0]
    if exact.dim() == 4:
        raise InvalidInputError("The norm of a kernel is known with bound='tight' alone.")
    if isinstance(ball, TightBall) and ball.symmetric:
        exact = 0.5 * (exact + exact.mT)
    if max(exact.shape) <= _LARGEST_EXACT:
        return torch.linalg.matrix_norm(exact, 2)
    start = torch.randn(exact.shape[1], generator=torch.Generator().manual_seed(0)).double()
    return top_singular(lambda v: exact @ v, lambda u: u @ exact, start, _PAIRS)[0]


_PAIRS, _LARGEST_EXACT = 60, 1024
"""Above that width singular values take minutes, and sixty pairs of products are right to 1e-3."""
