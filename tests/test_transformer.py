"""Equilibrium transformers: analytic fields, certified gradients, honest bounds, clear refusals."""

from __future__ import annotations

import itertools
import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.energies import AttentionEnergy, Energy, System
from toreqprop.gradients.vector_field import jacobian_products
from toreqprop.tasks.sequences import SEQUENCE_TASKS, sequences
from toreqprop.training import TrainingConfig, accuracy, fit

ENERGIES = ({"variant": "energy"}, {"variant": "energy", "layers": 3, "feedback": 0.5})
FIELDS = (
    {"variant": "attention"},
    {"variant": "stacked", "layers": 3},
    {"variant": "stacked", "feedback": 0.0},
)


def token_loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


def small(**options: object) -> teq.EquilibriumTransformer:
    torch.manual_seed(1)
    return teq.EquilibriumTransformer(5, 6, width=12, heads=3, **options)  # type: ignore[arg-type]


def random_state(model: teq.EquilibriumTransformer, system: System) -> tuple[Tensor, ...]:
    return tuple(torch.rand_like(s) * 1.8 - 0.9 for s in system.initial_state())


@pytest.mark.parametrize("options", ENERGIES, ids=str)
def test_the_analytic_preactivation_is_the_gradient_of_the_interaction(options: dict) -> None:
    model = small(**options).double()
    tokens = torch.randint(0, 5, (4, 5))
    with torch.no_grad():
        system = System.bind(model.field, model.field_input(tokens), model.system_parameters())
    state = random_state(model, system)
    by_hand = system.preactivation(state)
    by_autograd = Energy.preactivation(model.field, state, (system.x,), system.params)  # type: ignore[arg-type]
    for a, b in zip(by_hand, by_autograd, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", ENERGIES, ids=str)
def test_the_potential_belongs_to_the_activation(options: dict) -> None:
    """At an equilibrium the energy is stationary: G' = σ⁻¹ with the same weights as in u."""
    model = small(**options, tol=1e-12, max_steps=5000).double()
    tokens = torch.randint(0, 5, (4, 6))
    with torch.no_grad():
        system = System.bind(model.field, model.field_input(tokens), model.system_parameters())
    state = tuple(s.requires_grad_() for s in model.equilibrium(tokens).state)
    slopes = torch.autograd.grad(system.energy(state).sum(), state)
    assert max(float(g.abs().max()) for g in slopes) < 1e-9
    for a, b in zip(system.field.activate(system.field.deactivate(state)), state, strict=True):
        torch.testing.assert_close(a, b)


def test_sweeps_of_a_deep_energy_never_raise_it_however_strong_the_weights() -> None:
    model = small(layers=4, feedback=1.0, radius=8.0, tol=1e-8, on_failure="ignore").double()
    with torch.no_grad():
        for p in model.blocks.parameters():
            p.mul_(4)
    trace = teq.Trace(keep_energies=True)
    model.equilibrium(torch.randint(0, 5, (8, 6)), trace=trace)
    energies = torch.stack(trace.energies)
    assert len(energies) > 5
    assert float((energies[1:] - energies[:-1]).max()) <= 1e-9
    assert float((energies[-1] - energies[0]).max()) < -1e-3


def test_every_solver_finds_the_minimum_of_a_deep_energy() -> None:
    """The weights of the layers enter map, sweep and descent alike."""
    tokens = torch.randint(0, 5, (4, 6))
    found = []
    for solver in (teq.GaussSeidel(), teq.FixedPoint(0.5), teq.GradientDescent(), teq.Anderson()):
        model = small(layers=3, feedback=0.5, solver=solver, tol=1e-9, max_steps=5000).double()
        solution = model.equilibrium(tokens)
        assert solution.converged, solver
        found.append(torch.cat([s.flatten() for s in solution.state]))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [*ENERGIES, *FIELDS], ids=str)
def test_every_tensor_is_certified(options: dict) -> None:
    model = small(**options, tol=1e-10, max_steps=5000).double()
    model.gradient = model.gradient.softer(100)
    tokens = torch.randint(0, 5, (6, 6))
    certificate = teq.certify(model, tokens, tokens.flip(1), loss=token_loss)
    assert certificate.ok, certificate.verdict
    assert certificate.min_cosine > 0.99999
    trained = {t.name for t in certificate.tensors}
    assert {"embedding.weight", "position"} <= trained
    assert trained == {n for n, _ in model.named_parameters() if not n.startswith("readout")}
    assert (certificate.asymmetry < 1e-12) == (options["variant"] == "energy")


