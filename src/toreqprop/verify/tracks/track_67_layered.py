"""Track 67: layered networks, against equilibria and contrasts that NumPy finds on its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from toreqprop.certificate import Certificate, certify
from toreqprop.energies import AveragePooling, StackEnergy
from toreqprop.energies import Bound as Kind
from toreqprop.gradients import CenteredEP, ImplicitGradient
from toreqprop.models import EquilibriumModel, HopfieldConvNet, HopfieldMLP, LoopedMLP
from toreqprop.solvers import FixedPoint, GaussSeidel, Solver
from toreqprop.training import TrainingConfig
from toreqprop.verify.independent import Stack, apart, effective_gradients
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Measurements, Table, pooled
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import Split, certificate_table, load, train
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above_chance, at_least, at_most

STRONG = 0.1
"""A nudge whose bias is plain to see: an estimator that has none does not nudge."""

TIGHT = 1e-13
SAMPLES = 12

SHAPES: dict[str, dict[str, Any]] = {
    "2 layers": {"sizes": (24, 20)},
    "3 layers, feedback 0.5": {"sizes": (20, 24, 16), "feedback": 0.5},
    "1 layer": {"sizes": (20,)},
}
PATHS: dict[str, tuple[Solver | None, str | None]] = {
    "compiled": (None, "auto"),
    "general, sweeps": (GaussSeidel(), None),
    "general, plain map": (FixedPoint(), None),
}


@dataclass(frozen=True)
class Case:
    """One network on one path, held against NumPy."""

    name: str
    path: str
    state: float
    contrast: float
    bias: float
    order: float

    @property
    def row(self) -> tuple[Any, ...]:
        return self.name, self.path, self.state, self.contrast, self.bias, self.order


@plantable
def run(context: Context) -> Measurements:
    data = load(context, "digits", context.seed)
    context.report("equilibria and contrasts against NumPy")
    cases = list(_cases(data, context.seed))
    context.report("Lipschitz constants against the matrix")
    norms = _norms(context.seed)
    certificates, accuracies = _training(context)
    found = [c for _, _, c in certificates]
    ratios = [constant / norm for _, constant, norm, exact, _ in norms if exact]
    return Measurements(
        {
            "cases": len(cases),
            "state": max(c.state for c in cases),
            "contrast": max(c.contrast for c in cases),
            "least_bias": min(c.bias for c in cases),
            "order_least": min(c.order for c in cases),
            "order_most": max(c.order for c in cases),
            "constant_least": min(constant / norm for _, constant, norm, _, _ in norms),
            "constant_where_exact": max(ratios),
            # The constant of a convolution is that of a torus, a little larger than what is kept.
            "radius_most": max(
                (norm if name.startswith("convolutional") else constant) / radius
                for name, constant, norm, _, radius in norms
            ),
            "radius_least": min(constant / radius for _, constant, _, _, radius in norms),
            "min_cosine": min(c.min_cosine for c in found),
            "norm_error": max(abs(t.norm_ratio - 1) for c in found for t in c.tensors),
            "certificates": len(found),
            "accuracy": pooled(accuracies),
        },
        tables=(
            Table(
                f"float64, residual {TIGHT:g}: largest deviation of a state from NumPy's, relative "
                f"deviation of EP's gradient at β = {STRONG:g} from the contrast of NumPy's "
                "equilibria, its bias against the exact gradient, and the bias's order in β",
                (
                    Column("network"),
                    Column("path"),
                    Column("state", ".1e"),
                    Column("contrast", ".1e"),
                    Column("bias", ".1e"),
                    Column("order", ".2f"),
                ),
                tuple(c.row for c in cases),
            ),
            Table(
                "lipschitz() and the largest singular value of the whole network's matrix, weights "
                "far outside their ball before it was applied",
                (
                    Column("network"),
                    Column("lipschitz()", ".6f"),
                    Column("norm", ".6f"),
                    Column("must be equal"),
                    Column("radius", "g"),
                ),
                tuple((n, a, b, "yes" if same else "no", r) for n, a, b, same, r in norms),
            ),
            certificate_table(
                "Certificates in float32 at the model's own β and tolerance", certificates
            ),
        ),
    )


def _cases(data: Split, seed: int) -> Iterator[Case]:
    """Every shape on every path, and the looped network on both of its own."""
    x, y = data.x[:SAMPLES].double(), data.y[:SAMPLES]
    for name, shape in SHAPES.items():
        for path, (solver, kernel) in PATHS.items():
            torch.manual_seed(seed)
            options = {k: v for k, v in shape.items() if k != "sizes"}
            model = HopfieldMLP(
                (data.features, *shape["sizes"], data.classes), solver=solver, tol=TIGHT,
                max_steps=500, radius=0.9, bound="exact", on_failure="ignore", **options,
            )  # fmt: skip
            model.kernel = kernel  # type: ignore[assignment]
            _strengthen(model)
            yield _compare(name, path, model.double(), x, y)
    for path, kernel in (("compiled", "auto"), ("general, plain map", None)):
        torch.manual_seed(seed)
        looped = LoopedMLP(
            data.features, 24, data.classes, radius=0.8, bound="exact", tol=TIGHT, max_steps=500,
            on_failure="ignore",
        )  # fmt: skip
        looped.kernel = kernel  # type: ignore[assignment]
        _strengthen(looped)
        yield _compare("looped", path, looped.double(), x, y)


def _strengthen(model: EquilibriumModel) -> None:
    """Weights far outside their ball, so that it decides how strong they are."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("raw"):
                parameter.mul_(20)


