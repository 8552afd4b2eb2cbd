"""The study of CIFAR-10 in small: the twin is the same network, trainings resume, tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from toreqprop.bench.cifar import jobs, plan, report, study
from toreqprop.bench.cifar.recipe import Recipe, equilibrium_network, twin
from toreqprop.bench.cifar.training import flipped, pixels, train
from toreqprop.errors import InvalidInputError
from toreqprop.tasks.cifar10 import Images

TINY = Recipe(channels=(3, 4), epochs=3, batch=8)


@pytest.fixture(scope="module")
def images() -> Images:
    generator = np.random.default_rng(0)
    x = generator.integers(0, 256, (24, 3, 32, 32), dtype=np.uint8)
    return Images(x, generator.integers(0, 10, 24))


def test_the_twin_is_the_network_without_feedback(images: Images) -> None:
    x = pixels(torch.from_numpy(images.x))
    network = equilibrium_network(TINY, 5)
    assert torch.allclose(network.feedforward(x), twin(TINY, 5)(x), atol=1e-5)


def test_the_rate_rises_and_falls_to_zero() -> None:
    rates = [TINY.rate_at(share) for share in (0.0, TINY.warm, 1.0)]
    assert rates == pytest.approx([0.0, TINY.rate, 0.0])


def test_an_image_is_flipped_whole_or_not_at_all(images: Images) -> None:
    x = pixels(torch.from_numpy(images.x))
    found = flipped(x, torch.Generator().manual_seed(0))
    as_it_was = [bool((a == b).all()) for a, b in zip(found, x, strict=True)]
    mirrored = [bool((a == b).all()) for a, b in zip(found, x.flip(3), strict=True)]
    assert all(a != b for a, b in zip(as_it_was, mirrored, strict=True))
    assert any(as_it_was)
    assert any(mirrored)


@pytest.mark.parametrize("method", ["ep", "backprop"])
def test_a_training_that_was_stopped_goes_on(method: Any, images: Images, tmp_path: Path) -> None:
    build = equilibrium_network if method == "ep" else twin
    whole, stopped = build(TINY, 1), build(TINY, 1)
    once = train(whole, images, TINY, 7)

    def stop(news: str) -> None:
        if "epoch 1 " in news:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(stopped, images, TINY, 7, report=stop, kept=tmp_path / "state.pt")
    resumed = build(TINY, 2)  # its weights come from the file
    twice = train(resumed, images, TINY, 7, kept=tmp_path / "state.pt")
    assert once.epochs == twice.epochs
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_gap_counts_where_one_of_them_is_right() -> None:
    right = np.zeros(100, bool)
    right[:50] = True
    other = right.copy()
    other[:4] = False

    def run(method: str, answers: np.ndarray) -> dict[str, Any]:
        bits = np.packbits(answers).tobytes().hex()
        return {"method": method, "correct": bits, "test_images": 100}

    found = study.gap([run("ep", other), run("backprop", right)])
    assert found is not None
    assert (found["only_ep_right"], found["only_backprop_right"]) == (0, 4)
    assert found["points"] == pytest.approx(-4.0)
    assert found["low"] < -4.0 < found["high"] < 0.0
    assert study.gap([run("ep", right)]) is None


def test_the_published_network_is_counted_as_torch_counts_it() -> None:
    """Products of the modules, from their outputs' sizes; the skip of the colours is left out."""
    counted, width = 0, 4

    def count(module: Any, given: Any, out: torch.Tensor) -> None:
        nonlocal counted
        counted += module.weight[0].numel() * out[0].numel()

    net = plan.residual_network(width)
    for module in net.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear):
            module.register_forward_hook(count)
    net(torch.zeros(1, 3, 32, 32))
    assert counted == plan.products(width) - 16**2 * 3 * width


def test_the_plan_scales_with_what_was_measured() -> None:
    step = {"width": 16, "batch": 32, "timing": {"ep": 300.0, "backprop": 100.0}}
    found = plan.planned(step)
    assert found["hours"] == pytest.approx(3 * found["backprop_hours"])
    assert found["backprop_hours"] == pytest.approx(30.0 * 3 / plan.PUBLISHED.directions)


def test_unknown_methods_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="method"):
        study.run_cifar(tmp_path, methods=["adam"])  # type: ignore[list-item]


def test_a_small_study_writes_its_file(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "RECIPES", {"ep": TINY, "backprop": TINY})
    monkeypatch.setattr(jobs, "fixed_split", lambda: (images, images, images))
    found = study.run_cifar(tmp_path, images=16, epochs=1)
    assert json.loads((tmp_path / "cifar10_partial.json").read_text()) == found
    assert [run["method"] for run in found["runs"]] == ["ep", "backprop"]
    assert found["runs"][0]["probes"].keys() == {"0", "1"}
    assert not list(tmp_path.rglob("*.pt"))
    tables = (report.table_lines, report.certificate_lines, report.epoch_lines, report.check_lines)
    assert all(len(lines(found)) > 2 for lines in tables)
    assert report.curves_figure(found) is not None
    kept = {path: path.read_bytes() for path in (tmp_path / ".partial").iterdir()}
    study.run_cifar(tmp_path, images=16, epochs=1)  # nothing is trained twice
    assert kept == {path: path.read_bytes() for path in (tmp_path / ".partial").iterdir()}


def test_the_study_trains_on_what_had_been_held_out_and_on_no_test_image(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = tuple(Images(images.x[k : k + 8], images.y[k : k + 8]) for k in (0, 8, 16))
    monkeypatch.setattr(jobs, "fixed_split", lambda: split)
    trained, tested = jobs.parts(None)
    assert np.array_equal(trained.x, images.x[:16])
    assert np.array_equal(tested.x, images.x[16:])
