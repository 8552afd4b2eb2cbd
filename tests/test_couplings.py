"""What every registered coupling owes. A new line in ``COUPLINGS`` is tested here by itself.

Derivatives are held against central differences of the value in float64, pairs against two separate
evaluations, the norm against the power method, and sweeps against the energy itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from toreqprop.energies import (
    COUPLINGS,
    AveragePoolCoupling,
    ConvolutionCoupling,
    Coupling,
    IdentityCoupling,
    MaxPoolCoupling,
    Params,
    ReshapeCoupling,
    Sigmoid,
    Skip,
    StackEnergy,
    System,
)
from toreqprop.energies.couplings.base import Example
from toreqprop.energies.pairs import Pair, Signal
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.solvers import GaussSeidel, Trace, solve

CASES = {
    f"{name} {number}": example
    for name, cls in sorted(COUPLINGS.items())
    for number, example in enumerate(cls.examples())
}
EVERY = pytest.mark.parametrize("name", CASES)
BATCH = 2


@dataclass(frozen=True)
class Drawn:
    """A coupling between two random layers."""

    coupling: Coupling
    params: Params
    pre: Tensor
    post: Tensor

    @property
    def prepared(self) -> Params:
        return self.coupling.prepare(self.params)

    def value(self, post: Signal, pre: Signal, params: Params) -> Signal:
        return self.coupling.value(post, pre, self.coupling.prepare(params))

    def gradients(self, post: Signal, pre: Signal) -> tuple[Tensor | None, ...]:
        weight = torch.tensor([0.7, -1.3], dtype=self.pre.dtype)
        wants = (True,) * len(self.params)
        return self.coupling.gradients(post, pre, weight, self.params, self.prepared, wants)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def draw(example: Example) -> Drawn:
    params = tuple(normal(*shape) for shape in example.params)
    pre = normal(BATCH, *example.below)
    coupling = example.coupling
    post = pre
    if coupling.one_way:
        post = normal(*coupling.up(pre, coupling.prepare(params), None).shape)
    return Drawn(coupling, params, pre, post + 0 * post)


def close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    a, b = a.detach(), b.detach()
    return float((a - b).norm()) <= tolerance * max(float(a.norm()), float(b.norm()), 1e-300)


SLOPE = 1e-6
"""Of a difference in float64: its own error is of order SLOPE² and of 1e-16/SLOPE."""


@EVERY
def test_both_ways_are_the_derivatives_of_the_value(name: str) -> None:
    it = draw(CASES[name])
    found = {
        "up": it.coupling.up(it.pre, it.prepared, it.post),
        "down": it.coupling.down(it.post, it.pre, it.prepared),
    }
    for way, at in (("up", it.post), ("down", it.pre)):
        move = SLOPE * torch.randn_like(at)
        ends = [
            it.value(at + sign * move, it.pre, it.params)
            if way == "up"
            else it.value(it.post, at + sign * move, it.params)
            for sign in (1, -1)
        ]
        slope = 0.5 * (ends[0] - ends[1])
        assert close(slope, (found[way] * move).flatten(1).sum(1), 1e-6), way


@EVERY
def test_the_local_rule_is_the_derivative_in_the_parameters(name: str) -> None:
    it = draw(CASES[name])
    weight = torch.tensor([0.7, -1.3], dtype=torch.float64)
    for k, gradient in enumerate(it.gradients(it.post, it.pre)):
        assert gradient is not None
        move = SLOPE * torch.randn_like(it.params[k])
        ends = []
        for sign in (1, -1):
            params = tuple(p + sign * move if j == k else p for j, p in enumerate(it.params))
            ends.append((weight * it.value(it.post, it.pre, params)).sum())
        assert close(0.5 * (ends[0] - ends[1]), (gradient * move).sum(), 1e-6), k


@EVERY
def test_parameters_nobody_asks_for_cost_nothing(name: str) -> None:
    it = draw(CASES[name])
    wants = (False,) * len(it.params)
    weight = torch.ones(BATCH, dtype=torch.float64)
    found = it.coupling.gradients(it.post, it.pre, weight, it.params, it.prepared, wants)
    assert found == (None,) * len(it.params)


@EVERY
def test_linear_where_it_says_so(name: str) -> None:
    it = draw(CASES[name])
    other = torch.randn_like(it.pre)
    down = [it.coupling.down(it.post, pre, it.prepared) for pre in (it.pre, other)]
    bent = not close(down[0], down[1], 1e-9)
    assert bent != it.coupling.linear
    if it.coupling.linear:
        up = [it.coupling.up(pre, it.prepared, None) for pre in (it.pre, other, it.pre + other)]
        rest = it.coupling.up(torch.zeros_like(it.pre), it.prepared, None)
        assert close(up[2], up[0] + up[1] - rest, 1e-9)


def moved(signal: Tensor, size: float) -> Pair:
    return Pair(signal, size * torch.randn_like(signal))


@EVERY
@pytest.mark.parametrize("size", [0.5, 1e-3])
def test_pairs_are_two_evaluations(name: str, size: float) -> None:
    """Also where the two phases differ so much that another pixel wins."""
    it = draw(CASES[name])
    post, pre = moved(it.post, size), moved(it.pre, size)
    ways = {
        "up": (
            it.coupling.up(pre, it.prepared, post),
            [
                it.coupling.up(getattr(pre, phase), it.prepared, getattr(post, phase))
                for phase in ("up", "down")
            ],
        ),
        "down": (
            it.coupling.down(post, pre, it.prepared),
            [
                it.coupling.down(getattr(post, phase), getattr(pre, phase), it.prepared)
                for phase in ("up", "down")
            ],
        ),
        "value": (
            it.value(post, pre, it.params),
            [it.value(getattr(post, p), getattr(pre, p), it.params) for p in ("up", "down")],
        ),
    }
    for way, (pair, (one, two)) in ways.items():
        assert close(pair.center, 0.5 * (one + two), 1e-10), way
        assert close(pair.shift, 0.5 * (one - two), 1e-10), way
    halves = zip(
        it.gradients(post, pre),
        it.gradients(post.up, pre.up),
        it.gradients(post.down, pre.down),
        strict=True,
    )
    for found, one, two in halves:
        assert found is not None
        assert one is not None
        assert two is not None
        assert close(found, 0.5 * (one - two), 1e-10)


@EVERY
def test_a_small_difference_keeps_its_digits_in_single_precision(name: str) -> None:
    """A shift 1e-12 of its center, far below float32's rounding of it."""
    it = draw(CASES[name])
    single = Drawn(
        it.coupling, tuple(p.float() for p in it.params), it.pre.float(), it.post.float()
    )
    post, pre = moved(single.post, 1e-12), moved(single.pre, 1e-12)
    found = [
        single.coupling.up(pre, single.prepared, post).shift,
        single.coupling.down(post, pre, single.prepared).shift,
        *single.gradients(post, pre),
    ]
    exact = Drawn(
        it.coupling,
        tuple(p.double() for p in single.params),
        single.pre.double(),
        single.post.double(),
    )
    wide = [Pair(p.center.double(), p.shift.double()) for p in (post, pre)]
    wanted = [
        exact.coupling.up(wide[1], exact.prepared, wide[0]).shift,
        exact.coupling.down(wide[0], wide[1], exact.prepared).shift,
        *exact.gradients(*wide),
    ]
    for a, b in zip(found, wanted, strict=True):
        assert a is not None
        assert b is not None
        assert close(a.double(), b, 1e-5)