def _compare(
    name: str, path: str, model: EquilibriumModel, x: torch.Tensor, y: torch.Tensor
) -> Case:
    stack = Stack.of(model)
    given, labels = x.numpy(), y.numpy()
    with torch.no_grad():
        state = model.equilibrium(x).state
    wanted = stack.relax(given)
    off = max(float(np.abs(a.numpy() - b).max()) for a, b in zip(state, wanted, strict=True))
    model.gradient = ImplicitGradient()
    exact = effective_gradients(model, x, y)
    gradients = {}
    for beta in (STRONG, STRONG / 4):
        model.gradient = CenteredEP(beta)
        gradients[beta] = effective_gradients(model, x, y)
    bias, weaker = (apart(g, exact) for g in gradients.values())
    contrast = apart(gradients[STRONG], stack.contrast(given, labels, STRONG))
    order = float(np.log(max(bias, 1e-300) / max(weaker, 1e-300)) / np.log(4))
    return Case(name, path, off, contrast, bias, order)


def _norms(seed: int) -> list[tuple[str, float, float, bool, float]]:
    """(network, lipschitz(), norm of its matrix, whether they must be equal, radius)."""
    found = []
    kinds: tuple[Kind, ...] = ("exact", "tight", "proven")
    for bound in kinds:
        for sizes, feedback in (
            ((9, 30, 20, 4), 1.0),
            ((9, 30, 20, 4), 0.25),
            ((9, 8, 8, 8, 4), 0.5),
        ):
            torch.manual_seed(seed)
            model = HopfieldMLP(sizes, bound=bound, radius=0.9, feedback=feedback).double()
            _strengthen(model)
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if name.endswith("raw") and bound == "proven":
                        parameter.abs_()  # where weights do not cancel, the proven bound is tight
            weights = [p.detach().numpy() for p in model.system_parameters()[2::2]]
            name = f"{'-'.join(map(str, sizes))}, feedback {feedback:g}, {bound}"
            equal = len(weights) == 1
            found.append((name, model.lipschitz(), _norm(weights, feedback), equal, 0.9))
    return found + [_convolutional(seed, feedback) for feedback in (1.0, 0.25)]


def _convolutional(seed: int, feedback: float) -> tuple[str, float, float, bool, float]:
    """Two layers of maps; the matrix of the convolution between them, column by column."""
    torch.manual_seed(seed)
    model = HopfieldConvNet(
        (1, 10, 10), (2, 3), 4, kernel_size=3, pooling=AveragePooling(1), bound="tight",
        radius=0.9, feedback=feedback,
    ).double()  # fmt: skip
    _strengthen(model)
    assert isinstance(model.field, StackEnergy)
    coupling, params = model.field.couplings[1], model.system_parameters()[2:4]
    channels, height, width = model.layer_shapes()[0]
    unit = torch.eye(channels * height * width, dtype=torch.float64)
    with torch.no_grad():
        prepared = coupling.prepare((params[0], torch.zeros_like(params[1])))
        columns = coupling.up(unit.reshape(-1, channels, height, width), prepared, None)
    norm = _norm([columns.flatten(1).T.numpy()], feedback)
    return f"convolutional, feedback {feedback:g}, tight", model.lipschitz(), norm, False, 0.9


