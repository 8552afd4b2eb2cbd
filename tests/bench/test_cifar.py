"""The study of CIFAR-10 in small: the twin is the same network, trainings resume, tables."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from toreqprop.bench.cifar import jobs, plan, report, study
from toreqprop.bench.cifar.recipe import Recipe, build, parted, settling_layers, twin
from toreqprop.bench.cifar.training import flipped, pixels, train
from toreqprop.errors import InvalidInputError
from toreqprop.evidence.study import stale
from toreqprop.tasks.cifar10 import Images
from toreqprop.verify.spoiled import Spoiled

TINY = Recipe(channels=(3, 4), epochs=3, batch=8)
HYBRID = TINY.but(front=(4, 5), channels=(6, 7, 8), windows=(2, 1, 2))
BOTH = pytest.mark.parametrize("recipe", [TINY, HYBRID], ids=["pure", "hybrid"])


@pytest.fixture(scope="module")
def images() -> Images:
    generator = np.random.default_rng(0)
    x = generator.integers(0, 256, (24, 3, 32, 32), dtype=np.uint8)
    return Images(x, generator.integers(0, 10, 24))


@BOTH
def test_the_twin_is_the_network_without_feedback(recipe: Recipe, images: Images) -> None:
    x = pixels(torch.from_numpy(images.x))
    front, block = parted(build("ep", recipe, 5)) or (None, None)
    assert front is not None
    assert block is not None
    assert torch.allclose(block.feedforward(front(x)), twin(recipe, 5)(x), atol=1e-5)
    assert parted(twin(recipe, 5)) is None


def test_the_gradient_of_a_front_is_that_of_the_whole_network(images: Images) -> None:
    x, y = pixels(torch.from_numpy(images.x)), torch.from_numpy(images.y)
    tight = HYBRID.but(tol=1e-6, feedback=0.1)
    front, block = parted(build("ep", tight, 5)) or (None, None)
    assert front is not None
    assert block is not None
    before = {name: t.clone() for name, t in front.state_dict().items()}
    found = jobs.front_certificates(front, block, x, y)
    assert len(found) == 6
    assert all(t["ok"] and t["cosine"] > 0.999 for t in found)
    assert all(torch.equal(t, before[name]) for name, t in front.state_dict().items())
    block.gradient = Spoiled(lambda g: -g, 0, block.gradient)  # the gradient of its input
    assert not any(t["ok"] for t in jobs.front_certificates(front, block, x, y))


def test_shares_are_of_the_whole_network() -> None:
    found = jobs.shares(HYBRID)
    settling, whole = settling_layers(HYBRID, 0), twin(HYBRID, 0)
    counts = found["parameters"]
    assert sum(counts.values()) == sum(p.numel() for p in whole.parameters())
    assert counts["settling"] == sum(t.numel() for t in settling.system_parameters())
    sides, widths = (32, 16, 8, 4, 4), (3, *HYBRID.front, *HYBRID.channels)
    layers = [9 * n**2 * a * b for n, (a, b) in zip(sides, pairwise(widths), strict=True)]
    assert found["products"] == {
        "front": sum(layers[:2]), "settling": sum(layers[2:]), "readout": 2 * 2 * 8 * 10
    }  # fmt: skip


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


@BOTH
@pytest.mark.parametrize("method", ["ep", "backprop"])
def test_a_training_that_was_stopped_goes_on(
    method: Any, recipe: Recipe, images: Images, tmp_path: Path
) -> None:
    whole, stopped = build(method, recipe, 1), build(method, recipe, 1)
    once = train(whole, images, recipe, 7)

    def stop(news: str) -> None:
        if "epoch 1 " in news:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(stopped, images, recipe, 7, report=stop, kept=tmp_path / "state.pt")
    resumed = build(method, recipe, 2)  # its weights come from the file
    twice = train(resumed, images, recipe, 7, kept=tmp_path / "state.pt")
    assert once.epochs == twice.epochs
    assert ("free_steps" in once.epochs[0]) == (method == "ep")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_the_gap_counts_where_one_of_them_is_right() -> None:
    right = np.zeros(100, bool)
    right[:50] = True
    other = right.copy()
    other[:4] = False

    def run(method: str, answers: np.ndarray) -> dict[str, Any]:
        bits = np.packbits(answers).tobytes().hex()
        return {"method": method, "seed": 1, "correct": bits, "test_images": 100}

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


def test_unknown_methods_and_networks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="method"):
        study.run_cifar(tmp_path, methods=["adam"])  # type: ignore[list-item]
    with pytest.raises(InvalidInputError, match="network"):
        study.run_cifar(tmp_path, network="none")  # type: ignore[arg-type]


@pytest.mark.parametrize("network", study.NETWORKS)
def test_a_small_study_writes_its_file(
    network: Any, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = HYBRID if network == "hybrid" else TINY
    monkeypatch.setitem(study.RECIPES, network, {"ep": recipe, "backprop": recipe})
    monkeypatch.setattr(jobs, "fixed_split", lambda: (images, images, images))

    def run() -> dict[str, Any]:
        return study.run_cifar(tmp_path, network=network, images=16, epochs=1, seeds=2)

    found = run()
    assert json.loads((tmp_path / f"{found['stem']}.json").read_text()) == found
    assert found["stem"] == ("cifar10_partial" if network == "pure" else "cifar10_hybrid_partial")
    assert [(r["method"], r["seed"]) for r in found["runs"]] == [
        ("ep", 42), ("backprop", 42), ("ep", 43), ("backprop", 43)
    ]  # fmt: skip
    assert [gap["seed"] for gap in found["gaps"]] == [42, 43]
    assert found["runs"][0]["probes"].keys() == {"0", "1"}
    assert not list(tmp_path.rglob("*.pt"))
    tables = (report.table_lines, report.certificate_lines, report.epoch_lines, report.check_lines)
    assert all(len(lines(found)) > 2 for lines in tables)
    assert len(report.share_lines(found)) == (5 if network == "hybrid" else 0)
    assert report.curves_figure(found) is not None
    kept = {path: path.read_bytes() for path in (tmp_path / ".partial").iterdir()}
    run()  # nothing is trained twice
    assert kept == {path: path.read_bytes() for path in (tmp_path / ".partial").iterdir()}


def test_trainings_of_earlier_code_are_kept_if_asked_and_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what the file has not got is trained; a setting it does not name is the default. What
    takes seconds is measured by the code that is here."""
    trained: list[str] = []

    def measured(recipe: Recipe, **given: Any) -> dict[str, Any]:
        return {
            "method": given["method"], "seed": given["seed"], "settings": asdict(recipe),
            "epochs": [{}] * recipe.epochs, "correct": "ff", "test_images": 8, "accuracy": 1.0,
        }  # fmt: skip

    def perform(job: Any, report: Any) -> dict[str, Any]:
        trained.append(job.label)
        given = dict(job.arguments)
        found = measured(jobs.recipe_of(given["settings"]), **given) if "method" in given else {}
        return {"found": found, "timing": {"cpu_seconds": 1.0}}

    monkeypatch.setattr(jobs.Training, "perform", perform)
    monkeypatch.setattr(type(study.RESIDUAL), "perform", perform)
    study.run_cifar(tmp_path)
    assert len(trained) == 3
    path = tmp_path / "cifar10.json"
    old = json.loads(path.read_text())
    old["commit"] = "earlier"
    for each in (*old["runs"], old["residual"]):
        del each["commit"]  # as in files written before
    for each in old["measurements"]:
        each["key"] = "of other code"
        settings = each["settings"]["arguments"].get("settings", [])
        each["settings"]["arguments"] |= (
            {"settings": [s for s in settings if s[0] not in ("front", "windows")]}
            if settings
            else {}
        )
    path.write_text(json.dumps(old))
    shutil.rmtree(tmp_path / ".partial")
    trained.clear()
    found = study.run_cifar(tmp_path, seeds=2, keep=True)
    assert sorted(trained) == [
        study.RESIDUAL.label,
        "cifar10-backprop-all-images-5-epochs-seed-43", "cifar10-ep-all-images-5-epochs-seed-43",
    ]  # fmt: skip
    assert [run["commit"] == "earlier" for run in found["runs"]] == [True, True, False, False]
    assert set(stale(found)) == {each["label"] for each in old["measurements"]} - {
        study.RESIDUAL.label
    }
    again = study.run_cifar(tmp_path, seeds=2, keep=True)
    assert len(trained) == 3
    assert [run["commit"] for run in again["runs"]] == [run["commit"] for run in found["runs"]]
    monkeypatch.setitem(study.RECIPES["pure"], "ep", Recipe(rate=1.0))
    study.run_cifar(tmp_path, keep=True)
    assert trained[3:] == ["cifar10-ep-all-images-5-epochs-seed-42"]


def test_the_study_trains_on_what_had_been_held_out_and_on_no_test_image(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = tuple(Images(images.x[k : k + 8], images.y[k : k + 8]) for k in (0, 8, 16))
    monkeypatch.setattr(jobs, "fixed_split", lambda: split)
    trained, tested = jobs.parts(None)
    assert np.array_equal(trained.x, images.x[:16])
    assert np.array_equal(tested.x, images.x[16:])