def test_without_the_correction_the_vector_field_is_refused() -> None:
    model = small(variant="attention", gradient=teq.VectorFieldEP(1e-3, correction=False))
    model.double()
    model.tol, model.max_steps = 1e-10, 5000
    with torch.no_grad():
        for p in model.blocks.parameters():
            p.mul_(2)
    tokens = torch.randint(0, 5, (6, 6))
    certificate = teq.certify(model, tokens, tokens.flip(1), loss=token_loss)
    assert not certificate.ok
    assert certificate.min_cosine < 0.99


@pytest.mark.parametrize("variant", ["energy", "attention"])
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_lipschitz_bounds_the_jacobian_at_random_states(variant: str, scale: float) -> None:
    model = small(variant=variant, radius=5.0).double()
    with torch.no_grad():
        for p in model.blocks.parameters():
            p.mul_(scale)
    tokens = torch.randint(0, 5, (20, 6))
    with torch.no_grad():
        system = System.bind(model.field, model.field_input(tokens), model.system_parameters())
    forward, transposed = jacobian_products(system, random_state(model, system))
    v = (torch.randn(20, 6, 12, dtype=torch.float64),)
    for _ in range(30):
        v = (v[0] / v[0].flatten(1).norm(dim=1)[:, None, None],)
        image = forward(v)
        v = transposed(image)
    assert float(image[0].flatten(1).norm(dim=1).max()) <= model.lipschitz()


@pytest.mark.parametrize("options", [*ENERGIES, *FIELDS], ids=str)
def test_no_optimizer_step_takes_a_projection_beyond_the_radius(options: dict) -> None:
    model = small(**options, radius=0.7)
    with torch.no_grad():
        for p in model.blocks.parameters():
            p.mul_(100)
        matrices = [p for p in model.system_parameters() if p.shape == (12, 12)]
    assert matrices
    for matrix in matrices:
        # The bound is proven; 1e-5 is float32 rounding of the norm itself.
        assert float(torch.linalg.matrix_norm(matrix, 2)) <= 0.7 * (1 + 1e-5)


def test_nudged_phases_of_stacked_attention_converge_however_large_its_weights() -> None:
    model = small(variant="stacked", on_failure="raise")
    with torch.no_grad():
        for p in model.blocks.parameters():
            if p.shape == (12, 12):
                p.mul_(100)
    tokens = torch.randint(0, 5, (32, 6))
    token_loss(model(tokens), tokens.flip(1)).backward()


def test_a_small_radius_is_a_certified_contraction() -> None:
    model = small(radius=0.05)
    assert model.lipschitz() < 1
    solution = model.equilibrium(torch.randint(0, 5, (4, 6)))
    assert bool(torch.isfinite(solution.error_bound).all())


@pytest.mark.parametrize("options", [{"layers": 3}, {"variant": "stacked"}], ids=str)
def test_several_layers_say_why_there_is_no_bound(options: dict) -> None:
    with pytest.raises(teq.UnsupportedModelError, match="No Lipschitz constant"):
        small(**options).lipschitz()


@pytest.mark.parametrize("options", [{"variant": "attention"}, {"variant": "stacked"}], ids=str)
@pytest.mark.parametrize("causal", [True, False])
def test_a_causal_mask_hides_later_tokens(options: dict, causal: bool) -> None:
    if options["variant"] == "stacked":
        options = {**options, "layers": 3}
    model = small(**options, causal=causal, tol=1e-7, max_steps=500)
    tokens = torch.randint(0, 5, (4, 6))
    changed = tokens.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 5
    with torch.no_grad():
        gap = (model(tokens) - model(changed))[:, :4].abs().max()
    assert (float(gap) < 1e-5) == causal


def test_an_energy_cannot_be_causal() -> None:
    with pytest.raises(teq.UnsupportedModelError, match="both ways"):
        small(causal=True)


@pytest.mark.parametrize("options", [*ENERGIES, *FIELDS], ids=str)
def test_shorter_sequences_need_no_padding(options: dict) -> None:
    output = small(**options)(torch.randint(0, 5, (3, 2)))
    assert output.shape == (3, 2, 5)


