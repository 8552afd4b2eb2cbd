"""The reference alone: NumPy only, right gradients, and it learns."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from sklearn.datasets import load_digits

from toreqprop.kernels import reference


def loss_of(params, x, target, settings):
    weight = reference.spectral_ball(
        reference.symmetrise(params.weight_raw), settings.radius
    ).weight
    drive = x @ params.weight_in.T + params.bias
    free = reference.free_phase(weight, drive, settings)
    output = free.image @ params.weight_out.T + params.bias_out
    return reference.cross_entropy(output, target)[0]


def test_gradients_match_finite_differences_of_the_loss():
    rng = np.random.default_rng(0)
    params = reference.initial_parameters(4, 9, 3, rng)
    params = reference.Parameters(*(p.astype(np.float64) for p in params))
    params = params._replace(weight_raw=20 * params.weight_raw)  # the bound is active
    x, target = rng.standard_normal((5, 4)), rng.integers(0, 3, 5)
    # β² bounds the bias; the tolerance keeps the relaxation's own error below the differences.
    settings = reference.Settings(beta=1e-3, tol=1e-13, max_steps=2000, radius=0.8)
    assert reference.spectral_ball(reference.symmetrise(params.weight_raw), 0.8).slope is not None
    step = reference.training_step(params, x, target, settings)
    for name, gradient in step.gradients._asdict().items():
        value = getattr(params, name)
        direction = rng.standard_normal(value.shape)
        eps = 1e-6
        up, down = (
            loss_of(params._replace(**{name: value + s * eps * direction}), x, target, settings)
            for s in (1, -1)
        )
        assert abs((up - down) / (2 * eps) - (gradient * direction).sum()) < 1e-6, name


def test_it_imports_numpy_alone():
    # Loaded by path: importing the package would import torch whatever this file does.
    code = (
        "import importlib.util, sys;"
        f"spec = importlib.util.spec_from_file_location('reference', {reference.__file__!r});"
        "module = importlib.util.module_from_spec(spec); sys.modules['reference'] = module;"
        "spec.loader.exec_module(module);"
        "assert not {'torch', 'scipy', 'numba', 'toreqprop'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_learns_digits():
    digits = load_digits()
    x, y = digits.data / 16, digits.target
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1200], order[1200:]
    settings = reference.Settings(radius=0.3)
    schedule = reference.Schedule(epochs=4)
    epochs = list(reference.train(x[train], y[train], settings=settings, schedule=schedule))
    found = reference.predict(epochs[-1].params, x[test].astype(np.float32), settings)
    assert epochs[-1].loss < epochs[0].loss / 2
    # Far from chance (10 %) after four epochs; the benchmark trains for forty.
    assert (found == y[test]).mean() > 0.9