@pytest.mark.parametrize("name", [n for n, example in CASES.items() if example.coupling.one_way])
def test_a_nudged_layer_above_a_fixed_input(name: str) -> None:
    """The lowest coupling: a pair above, one tensor below."""
    it = draw(CASES[name])
    post = moved(it.post, 1e-3)
    found = it.coupling.down(post, it.pre, it.prepared)
    ends = [it.coupling.down(p, it.pre, it.prepared) for p in (post.up, post.down)]
    assert close(found.shift, 0.5 * (ends[0] - ends[1]), 1e-9)
    both = zip(
        it.gradients(post, it.pre),
        it.gradients(post.up, it.pre),
        it.gradients(post.down, it.pre),
        strict=True,
    )
    for pair, one, two in both:
        assert pair is not None
        assert one is not None
        assert two is not None
        assert close(pair, 0.5 * (one - two), 1e-9)


@EVERY
def test_the_norm_is_an_upper_bound_or_a_reason(name: str) -> None:
    it = draw(CASES[name])
    for shape in (CASES[name].below, ()):
        try:
            bound = it.coupling.norm(it.params, shape)
        except UnsupportedModelError:
            assert not it.coupling.linear
            return
        # The power method on F'F'ᵀ comes from below, whatever the start. Down is linear in what
        # is above, so that its own derivative there is F'.
        w = torch.randn_like(it.post)
        size = torch.zeros(BATCH, dtype=torch.float64)
        for _ in range(50):
            w = (w / w.flatten(1).norm(dim=1).reshape(-1, *[1] * (w.dim() - 1))).requires_grad_()
            v = it.coupling.down(w, it.pre, it.prepared)
            size = v.detach().flatten(1).norm(dim=1)
            (w,) = torch.autograd.grad((v * v.detach()).sum(), w)
        assert float(size.max()) <= bound * (1 + 1e-9)
        assert float(size.max()) > 0


