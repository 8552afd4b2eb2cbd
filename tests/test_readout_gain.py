"""The gain of a readout: a factor, for the looped and the feed-forward network alike."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.models import BackpropMLP, LoopedMLP


@pytest.mark.parametrize("kind", [LoopedMLP, BackpropMLP])
def test_it_multiplies_the_output_and_the_gradient_of_the_readout(kind: type) -> None:
    x, y = torch.randn(8, 5), torch.randn(8, 3)
    torch.manual_seed(0)
    plain = kind(5, 7, 3)
    torch.manual_seed(0)
    loud = kind(5, 7, 3, gain=6.0)
    assert torch.allclose(loud(x), 6 * plain(x))
    gradients = []
    for model, factor in ((plain, 6.0), (loud, 1.0)):
        F.mse_loss(factor * model(x), y).backward()
        *_, weight, _ = model.parameters()
        gradients.append(weight.grad)
    assert torch.allclose(*gradients)


@pytest.mark.parametrize("kind", [LoopedMLP, BackpropMLP])
def test_hooks_of_the_readout_see_what_it_computed(kind: type) -> None:
    model = kind(5, 7, 3, gain=6.0)
    readout = model.readout if kind is LoopedMLP else model.layers[-1]
    seen: list[Tensor] = []
    readout.register_forward_hook(lambda module, given, output: seen.append(output))
    readout.register_full_backward_hook(lambda module, given, output: None)
    output = model(torch.randn(8, 5))
    output.sum().backward()
    assert torch.equal(6 * seen[0], output)


@pytest.mark.parametrize("gain", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("kind", [LoopedMLP, BackpropMLP])
def test_what_is_no_factor_is_refused(kind: type, gain: float) -> None:
    with pytest.raises(teq.InvalidInputError, match="gain must be > 0"):
        kind(5, 7, 3, gain=gain)
