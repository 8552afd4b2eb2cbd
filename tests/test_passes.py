"""Passes down and up against the general path, and the pieces they are made of."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

import toreqprop as teq
from toreqprop.energies import (
    Activation,
    AveragePooling,
    ConvolutionCoupling,
    HardSigmoid,
    Logistic,
    MaxPooling,
    Pooling,
    Sigmoid,
    StackEnergy,
    System,
    Tanh,
    TightConvolutionBall,
)
from toreqprop.energies.couplings.ways import (
    ChainWays,
    MaxConvolutionWays,
    MaxWays,
    PlainConvolutionWays,
    from_phases,
    phase_kernel,
    winners_gradient,
)
from toreqprop.energies.pairs import Pair
from toreqprop.solvers import GaussSeidel
from toreqprop.solvers.pass_steps import Moved, steps_of
from toreqprop.solvers.passes import Passes
from toreqprop.solvers.relaxation import relax

POOLINGS = {"average": AveragePooling(), "max": MaxPooling()}


def network(pooling: Pooling, **options: object) -> teq.HopfieldConvNet:
    torch.manual_seed(0)
    model = teq.HopfieldConvNet(
        (2, 12, 8), (5, 6), 4, kernel_size=3, pooling=pooling, tol=1e-9, **options
    )
    return model.double()


@pytest.mark.parametrize("kernel", ["auto", "torch"])
@pytest.mark.parametrize("activation", [None, HardSigmoid()])
@pytest.mark.parametrize("name", POOLINGS)
def test_the_gradient_is_that_of_the_general_path(
    name: str, activation: object, kernel: str
) -> None:
    x, y = torch.randn(6, 2, 12, 8).double(), torch.randint(0, 4, (6,))
    found = []
    for order in ("symmetric", "parity"):
        # A weak nudge: at this tolerance it moves the center by less.
        gradient = teq.CenteredEP(1e-6)
        model = network(POOLINGS[name], activation=activation, gradient=gradient)
        model.kernel = kernel
        model.solver = GaussSeidel(order=order, tol=1e-9, max_steps=200)
        F.cross_entropy(model(x), y).backward()
        found.append([p.grad for p in model.parameters()])
        assert not model.failures
    for ours, general in zip(*found, strict=True):
        assert torch.dist(ours, general) <= 1e-6 * general.norm() + 1e-12


def test_passes_serve_convolutions_and_leave_other_poolings_to_the_general_path() -> None:
    for pooling, served in ((MaxPooling(), True), (teq.SoftPooling(), False)):
        model = network(pooling)
        x = torch.randn(2, 2, 12, 8).double()
        params = tuple(p.detach() for p in model.system_parameters())
        assert (Passes.of(System.bind(model.field, x, params)) is not None) == served


def test_samples_do_not_depend_on_the_others_in_their_batch() -> None:
    model = network(MaxPooling())
    model.tol = 1e-2
    x = torch.randn(8, 2, 12, 8).double()
    x[4:] *= 5  # takes another number of passes
    with torch.no_grad():
        torch.testing.assert_close(model(x)[:4], model(x[:4]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("activation", [None, HardSigmoid()])
def test_a_sample_without_a_loss_is_done_at_once_in_any_order_of_memory(activation: object) -> None:
    x, y = torch.randn(5, 2, 12, 8).double(), torch.randint(0, 4, (5,))
    found = []
    for order in (torch.contiguous_format, torch.channels_last):
        model = network(MaxPooling(), activation=activation)
        F.cross_entropy(model(x.contiguous(memory_format=order))[1:], y[1:]).backward()
        found.append([p.grad for p in model.parameters()])
    for plain, other in zip(*found, strict=True):
        assert torch.allclose(plain, other, rtol=1e-6, atol=1e-12)


def test_winners_that_a_strong_nudge_changes_are_left_to_the_general_path() -> None:
    model = network(MaxPooling(), gradient=teq.CenteredEP(0.5), on_failure="ignore")
    x = torch.randn(6, 2, 12, 8).double()
    params = tuple(p.detach() for p in model.system_parameters())
    passes = Passes.of(System.bind(model.field, x, params))
    assert passes is not None
    free = passes.relax(None, tol=1e-9, max_steps=200)
    push = torch.randn_like(free.state[-1])
    for strength, mirrored in ((1e-9, True), (1.0, False)):
        found = passes.relax_pair(
            [None, (push, strength)], free.state, free.memory, tol=1e-9, max_steps=200
        )
        assert (found is not None) == mirrored


GEOMETRIES = [(6, 2, 2), (4, 2, 1), (5, 1, 2), (7, 3, 2)]


@pytest.mark.parametrize(("side", "stride", "padding"), GEOMETRIES)
def test_a_transposed_convolution_by_phases(side: int, stride: int, padding: int) -> None:
    kernel, coarse = torch.randn(4, 3, side, side).double(), torch.randn(2, 4, 5, 6).double()
    left = [stride * n - ((n - 1) * stride - 2 * padding + side) for n in coarse.shape[-2:]]
    exact = F.conv_transpose2d(coarse, kernel, None, stride, padding, left)
    back, reach = phase_kernel(kernel, stride, (padding, padding))
    found = from_phases(F.conv2d(coarse, back, None, 1, reach), stride)
    torch.testing.assert_close(found, exact)


@pytest.mark.parametrize("groups", [1, 2])
def test_the_closed_gradient_of_a_kernel_in_its_ball(groups: int) -> None:
    """Against differences of the exact norm, whose top singular value stands alone."""
    torch.manual_seed(1)
    kernel = torch.randn(4, 4 // groups, 3, 3).double().requires_grad_()
    ball = TightConvolutionBall(0.5, tuple(kernel.shape), (5, 6), groups=groups).double()
    for _ in range(3):
        ball(kernel).sum().backward()
    inputs = torch.eye(4 * 30).double().reshape(-1, 4, 5, 6)

    def exact(weight: torch.Tensor) -> torch.Tensor:
        matrix = F.conv2d(inputs, weight, None, 1, 2, 1, groups).flatten(1)
        return weight * (0.5 / (ball.margin * torch.linalg.matrix_norm(matrix, 2)))

    test = torch.randn_like(kernel)
    mine = torch.autograd.grad((ball(kernel) * test).sum(), kernel)[0]
    other = torch.autograd.grad((exact(kernel) * test).sum(), kernel)[0]
    assert torch.dist(mine, other) <= 1e-3 * other.norm()


def loud(pooling: Pooling, feedback: float = 0.5) -> Passes:
    """Passes of a network that takes many of them."""
    torch.manual_seed(0)
    model = network(pooling, feedback=feedback)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3.0)
    x = torch.randn(6, 2, 12, 8).double()
    params = tuple(p.detach() for p in model.system_parameters())
    passes = Passes.of(System.bind(model.field, x, params))
    assert passes is not None
    return passes


def test_a_nudged_phase_goes_on_to_the_least_energy_between_two_passes() -> None:
    """Three passes with it are closer to the equilibrium than three without, in every layer."""
    passes = loud(AveragePooling())
    free = passes.relax(None, tol=1e-9, max_steps=500)
    push = [None, (torch.randn_like(free.state[-1]), 1e-6)]
    exact = passes.relax_pair(push, free.state, free.memory, tol=1e-9, max_steps=500)
    assert exact is not None

    def apart() -> list[float]:
        found = passes.relax_pair(push, free.state, free.memory, tol=1e-9, max_steps=3)
        assert found is not None
        return [float(torch.dist(*both)) for both in zip(found.shift, exact.shift, strict=True)]

    ours = apart()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("toreqprop.solvers.pass_work.Work.improve", lambda *given: None)
        plain = apart()
    assert all(a < 0.5 * b for a, b in zip(ours, plain, strict=True))


@pytest.mark.parametrize("name", POOLINGS)
def test_a_free_phase_goes_on_along_its_last_change(name: str) -> None:
    """Two passes with it are closer to the equilibrium than two without, in every layer."""
    passes = loud(POOLINGS[name], 0.5 if name == "average" else 0.1)
    exact = passes.relax(None, tol=1e-9, max_steps=500).state

    def apart() -> list[float]:
        found = passes.relax(None, tol=1e-9, max_steps=2).state
        return [float(torch.dist(*both)) for both in zip(found, exact, strict=True)]

    ours = apart()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("toreqprop.solvers.pass_work.Work.go_on", lambda *given: None)
        plain = apart()
    assert all(a < 0.9 * b for a, b in zip(ours, plain, strict=True))


def test_what_energies_need_of_a_layer_is_the_same_compiled() -> None:
    torch.manual_seed(0)
    order = torch.channels_last
    a, b, c, d, e, f = (torch.randn(3, 4, 5, 6).to(memory_format=order) for _ in range(6))
    ours, torchs = (steps_of(Tanh(), 0.3, a, compiled) for compiled in (True, False))
    for above in ((e, f), (None, None)):
        new, old = Moved(a, b, above[0]), Moved(c, d, above[1])
        torch.testing.assert_close(
            ours.bend(new, old, f), torchs.bend(new, old, f), rtol=1e-4, atol=1e-4
        )
    exact = torchs.overlap(a, b, c.contiguous(), d)
    torch.testing.assert_close(ours.overlap(a, b, c.contiguous(), d), exact, rtol=1e-4, atol=1e-4)
    factors = torch.randn(2, 3).double()
    torch.testing.assert_close(ours.mix(a, b, *factors), torchs.mix(a, b, *factors))


def test_a_map_kept_by_its_phases_is_convolved_the_same() -> None:
    torch.manual_seed(0)
    kernel, bias = torch.randn(4, 3, 6, 6).double(), torch.randn(4).double()
    plain = PlainConvolutionWays(kernel, bias, 2, (2, 2))
    packed = plain.packed()
    assert packed is not None
    low, high = torch.randn(2, 3, 8, 6).double(), torch.randn(2, 4, 4, 3).double()
    phases = packed.pack(low)
    torch.testing.assert_close(packed.unpack(phases)[0], low)
    torch.testing.assert_close(packed.rise(phases)[0], plain.rise(low)[0])
    torch.testing.assert_close(packed.lift(phases, ())[0], plain.lift(low, ())[0])
    fallen = packed.fall(high, phases.shape, ())
    one, other = packed.unpack(fallen, 2 * fallen)
    torch.testing.assert_close(other, 2 * one)
    torch.testing.assert_close(one, plain.fall(high, low.shape, ()))
    # Phases of a smaller kernel have entries of their own: more products, not fewer.
    assert PlainConvolutionWays(kernel[..., :4, :4], bias, 2, (1, 1)).packed() is None


@pytest.mark.parametrize(("channels", "side"), [(16, 5), (3, 3)])
@pytest.mark.parametrize("size", [2, 3])
def test_what_concerns_winners_alone_is_the_same_compiled(
    channels: int, side: int, size: int
) -> None:
    """Against whole convolutions; rows of a patch that fill vectors of memory, and that do not."""
    torch.manual_seed(0)
    order, padding = torch.channels_last, (side // 2, side // 2)
    kernel = torch.randn(6, channels, side, side).double().to(memory_format=order)
    bias, windows = torch.randn(6).double(), ((size, size), (size, size), (0, 0))
    pooling = MaxWays(*windows)
    parts = [PlainConvolutionWays(kernel, bias, 1, padding), pooling]
    chain = ChainWays(parts, [(channels, 13, 11), ()])
    ways = MaxConvolutionWays(chain, kernel, padding, size)
    pre, move = (torch.randn(2, channels, 13, 11).double().to(memory_format=order) for _ in "ab")
    found, trail = ways.rise(pre)
    assert ways._serves(trail)
    torch.testing.assert_close(ways.lift(move, trail)[0], chain.lift(move, trail)[0])
    one, two = torch.randn_like(found), torch.randn_like(found)
    fine = [pooling.fall(t, trail[1].shape, trail) for t in (one, two)]
    sums = [
        conv2d_weight(low, list(kernel.shape), high, 1, padding)
        for low, high in zip((pre, move), fine, strict=True)
    ]
    both = winners_gradient((one, two), (pre, move), trail[0], size, padding, kernel)
    torch.testing.assert_close(both, sums[0] + sums[1])
    single = winners_gradient((one,), (pre,), trail[0], size, padding, kernel)
    torch.testing.assert_close(single, sums[0])
    # A small move changes no winner, a large one does, and both ways say the same of it.
    for scale in (1e-9, 1e-3, 1e3):
        ours, whole = (w.lift(scale * move, trail)[1] for w in (ways, chain))
        assert ways.holds(trail, ours, 1e-2) == chain.holds(trail, whole, 1e-2) == (scale < 1)


def test_winners_of_an_input_are_found_once() -> None:
    """The local gradient with what the drive has decided is the one that decides anew."""
    model = network(MaxPooling())
    field, x = model.field, torch.randn(6, 2, 12, 8).double()
    params = tuple(p.detach() for p in model.system_parameters())
    with torch.no_grad():
        drive = System.bind(field, x, params).drive
    trail, coupling = field.first_trail(drive), field.couplings[0]
    assert len(trail) == coupling.trails
    post = Pair(torch.randn_like(drive[0]), torch.randn_like(drive[0]))
    weight, own = torch.rand(6).double(), params[:2]
    prepared = coupling.prepare(own)
    known = coupling.settled_gradients(post, x, weight, prepared, (True, True), trail)
    anew = coupling.gradients(post, x, weight, own, prepared, (True, True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("toreqprop.energies.couplings.ways.compiled_available", lambda: False)
        plain = coupling.settled_gradients(post, x, weight, prepared, (True, True), trail)
    for one, two, other in zip(known, plain, anew, strict=True):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(two, other)


@pytest.mark.parametrize("windows", [((2, 2), (2, 2), (0, 0)), ((3, 2), (2, 1), (1, 0))])
def test_how_far_a_winner_is_below_its_window_is_the_same_compiled(
    windows: tuple[tuple[int, int], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    fine, move = (torch.randn(3, 4, 7, 6).to(memory_format=torch.channels_last) for _ in range(2))
    ways = MaxWays(*windows)
    _, trail = ways.rise(fine)
    found = ways._lost(fine, move, trail[0])
    monkeypatch.setattr("toreqprop.energies.couplings.ways.compiled_available", lambda: False)
    assert found == pytest.approx(ways._lost(fine, move, trail[0]), rel=1e-6)
    assert found > 0
    assert ways._lost(fine, 0 * move, trail[0]) == 0


@pytest.mark.parametrize("activation", [Tanh(), Sigmoid(), Logistic()])
def test_a_layer_settles_the_same_compiled(activation: Activation) -> None:
    below, above = (torch.randn(3, 4, 5, 6).to(memory_format=torch.channels_last) for _ in range(2))
    steps = [steps_of(activation, 0.3, below, compiled) for compiled in (True, False)]
    for falling in (None, above, above.contiguous()):
        ours, torchs = (kind.settle(below, falling) for kind in steps)
        for one, other in zip(ours, torchs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pooling", [AveragePooling(), MaxPooling()], ids=["average", "max"])
@pytest.mark.parametrize("feedback", [0.1, 0.5])
def test_what_a_free_phase_returns_is_below_its_tolerance(
    pooling: Pooling, feedback: float
) -> None:
    """Of the state itself, not of where the last pass began."""
    for seed in range(3):
        torch.manual_seed(seed)
        model = teq.HopfieldConvNet(
            (1, 16, 16), [6, 8], 4, kernel_size=3, pooling=pooling, feedback=feedback, tol=3e-2
        )
        x = torch.randn(12, 1, 16, 16)
        with torch.no_grad():
            state = model.equilibrium(x).state
            system = System.bind(model.field, model.field_input(x), model.system_parameters())
            image = system.map(state)
        for found, own in zip(image, state, strict=True):
            gap = (found - own).flatten(1).norm(dim=1) / found.flatten(1).norm(dim=1)
            assert float(gap.max()) < model.tol


@pytest.mark.parametrize("batch", [1, 4])
def test_layers_in_any_order_of_memory_settle_the_same(batch: int) -> None:
    """A sequence whose channels lie next to each other, as after a transposition: what is found
    has to be written where it is looked for."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv1d(3, 16, 3, padding=1), nn.Tanh(), nn.Conv1d(16, 16, 3, padding=1), nn.Tanh(),
        nn.Flatten(), nn.Linear(12 * 16, 4),
    )  # fmt: skip
    model = teq.ConvertedNetwork(
        net, feedback=0.3, tol=1e-10, max_steps=200, gradient=teq.CenteredEP(1e-6)
    ).double()
    x = torch.randn(batch, 12, 3).double().transpose(1, 2)
    found = []
    for given, kernel in ((x, "auto"), (x.contiguous(), "auto"), (x, "torch")):
        model.kernel = kernel  # type: ignore[assignment]
        loss = model(given).square().sum()
        found.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-9)


def test_an_average_that_is_not_folded_into_its_kernel_settles() -> None:
    torch.manual_seed(0)
    couplings = ConvolutionCoupling(1), ConvolutionCoupling(1, AveragePooling(2), 2)
    field = StackEnergy(couplings, Tanh(), 0.3)
    params = tuple(
        0.1 * torch.randn(shape).double() for shape in ((3, 2, 3, 3), (3,), (4, 3, 3, 3), (4,))
    )
    system = System.bind(field, torch.randn(2, 2, 8, 8).double(), params)
    states = [
        relax(system, GaussSeidel(order=order, tol=1e-12)).state  # type: ignore[arg-type]
        for order in ("parity", "symmetric")
    ]
    for one, two in zip(*states, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-8, atol=1e-10)