def _norm(weights: list[np.ndarray], feedback: float) -> float:
    """The largest singular value of ``√γ·(W + Wᵀ)``, W all couplings in one matrix."""
    widths = [weights[0].shape[1], *(len(w) for w in weights)]
    ends = np.cumsum([0, *widths])
    whole = np.zeros((ends[-1], ends[-1]))
    for k, weight in enumerate(weights):
        whole[ends[k + 1] : ends[k + 2], ends[k] : ends[k + 1]] = feedback**0.5 * weight
    return float(np.linalg.svd(whole + whole.T, compute_uv=False)[0])


def _training(context: Context) -> tuple[list[tuple[int, str, Certificate]], list[Any]]:
    hidden, epochs = context.level.pick(((32, 32), 6), ((64, 64), 15), ((128, 128), 20))
    certificates, accuracies = [], []
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        torch.manual_seed(seed)
        model = HopfieldMLP((data.features, *hidden, data.classes), on_failure="ignore")
        batch = data.x[:32], data.y[:32]
        certificates.append((seed, "before training", certify(model, *batch)))
        config = TrainingConfig(epochs=epochs, learning_rate=5e-3, seed=seed)
        accuracies.append(train(model, data, config).accuracy())
        certificates.append((seed, "after training", certify(model, *batch)))
    return certificates, accuracies


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        # A residual of 1e-13 in a network that contracts by 0.95: 20 times that, and rounding.
        at_most("state", 1e-10, "largest deviation of a state from NumPy's"),
        at_most("contrast", 1e-8, "EP's gradient at a strong nudge against NumPy's contrast"),
        at_least("least_bias", 1e-3, "its bias, which a finite nudge must have"),
        at_least("order_least", 1.9, "order of that bias in β (theory: 2)"),
        at_most("order_most", 2.1, "order of that bias in β (theory: 2)"),
        at_least("constant_least", 1 - 1e-9, "lipschitz() over the norm of the network's matrix"),
        at_most("constant_where_exact", 1 + 1e-6, "the same where theory says they are equal"),
        at_most("radius_most", 1 + 1e-5, "lipschitz() over the radius asked for"),
        at_least("radius_least", 0.9, "the same, so that the bound is put to a test"),
        at_least("min_cosine", 0.99, "smallest signed cosine, before and after training"),
        at_most("norm_error", 0.05, "largest error of a gradient's norm"),
        above_chance("accuracy", "test accuracy, %"),
        at_least("accuracy", level.pick(88.0, 92.0, 94.0), "test accuracy, %"),
    )


TRACK = Track(
    number=67,
    title="Layered Networks",
    claim="On every path a layered network settles where NumPy settles, EP's gradient is the "
    "contrast of its equilibria at a finite nudge, and lipschitz() is the constant.",
    experiment="HopfieldMLP of one to three layers, compiled and on the general path, in float64 "
    "against equilibria, contrasts and singular values that NumPy computes alone; certificates and "
    "training on digits.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage(
            "implicit gradient on the general path",
            "without a kernel CenteredEP hands over the implicit gradient",
        ),
        Sabotage(
            "lipschitz() of a stack x0.9", "the constant of a stack is stated a tenth too small"
        ),
        Sabotage("shuffled labels", "networks train on labels that mean nothing"),
    ),
    statements=(
        "In {cases} cases states differed from NumPy's by at most {state:.1e}, and EP's gradient "
        "at a strong nudge from the contrast of NumPy's equilibria by {contrast:.1e} of its "
        "size; its bias was {least_bias:.1e} or more and fell with order {order_least:.2f} to "
        "{order_most:.2f} in β.",
        "lipschitz() was {constant_least:.6f} of the network's norm at the least, and "
        "{constant_where_exact:.6f} at the most where the two must be equal.",
        "In {certificates} certificates the smallest cosine was {min_cosine:.4f}; accuracy "
        "{accuracy}.",
    ),
    cost=10,
)
