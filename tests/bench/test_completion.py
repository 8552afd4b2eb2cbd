"""The study of completion: its masks, its exact gradient, its tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from toreqprop.bench import completion as study
from toreqprop.bench import completion_gradients as gradients
from toreqprop.bench import completion_report as report
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import CenteredEP, ImplicitGradient
from toreqprop.models import CompletionNetwork

TINY = replace(study.SETUP, hidden=6, drivers=5, copies=1, epochs=1)


@pytest.mark.parametrize("kind", study.KINDS)
@pytest.mark.parametrize("share", study.SHARES)
def test_masks_hide_what_they_should(kind: str, share: float) -> None:
    seen = study.masks(kind, share, 40, 64, torch.Generator().manual_seed(0))
    assert bool((seen.sum(1) == 64 * (1 - share)).all())
    if kind == "block":
        images = seen.reshape(-1, 8, 8)
        lower, left = (images[:, -1] == 0).all(1), (images[:, :, 0] == 0).all(1)
        assert bool((lower ^ left).all())
        assert 0 < int(lower.sum()) < 40


def small(classes: int = 3) -> tuple[study.Pictures, torch.Tensor]:
    torch.manual_seed(0)
    picture, labels = torch.randn(20, 16), torch.arange(20) % classes
    return study.Pictures(picture, labels, picture, labels, classes, torch.zeros(16)), picture


def test_scores_know_right_from_wrong() -> None:
    data, picture = small()

    class Oracle(torch.nn.Module):
        def __init__(self, error: float) -> None:
            super().__init__()
            self.error = error

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return study.whole(picture + self.error, data.test_y, data.classes)

    for row in study.tested(Oracle(0.1), data):
        assert row["psnr"] == pytest.approx(20.0, abs=1e-3)
        assert row["accuracy"] == 100.0
    spread = float(-10 * torch.log10(picture.square().mean()))
    assert study.tested(None, data)[1]["psnr"] == pytest.approx(spread, abs=1.0)


@pytest.mark.parametrize("method", study.TWINS)
def test_twins_have_as_many_parameters(method: str) -> None:
    own = study.parameters(study.build(study.SETUP, study.EP, 64, 10))
    twin = study.parameters(study.build(study.SETUP, method, 64, 10))
    assert own <= twin < 1.02 * own


def test_the_exact_gradient_is_that_of_the_implicit_function_theorem() -> None:
    """Linear algebra on the Hessian against the library's oracle, and settled EP against both."""
    data, _ = small()
    model = study.build(TINY, study.EP, 16, 3).double()
    assert isinstance(model, CompletionNetwork)
    x, y = (part.double() for part in study.batch(data, 0))
    loss = TINY.loss(3)
    model.tol = 1e-12
    with torch.no_grad():
        state = model.equilibrium(x).state
    moves, distance = gradients.exact_moves(model, x, y, loss, state)
    exact = gradients._gradient_of(model, x, state, moves)
    assert 0 < float(distance.min()) < 1
    for estimator, within in ((ImplicitGradient(), 1e-9), (CenteredEP(1e-4), 1e-6)):
        found = gradients.estimated(model, estimator, 1e-12, x, y, loss)[0]
        torch.testing.assert_close(found, exact, atol=within * float(exact.norm()), rtol=0)


def row(value: float) -> list[dict[str, object]]:
    return [
        {"kind": kind, "share": share, "psnr": value, "accuracy": 10 * value}
        for kind in study.KINDS
        for share in study.SHARES
    ]


def test_tables_pair_seeds() -> None:
    runs = [
        {"method": method, "seed": seed, "setup": {"rate": 0.1, "scale": 1.0}, "parameters": 9,
         "scores": row(seed + gain), "mean": row(1.0)}
        for method, gain in ((study.EP, 0.5), ("twin", 0.0))
        for seed in (4, 3)
    ]  # fmt: skip
    lines = report.render_markdown({"runs": runs, "gradients": []})
    assert "| 25%, random places | 1.00 | 4.00 | 3.50 | +0.50 (+0.50 to +0.50) |" in lines


def test_a_point_weighs_as_much_as_a_fifth_of_a_decibel_under_every_mask() -> None:
    rows = [{**each, "accuracy": 0.0} for each in row(1.0)]
    assert study.judged([{**each, "accuracy": 1.0} for each in rows]) == pytest.approx(1.2)
    assert study.judged([{**rows[0], "psnr": 7.0}, *rows[1:]]) == pytest.approx(2.0)


@pytest.mark.parametrize("method", [study.EP, *study.TWINS])
def test_dropping_hides_from_drivers_and_twins_while_it_lasts(method: str) -> None:
    """What is seen still comes out as it went in; with all dropped a twin makes the same of any
    picture."""
    _, picture = small()
    model = study.build(TINY, method, 16, 3)
    seen = torch.ones(20, 16)
    seen[:, ::2] = 0
    x = study.given(picture, seen, 3)
    before = model(x)
    with study.dropping(model, 1.0):
        one = model(x)
        assert not torch.equal(one, model(x))
    torch.testing.assert_close(one[:, 1:16:2], picture[:, 1::2])
    torch.testing.assert_close(model(x), before)
    everything = torch.cat([x, torch.ones(20, 19)], 1)
    torch.testing.assert_close(model(everything), before)
    if isinstance(model, study.Twin):
        nothing = model(torch.cat([x, torch.zeros(20, 19)], 1))[:, 0:16:2]
        torch.testing.assert_close(nothing, nothing[:1].expand_as(nothing))


def test_search_refuses_unknown_settings() -> None:
    with pytest.raises(InvalidInputError, match="NAME=VALUE"):
        next(study.search([study.EP], [0], ["speed=1"]))