@EVERY
@pytest.mark.parametrize("order", ["parity", "sequential"])
def test_sweeps_never_raise_the_energy(name: str, order: str) -> None:
    """Two layers of neurons and a skip past them, states that are not negative."""
    it = draw(CASES[name])
    params = tuple(2 * p for p in it.params)
    field = StackEnergy(
        (IdentityCoupling(), IdentityCoupling(0.5), it.coupling),
        Sigmoid(),
        0.8,
        skips=(Skip(0, 1, IdentityCoupling(-0.7)),),
    )
    trace = Trace(keep_energies=True)
    solver = GaussSeidel(order, tol=1e-12, max_steps=60)  # type: ignore[arg-type]
    system = System.bind(field, it.pre, params)
    solve(system, system.initial_state(), solver, trace=trace)
    energies = torch.stack(trace.energies)
    rise = (energies[1:] - energies[:-1]).max() if len(energies) > 1 else energies.new_zeros(())
    assert float(rise) <= 1e-12 * float(energies.abs().max())
    assert len(energies) > 1


def test_colours_keep_layers_that_touch_apart() -> None:
    line = StackEnergy((IdentityCoupling(),) * 5)
    assert line.colours(5) == ((0, 2, 4), (1, 3))
    bridged = StackEnergy(
        (IdentityCoupling(),) * 5,
        skips=(Skip(0, 2, IdentityCoupling()), Skip(1, 4, line.couplings[0])),
    )
    for group in bridged.colours(5):
        assert not {(0, 2), (1, 4), *((k, k + 1) for k in range(4))} & {
            (a, b) for a in group for b in group
        }
    assert sorted(k for group in bridged.colours(5) for k in group) == list(range(5))


def test_a_coupling_needs_no_more_than_its_way_up() -> None:
    """Down, the local rule and the value follow by autograd, and agree with the written ones."""

    class Derived(ConvolutionCoupling):
        down = Coupling.down
        gradients = Coupling.gradients

    for coupling in (ConvolutionCoupling(1, stride=2), ConvolutionCoupling(2, dilation=2)):
        it = draw(Example(coupling, (2, 5, 4), ((3, 2, 3, 3), (3,))))
        twin = Drawn(
            Derived(coupling.padding, None, coupling.stride, 1, coupling.dilation),
            it.params,
            it.pre,
            it.post,
        )
        post, pre = moved(it.post, 1e-2), moved(it.pre, 1e-2)
        a, b = (t.coupling.down(post, pre, t.prepared) for t in (it, twin))
        assert close(a.center, b.center, 1e-12)
        assert close(a.shift, b.shift, 1e-12)
        for one, two in zip(it.gradients(post, pre), twin.gradients(post, pre), strict=True):
            assert one is not None
            assert two is not None
            assert close(one, two, 1e-12)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: AveragePoolCoupling((0, 2)), "size must be 1 or more whole numbers >= 1"),
        (lambda: MaxPoolCoupling((2, 2), (1,)), "need an entry for each"),
        (lambda: ReshapeCoupling(()), "shape must be 1 or more whole numbers"),
    ],
)
def test_nonsense_is_refused(build: type, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        build()
