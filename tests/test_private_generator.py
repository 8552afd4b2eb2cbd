"""Models built from a seed, off torch's global generator."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import toreqprop as teq
from toreqprop.checkpoint import NETWORKS
from toreqprop.models import MODELS
from toreqprop.private_generator import build_from_seed


def build(name: str) -> nn.Module:
    return teq.BackpropMLP(6, 9, 4) if name == "backprop" else MODELS[name].example()[0]


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_every_model_is_the_one_of_that_seed(name: str) -> None:
    """The same weights as from the global generator, which is left as it was."""
    torch.manual_seed(11)
    expected = build(name).state_dict()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    found = build_from_seed(lambda: build(name), 11).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
