"""Random weights and signs from generators of one's own, off torch's global one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import toreqprop as teq
from toreqprop import checkpoint
from toreqprop.training import TrainingConfig, fit

Build = Callable[..., nn.Module]

BUILDS: dict[str, Build] = {
    "LoopedMLP": lambda **o: teq.LoopedMLP(6, 9, 4, **o),
    "HopfieldMLP": lambda **o: teq.HopfieldMLP([6, 9, 8, 4], **o),
    "ResistiveMLP": lambda **o: teq.ResistiveMLP([6, 9, 4], **o),
    "HopfieldMLP.deep": lambda **o: teq.HopfieldMLP.deep(6, 5, 4, 3, **o),
    "HopfieldConvNet": lambda **o: teq.HopfieldConvNet((1, 8, 8), (3, 4), 4, **o),
    "CompletionNetwork": lambda **o: teq.CompletionNetwork(6, 5, 4, **o),
    "EquilibriumMap": lambda **o: teq.EquilibriumMap(2, 3, **o),
    "EquilibriumTransformer": lambda **o: teq.EquilibriumTransformer(5, 4, width=8, **o),
    "deep energy": lambda **o: teq.EquilibriumTransformer(5, 4, width=8, layers=3, **o),
    "attention": lambda **o: teq.EquilibriumTransformer(5, 4, width=8, variant="attention", **o),
    "stacked": lambda **o: teq.EquilibriumTransformer(5, 4, width=8, variant="stacked", **o),
    "BackpropMLP": lambda **o: teq.BackpropMLP(6, 9, 4, **o),
    "BackpropConvNet": lambda **o: teq.BackpropConvNet((1, 8, 8), (3, 4), 4, **o),
}
KNOWN = {name.partition(".")[0] for name in BUILDS}


def test_every_public_model_is_built_here() -> None:
    public = {
        name
        for name in teq.__all__
        if isinstance(getattr(teq, name), type) and issubclass(getattr(teq, name), nn.Module)
    }
    # These are given modules that have their weights already.
    drawn_elsewhere = {"EquilibriumModel", "ConvertedNetwork", "Block", "Residual"}
    assert public - drawn_elsewhere <= KNOWN


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.parametrize("name", BUILDS)
def test_weights_come_from_the_generator_alone(name: str) -> None:
    """The weights of that seed, with torch's global generator neither read nor moved."""
    torch.manual_seed(11)
    expected = BUILDS[name]().state_dict()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    found = BUILDS[name](generator=seeded(11)).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert same(found, expected)
    own = seeded(11)
    BUILDS[name](generator=own)
    assert not same(BUILDS[name](generator=own).state_dict(), expected)  # it moves on


@pytest.mark.parametrize("name", BUILDS)
def test_what_is_no_generator_is_refused(name: str) -> None:
    with pytest.raises(teq.InvalidInputError, match=r"torch\.Generator\(\)\.manual_seed"):
        BUILDS[name](generator=11)


def test_models_built_in_threads_are_one_model() -> None:
    def build(number: int) -> dict[str, Any]:
        torch.rand(number)  # other users of torch's generator, at any moment
        return teq.LoopedMLP(6, 9, 4, generator=seeded(7)).state_dict()

    alone = build(0)
    with ThreadPoolExecutor(8) as pool:
        assert all(same(alone, found) for found in pool.map(build, range(48)))


def trained(number: int) -> dict[str, Any]:
    """A training whose batches and whose estimator's signs are left to chance."""
    torch.rand(number)
    x, y = torch.randn(20, 6, generator=seeded(1)), torch.arange(20) % 4
    model = teq.LoopedMLP(6, 9, 4, gradient=teq.RandomSignEP(), generator=seeded(7))
    fit(model, x, y, TrainingConfig(epochs=3, batch_size=5, seed=2))
    return model.state_dict()


def test_fits_in_threads_are_one_fit() -> None:
    alone = trained(0)
    with ThreadPoolExecutor(8) as pool:
        assert all(same(alone, found) for found in pool.map(trained, range(16)))


def test_a_fit_neither_reads_nor_moves_the_global_generator() -> None:
    found: list[dict[str, Any]] = []
    for seed in (3, 4):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found.append(trained(0))
        assert torch.equal(torch.get_rng_state(), before)
    assert same(*found)


def test_loading_a_checkpoint_leaves_the_global_generator_to_others(tmp_path: Path) -> None:
    """Put back where it was, it would hand other threads the same numbers twice."""
    checkpoint.save(tmp_path, checkpoint.Checkpoint(teq.LoopedMLP(6, 9, 4)))
    drawn: list[Tensor] = []

    class Elsewhere(teq.LoopedMLP):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            with ThreadPoolExecutor(1) as pool:
                drawn.append(pool.submit(torch.rand, 3).result())
            super().__init__(*arguments, **options)

    torch.manual_seed(5)
    expected = torch.rand(6)
    torch.manual_seed(5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(checkpoint.NETWORKS, "looped", Elsewhere)
        checkpoint.load(tmp_path)
    assert torch.equal(torch.cat([*drawn, torch.rand(3)]), expected)
