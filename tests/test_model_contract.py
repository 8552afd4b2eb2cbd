"""What every registered model owes its users. A new line in ``MODELS`` is tested here by itself."""

from __future__ import annotations

import copy
import functools
import pickle

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.models import MODELS
from toreqprop.training import TrainingConfig, fit

CASES = {
    " ".join([name, *(str(value) for value in options.values())]): (name, options)
    for name in sorted(MODELS)
    for options in MODELS[name].variants
}
NAMES = list(CASES)


def token_loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over every predicted symbol, one per sample or one per position."""
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


def example(name: str) -> tuple[teq.EquilibriumModel, Tensor, Tensor]:
    torch.manual_seed(0)
    kind, options = CASES[name]
    return MODELS[kind].example(**options)


@functools.cache
def certified(name: str) -> tuple[teq.Certificate, teq.EquilibriumModel]:
    """The certificate of a model as it is built, of which several tests ask something."""
    model, x, y = example(name)
    return teq.certify(model, x, y, loss=token_loss), model


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_gets_the_exact_gradient(name: str) -> None:
    """Float64, tight tolerance: EP against the implicit oracle, tensor by tensor."""
    model, x, y = example(name)
    model.double()
    x = x.double() if x.is_floating_point() else x
    model.tol, model.max_steps = 1e-10, 5000
    model.gradient = model.gradient.softer(30)
    certificate = teq.certify(model, x, y, loss=token_loss)
    assert certificate.ok, certificate.verdict
    assert certificate.tensors
    assert certificate.min_cosine > 0.9999


@pytest.mark.parametrize("name", NAMES)
def test_default_gradients_are_certified_in_float32(name: str) -> None:
    certificate, _ = certified(name)
    assert certificate.ok, certificate.verdict
    assert certificate.min_cosine >= 0.99


@pytest.mark.parametrize("name", NAMES)
def test_relaxes_to_its_tolerance_and_keeps_no_graph(name: str) -> None:
    model, x, y = example(name)
    solution = model.equilibrium(x)
    assert solution.converged, solution.status
    assert solution.worst_residual <= model.tol
    loss = token_loss(model(x), y)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_copies_pickles_and_rebuilds(name: str) -> None:
    model, x, _ = example(name)
    model.eval()
    rebuilt = type(model)(**model.config())
    rebuilt.load_state_dict(model.state_dict())
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), rebuilt.eval()):
        assert torch.equal(other(x), model(x))


@pytest.mark.parametrize("name", NAMES)
def test_lipschitz_is_a_bound_or_a_reason(name: str) -> None:
    certificate, model = certified(name)
    try:
        bound = model.lipschitz()
    except teq.UnsupportedModelError:
        assert certificate.lipschitz is None
        return
    assert certificate.contraction <= bound * (1 + 1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_refuses_an_empty_batch_in_one_sentence(name: str) -> None:
    model, x, _ = example(name)
    with pytest.raises(teq.InvalidInputError, match="empty"):
        model(x[:0])


@pytest.mark.parametrize("name", NAMES)
def test_training_lowers_the_loss(name: str) -> None:
    model, x, y = example(name)
    config = TrainingConfig(epochs=20, batch_size=len(x), learning_rate=2e-2)
    history = fit(model, x, y, config, loss=token_loss)
    assert history.epochs[-1].loss < 0.7 * history.epochs[0].loss