BAD_INPUTS = {
    "long": (torch.zeros(2, 7, dtype=torch.int64), "max_length=7"),
    "negative": (torch.full((2, 3), -1), "got -1"),
    "too large": (torch.full((2, 3), 5), "0 to 4, got 5"),
    "float": (torch.zeros(2, 3), r"x\.long\(\)"),
    "one dimension": (torch.zeros(3, dtype=torch.int64), "unsqueeze"),
    "no tokens": (torch.zeros(2, 0, dtype=torch.int64), "empty"),
    "no samples": (torch.zeros(0, 3, dtype=torch.int64), "empty"),
    "a list": ([[1, 2]], "as_tensor"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_refuses_bad_tokens_in_one_sentence(case: str) -> None:
    tokens, match = BAD_INPUTS[case]
    with pytest.raises(teq.InvalidInputError, match=match) as caught:
        small()(tokens)
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"variant": "recurrent"}, '"energy" or "attention" or "stacked"'),
        ({"variant": "attention", "layers": 2}, "stacked"),
        ({"layers": 0}, "layers must be >= 1"),
        ({"feedback": 0.0}, "feedback must be"),
        ({"width": 10, "heads": 3}, "multiple of heads"),
        ({"heads": 0}, "heads must be >= 1"),
        ({"radius": 0.0}, "radius must be > 0"),
    ],
    ids=str,
)
def test_refuses_bad_settings(options: dict, match: str) -> None:
    with pytest.raises(teq.InvalidInputError, match=match):
        teq.EquilibriumTransformer(5, 6, **options)


def test_the_classical_two_phase_algorithm_reaches_the_embeddings() -> None:
    model = small(gradient=teq.CenteredEP(1e-3), tol=1e-10, max_steps=5000).double()
    tokens = torch.randint(0, 5, (6, 6))

    def cost(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output.mT, target, reduction="none").mean(1)

    found = teq.nudged_gradients(model, tokens, tokens.flip(1), cost=cost)
    token_loss(model(tokens), tokens.flip(1)).backward()
    for name, p in model.named_parameters():
        assert F.cosine_similarity(found[name].flatten(), p.grad.flatten(), dim=0) > 0.9999, name


@pytest.mark.parametrize("task", sorted(SEQUENCE_TASKS))
def test_sequences_are_distinct_from_held_out_ones(task: str) -> None:
    data = sequences(task, length=3, symbols=4, train=500, validation=5, test=20, seed=3)
    sets = [{tuple(r) for r in x.tolist()} for x in (data.x, data.validation_x, data.test_x)]
    assert [len(s) for s in sets[1:]] == [5, 20]
    assert all(not a & b for a, b in itertools.combinations(sets, 2))
    assert torch.equal(data.y, SEQUENCE_TASKS[task](data.x))
    again = sequences(task, length=3, symbols=4, train=500, validation=5, test=20, seed=3)
    assert torch.equal(data.x, again.x)
    most = data.test_y.mode(0).values
    assert data.chance == pytest.approx(float((data.test_y == most).double().mean()))


def test_sequences_refuse_what_cannot_be() -> None:
    with pytest.raises(teq.InvalidInputError, match="reversal, sorting"):
        sequences("copying", train=10)
    with pytest.raises(teq.InvalidInputError, match="too many"):
        sequences("sorting", length=2, symbols=3, train=10)


def test_the_attention_variant_learns_to_reverse() -> None:
    data = sequences("reversal", length=4, symbols=5, train=32 * 30, validation=10, test=100)
    torch.manual_seed(0)
    model = teq.EquilibriumTransformer(5, 4, variant="attention", width=32)
    fit(model, data.x, data.y, TrainingConfig(1, 32, 1e-2, seed=0), loss=token_loss)
    assert accuracy(model, data.test_x, data.test_y) > 0.95


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[1] / "examples" / "transformer_reversal.py"
    right = runpy.run_path(str(path))["main"]("energy", steps=20, length=5)
    printed = capsys.readouterr().out
    assert right > 0.3
    assert "PASS" in printed
    assert "new sequences are right" in printed


def test_one_matrix_of_both_projections_drives_the_energy() -> None:
    """The preactivation, which takes them together, is the slope of Φ, which does not."""
    torch.manual_seed(0)
    field = AttentionEnergy(2)
    query, key, bias = torch.randn(6, 4), torch.randn(6, 4), torch.randn(2, 5, 5)
    params = tuple(t.double() for t in (query, key, bias))
    x, state = torch.randn(3, 4, 4).double(), torch.randn(3, 4, 4).double().requires_grad_()
    slope = torch.autograd.grad(field.interaction((state,), x, params).sum(), state)[0]
    found = field.preactivation((state.detach(),), field.prepare(x, params), params)[0]
    torch.testing.assert_close(found, slope)
    assert field.prepare(x, params)[2].shape == (12, 4)
