"""Training on real data: every kind of estimator learns, and nothing passes at chance."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import toreqprop as teq
from toreqprop.tasks import get
from toreqprop.training import Epoch, TrainingConfig, accuracy, fit, minibatches, predict

CHANCE = 0.1


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = get("digits").load(42, False)
    return tuple(
        torch.from_numpy(a) for a in (data.train_x, data.train_y, data.test_x, data.test_y)
    )


@pytest.mark.parametrize(
    ("gradient", "symmetric"),
    [
        (teq.CenteredEP(), True),
        (teq.ContrastiveLearning(), True),
        (teq.CoupledLearning(), True),
        (teq.RandomSignEP(), True),
        (teq.ContinualEP(), True),
        (teq.VectorFieldEP(), False),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, bool) else str(v),
)
def test_learns_digits(
    digits: tuple[Tensor, Tensor, Tensor, Tensor],
    gradient: teq.gradients.GradientEstimator,
    symmetric: bool,
) -> None:
    """Above 93 % on held-out data after eight epochs; chance is 10 %."""
    x, y, test_x, test_y = digits
    torch.manual_seed(42)
    model = teq.LoopedMLP(64, 64, 10, gradient=gradient, symmetric=symmetric)
    fit(model, x, y, TrainingConfig(epochs=8, learning_rate=2e-3))
    assert accuracy(model, test_x, test_y) > 0.93


def test_shuffled_labels_stay_at_chance(digits: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    x, y, test_x, test_y = digits
    torch.manual_seed(42)
    model = teq.LoopedMLP(64, 32, 10)
    shuffled = y[torch.randperm(len(y))]
    fit(model, x, shuffled, TrainingConfig(epochs=3, learning_rate=2e-3))
    assert accuracy(model, test_x, test_y) < 0.25


def test_history_measures_relaxations_and_lipschitz(
    digits: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    x, y, test_x, test_y = digits
    model = teq.LoopedMLP(64, 16, 10)
    seen: list[Epoch] = []
    history = fit(
        model,
        x[:200],
        y[:200],
        TrainingConfig(epochs=2, learning_rate=0.05),
        validation=(test_x, test_y),
        on_epoch=seen.append,
        watch_lipschitz=True,
    )
    assert seen == history.epochs
    for epoch in history.epochs:
        assert epoch.free_steps >= 1
        assert epoch.nudged_steps >= 1
        # A saturated sample hardly moves when nudged; relative to so little, float32 rounding
        # can exceed tol, and the relaxation rightly stops there.
        assert 0 < epoch.worst_residual < 10 * model.tol
        assert epoch.unconverged == 0
        assert 0 < epoch.lipschitz < 1
    assert history.epochs[-1].accuracy == accuracy(model, test_x, test_y)
    assert history.seconds > 0
    assert set(history.as_rows()[0]) == set(Epoch.__dataclass_fields__)
    baseline = fit(teq.BackpropMLP(64, 16, 10), x[:50], y[:50], TrainingConfig(epochs=1))
    assert baseline.epochs[0].free_steps is None


def test_data_order_depends_on_the_seed_alone() -> None:
    def order(seed: int) -> list[int]:
        torch.rand(seed)  # the global generator must not matter
        return torch.cat(list(minibatches(10, 4, torch.Generator().manual_seed(seed)))).tolist()

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == list(range(10))


def test_predict_restores_the_mode() -> None:
    model = teq.LoopedMLP(4, 5, 3)
    model.train()
    assert predict(model, torch.randn(7, 4), batch_size=3).shape == (7,)
    assert model.training


@pytest.mark.parametrize(
    "bad", [{"epochs": 0}, {"batch_size": 0}, {"learning_rate": 0.0}, {"schedule": "warm"}]
)
def test_bad_configurations(bad: dict) -> None:
    with pytest.raises(teq.InvalidInputError):
        TrainingConfig(**bad)


def test_an_empty_training_set_is_refused() -> None:
    with pytest.raises(teq.InvalidInputError, match="empty"):
        fit(teq.LoopedMLP(4, 5, 3), torch.zeros(0, 4), torch.zeros(0), TrainingConfig())


def test_an_interrupted_training_leaves_the_model_as_it_found_it(
    digits: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    x, y, *_ = digits
    model = teq.LoopedMLP(64, 8, 10)
    counts: list[str] = []
    model.register_relaxation_hook(lambda phase, _: counts.append(phase))
    hooks = len(model._hooks)

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(model, x, y, TrainingConfig(epochs=1), on_step=stop)
    assert len(model._hooks) == hooks
    with pytest.raises(teq.InvalidInputError):
        predict(model, x[:, :3])
    assert model.training
