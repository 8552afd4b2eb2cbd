"""Sequential networks as layers of neurons: what they are, what they learn, what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import toreqprop as teq
from tests.problems import cosine
from toreqprop.energies import ClippedReLU, Linear, Tanh
from toreqprop.models import module_data
from toreqprop.models.example_networks import NETWORKS, SHAPE
from toreqprop.models.neurons import read

EVERY = pytest.mark.parametrize("name", NETWORKS)


def batch(count: int = 5) -> tuple[Tensor, Tensor]:
    return torch.randn(count, *SHAPE), torch.randint(0, 4, (count,))


class TestNetworks:
    @EVERY
    def test_the_pass_upwards_is_the_network(self, name: str) -> None:
        """Read as couplings and activations and run without feedback: the same function."""
        net, (x, _) = NETWORKS[name](3, 4).double(), batch()
        model = teq.convert(net)
        x = x.double()
        by_couplings = teq.EquilibriumModel.feedforward(model, x)
        assert by_couplings is not None
        assert torch.allclose(by_couplings, net(x), rtol=1e-12, atol=1e-12)
        assert torch.equal(model.feedforward(x), net(x))

    @EVERY
    def test_it_shares_the_parameters(self, name: str) -> None:
        net = NETWORKS[name](3, 4)
        model = teq.convert(net)
        assert [id(p) for p in model.parameters()] == [id(p) for p in net.parameters()]
        back = model.to_sequential()
        assert [id(p) for p in back.parameters()] == [id(p) for p in net.parameters()]
        x, _ = batch()
        assert torch.equal(back(x), net(x))

    @EVERY
    def test_certified_after_a_short_training(self, name: str) -> None:
        """As torch initialises them they are certified in the contract of models."""
        torch.manual_seed(1)
        net, (x, y) = NETWORKS[name](3, 4), batch(8)
        model = teq.convert(net)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(8):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]
        certificate = teq.certify(model, x, y)
        assert certificate.ok, certificate.verdict
        assert min(t.cosine for t in certificate.tensors) >= 0.99
        assert not model.failures

    @EVERY
    def test_it_feeds_back(self, name: str) -> None:
        """No feed-forward pass under another name: the equilibrium is somewhere else."""
        model, (x, _) = teq.convert(NETWORKS[name](3, 4), feedback=0.3), batch()
        first = model.field.initial_state(
            model.field.prepare(model.field_input(x), model.system_parameters()),
            model.system_parameters(),
        )
        rest = model.equilibrium(x).state
        pairs = zip(first, rest, strict=True)
        moved = [float((a - b).detach().norm() / a.detach().norm()) for a, b in pairs]
        assert max(moved[:-1]) > 0.02


def test_weaker_feedback_is_closer_to_backpropagation() -> None:
    """Xie and Seung 2003: with feedback → 0 EP's gradient becomes backpropagation's."""
    x, y = batch()
    net = NETWORKS["lenet"](3, 4)
    found = [teq.certify(teq.convert(net, feedback=f), x, y) for f in (0.5, 0.1, 1e-3)]
    cosines = [c.backprop_cosine for c in found]
    assert all(c is not None for c in cosines)
    assert cosines[0] < cosines[1] < cosines[2]  # type: ignore[operator]
    assert cosines[0] < 0.999  # type: ignore[operator]
    assert cosines[2] > 0.99999  # type: ignore[operator]
    assert all(c.min_cosine > 0.999 for c in found)


def test_the_cosine_with_backpropagation_is_that_of_torch() -> None:
    x, y = batch()
    net = NETWORKS["lenet"](3, 4)
    model = teq.convert(net, feedback=0.5)
    certificate = teq.certify(model, x, y)
    found = []
    for run in (model, net):
        net.zero_grad()
        F.cross_entropy(run(x), y).backward()
        found.append({n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None})
    inside = [n.removeprefix("net.") for n in model.estimated_parameters()]
    worst = min(cosine(found[0][n], found[1][n]) for n in inside)
    assert certificate.backprop_cosine == pytest.approx(worst, abs=1e-5)
    assert f"cosine with plain backpropagation {certificate.backprop_cosine:.6f}" in str(
        certificate
    )
    assert certificate.as_dict()["backprop_cosine"] == certificate.backprop_cosine


def test_which_models_have_a_feed_forward_twin() -> None:
    x, y = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
    with_twin = teq.HopfieldMLP([6, 8, 7, 3], feedback=0.1)
    certificate = teq.certify(with_twin, x, y)
    assert certificate.backprop_cosine is not None
    assert 0.9 < certificate.backprop_cosine < 1
    looped = teq.certify(teq.LoopedMLP(6, 5, 3), x, y)
    assert looped.backprop_cosine is None
    assert "backpropagation" not in str(looped)
    deep = teq.EquilibriumTransformer(5, 4, width=8, layers=3)  # asks both of its ends
    assert deep.feedforward(torch.zeros(1, 4, dtype=torch.int64)) is None


def test_a_max_pooling_goes_in_front_of_its_activation() -> None:
    net = NETWORKS["vgg"](3, 4)
    model, (x, _) = teq.convert(net), batch()
    shapes = [tuple(s.shape[1:]) for s in model.equilibrium(x).state]
    assert shapes == [(3, 8, 8), (3, 4, 4), (6, 2, 2), (12,)]


def test_print_shows_the_layers_and_what_couples_them() -> None:
    text = str(teq.convert(NETWORKS["residual"](3, 4)))
    assert text.count("layer 0:") == 1
    assert "layer 12: ClippedReLU(height=6.0) of Conv2d 12.body.2 of layer 11" in text
    assert "+ identity of layer 10" in text
    assert "+ Conv2d 2.shortcut of layer 0" in text
    assert "readout: AdaptiveAvgPool2d, Flatten, Linear of layer 12" in text
    assert "feedback=0.1" in text
    assert "in front, by autograd: Flatten" in str(teq.convert(NETWORKS["sequence"](3, 4)))


RESIDUALS: dict[str, tuple[Callable[[], nn.Sequential], int, int]] = {
    "plain": (
        lambda: nn.Sequential(
            nn.Linear(6, 5), nn.Tanh(),
            teq.Residual(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 5))), nn.Tanh(),
            nn.Linear(5, 4),
        ), 3, 1,
    ),
    "first of all": (
        lambda: nn.Sequential(
            teq.Residual(nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 6))),
            nn.Linear(6, 4),
        ), 3, 1,
    ),
    "ends with its activation": (
        lambda: nn.Sequential(
            nn.Linear(6, 5), nn.Tanh(), teq.Residual(nn.Sequential(nn.Linear(5, 5), nn.Tanh())),
            nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 4),
        ), 4, 1,
    ),
    "one module, scaled": (
        lambda: nn.Sequential(
            nn.Linear(6, 5), nn.Tanh(), teq.Residual(nn.Linear(5, 5), scale=0.5), nn.Tanh(),
            nn.Linear(5, 4),
        ), 2, 1,
    ),
    "one in another": (
        lambda: nn.Sequential(
            nn.Linear(6, 5), nn.Tanh(),
            teq.Residual(
                nn.Sequential(
                    nn.Linear(5, 5), nn.Tanh(), teq.Residual(nn.Linear(5, 5), scale=-0.3),
                ),
                nn.Sequential(nn.Identity(), nn.Linear(5, 5, bias=False)),
            ),
            nn.LeakyReLU(0.2), nn.Linear(5, 4),
        ), 3, 2,
    ),
    "in a sequential": (
        lambda: nn.Sequential(
            nn.Sequential(nn.Linear(6, 5), nn.Sigmoid()),
            nn.Sequential(teq.Residual(nn.Sequential(nn.Linear(5, 5), nn.Identity())), nn.Tanh()),
            nn.Linear(5, 4),
        ), 2, 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RESIDUALS)
def test_residual_blocks_are_skips(name: str) -> None:
    make, layers, skips = RESIDUALS[name]
    net = make().double()
    x, y = torch.randn(5, 6, dtype=torch.float64), torch.randint(0, 4, (5,))
    model = teq.convert(net, feedback=0.3, tol=1e-10, max_steps=2000)
    assert (len(model.neurons.ways), len(model.neurons.skips)) == (layers, skips)
    pass_upwards = teq.EquilibriumModel.feedforward(model, x)
    assert pass_upwards is not None
    assert torch.allclose(pass_upwards, net(x), rtol=1e-12)
    certificate = teq.certify(model, x, y)
    assert certificate.ok, certificate.verdict
    assert certificate.min_cosine > 0.9999


def test_a_pooled_sum_is_a_layer_of_its_own() -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU6(),
        teq.Residual(nn.Conv2d(3, 3, 3, padding=1)), nn.ReLU6(), nn.MaxPool2d(2),
        nn.Conv2d(3, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4),
    ).double()  # fmt: skip
    model, (x, y) = teq.convert(net, tol=1e-9, max_steps=2000), batch()
    assert model.field.activations[2] == ClippedReLU(6.0)
    assert model.field.activations[3] == ClippedReLU(float("inf"))
    pass_upwards = teq.EquilibriumModel.feedforward(model, x.double())
    assert pass_upwards is not None
    assert torch.allclose(pass_upwards, net(x.double()), rtol=1e-12)
    assert teq.certify(model, x.double(), y).min_cosine > 0.9999


def test_modules_without_neurons_between_are_one_coupling() -> None:
    net = nn.Sequential(
        nn.Linear(6, 12), nn.Unflatten(1, (3, 4)), nn.Tanh(),
        nn.AvgPool1d(2), nn.Conv1d(3, 6, 3, padding="same"), nn.Conv1d(6, 2, 1), nn.Hardtanh(),
        nn.Flatten(), nn.Linear(4, 5), nn.Softplus(), nn.Linear(5, 4),
    )  # fmt: skip
    model = teq.convert(net)
    assert len(model.neurons.ways) == 3
    x, y = torch.randn(5, 6), torch.randint(0, 4, (5,))
    pass_upwards = teq.EquilibriumModel.feedforward(model, x)
    assert pass_upwards is not None
    assert torch.allclose(pass_upwards, net(x), atol=1e-6)
    assert teq.certify(model, x, y).ok


def test_modules_that_appear_twice_are_two_layers() -> None:
    """One activation object for all layers is common; one weight for two layers is allowed."""
    act, shared = nn.Tanh(), nn.Linear(7, 7)
    net = nn.Sequential(nn.Linear(6, 7), act, shared, act, shared, act, nn.Linear(7, 4)).double()
    model = teq.convert(net, feedback=0.3, tol=1e-10, max_steps=2000)
    assert len(model.neurons.ways) == 3
    x, y = torch.randn(5, 6).double(), torch.randint(0, 4, (5,))
    pass_upwards = teq.EquilibriumModel.feedforward(model, x)
    assert pass_upwards is not None
    assert torch.allclose(pass_upwards, net(x), rtol=1e-12)
    assert teq.certify(model, x, y).min_cosine > 0.9999
    assert model.config()["net"] is net  # plain data would untie them


def test_a_shortcut_pools_by_averages() -> None:
    body = nn.Conv2d(3, 3, 3, 2, padding=1)
    for pool, fits in ((nn.AvgPool2d(2), True), (nn.MaxPool2d(2), False)):
        net = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1), nn.ReLU6(),
            teq.Residual(body, nn.Sequential(nn.Identity(), pool)), nn.ReLU6(),
            nn.Flatten(), nn.Linear(48, 4),
        )  # fmt: skip
        if fits:
            assert teq.certify(teq.convert(net), *batch()).ok
        else:
            with pytest.raises(teq.UnsupportedModelError, match=r"2\.shortcut\.1.*average pooling"):
                teq.convert(net)


class TestInFront:
    def test_what_cannot_settle_stays_in_front(self) -> None:
        """An embedding, batch norm and dropout are ordinary torch, trained with the rest."""
        net = nn.Sequential(
            nn.Embedding(7, 6), nn.Dropout(0.5), nn.Flatten(), nn.BatchNorm1d(18),
            nn.Linear(18, 9), nn.Tanh(), nn.Linear(9, 8), nn.Tanh(), nn.Dropout(0.5),
            nn.Linear(8, 4),
        )  # fmt: skip
        model = teq.convert(net)
        tokens, y = torch.randint(0, 7, (6, 3)), torch.randint(0, 4, (6,))
        certificate = teq.certify(model.eval(), tokens, y)
        assert certificate.ok, certificate.verdict
        assert {t.name for t in certificate.tensors} == {
            "net.0.weight", "net.3.weight", "net.3.bias", "net.4.weight", "net.4.bias",
            "net.6.weight", "net.6.bias",
        }  # fmt: skip
        before = net[3].running_mean.clone()
        F.cross_entropy(model.train()(tokens), y).backward()
        assert not torch.equal(before, net[3].running_mean)
        assert all(p.grad is not None for p in net.parameters())
        for wrong, said in (
            (tokens.float(), "Tokens must be torch.int64"),
            (tokens + 7, "Tokens must be 0 to 6"),
            (tokens[:0], "empty"),
            (tokens[:, :2], "module 3, BatchNorm1d"),
        ):
            with pytest.raises(teq.InvalidInputError, match=said):
                model(wrong)

    def test_an_encoder_of_the_user_s(self) -> None:
        class Lengths(nn.Module):
            def forward(self, words: Tensor) -> Tensor:
                return F.one_hot(words, 6).float()

        net = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 4))
        model = teq.convert(net, encoder=Lengths())
        words, y = torch.randint(0, 6, (5,)), torch.randint(0, 4, (5,))
        assert teq.certify(model, words, y).ok
        assert torch.equal(model.to_sequential()(words), net(model.encoder(words)))
        assert isinstance(model.config()["encoder"], Lengths)

    def test_the_gradient_goes_on_into_what_stands_in_front(self) -> None:
        x, y = torch.randn(6, 5).double(), torch.randint(0, 4, (6,))
        front = nn.Linear(5, 6).double()
        net = NETWORKS_OF_ROWS().double()
        found = []
        for gradient in (teq.CenteredEP(1e-5), teq.ImplicitGradient()):
            model = teq.convert(net, encoder=front, feedback=0.5, tol=1e-11, max_steps=2000)
            model.gradient = gradient
            front.zero_grad()
            F.cross_entropy(model(x), y).backward()
            assert front.weight.grad is not None
            found.append(front.weight.grad.clone())
        assert cosine(*found) > 0.999999


def NETWORKS_OF_ROWS() -> nn.Sequential:  # noqa: N802
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 4))


REFUSED: dict[str, tuple[nn.Module, str]] = {
    "GELU": (nn.GELU(), "not monotone"),
    "SiLU": (nn.SiLU(), "nn.Softplus()"),
    "BatchNorm2d": (nn.BatchNorm2d(3), "fold it into the affine module before it"),
    "Dropout": (nn.Dropout(), "in front of the first layer"),
    "LayerNorm": (nn.LayerNorm([3, 8, 8]), "encoder="),
    "Embedding": (nn.Embedding(3, 3), "in front of all layers"),
    "PReLU": (nn.PReLU(), "nn.LeakyReLU"),
    "Softmax": (nn.Softmax(1), "F.cross_entropy"),
    "ELU": (nn.ELU(), "nn.Softplus()"),
    "Hardsigmoid": (nn.Hardsigmoid(), "nn.Hardtanh(0, 1)"),
    "ConvTranspose2d": (nn.ConvTranspose2d(3, 3, 3), "there is no coupling for it"),
    "Conv2d": (nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular"), "padding_mode"),
    "AdaptiveAvgPool2d": (nn.AdaptiveAvgPool2d(2), "nn.AvgPool2d"),
    "AvgPool2d": (nn.AvgPool2d(2, ceil_mode=True), "ceil_mode"),
    "MaxPool2d": (nn.MaxPool2d(2, return_indices=True), "return_indices"),
    "Flatten": (nn.Flatten(0), "the batch"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_modules_that_cannot_be_inside_are_refused_by_name(name: str) -> None:
    module, remedy = REFUSED[name]
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), module, nn.Conv2d(3, 3, 3), nn.Tanh())
    with pytest.raises(teq.UnsupportedModelError) as error:
        teq.convert(net)
    said = str(error.value)
    assert said.startswith(f"{name} (module 2) cannot be inside the loop of neurons: ")
    assert remedy in said
    assert "\n" not in said


def test_a_forward_of_its_own_is_not_taken_for_torch_s() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Doubled(4, 4), nn.Tanh(), nn.Linear(4, 2))
    with pytest.raises(teq.UnsupportedModelError, match="Doubled"):
        teq.convert(net)


def test_max_pooling_of_states_that_can_be_negative_is_refused() -> None:
    def net(*middle: nn.Module) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), *middle, nn.Flatten(), nn.Linear(12, 2))

    for middle in (
        [nn.Conv2d(3, 3, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(3, 3, 1), nn.Tanh()],
        [nn.Conv2d(3, 3, 3), nn.MaxPool2d(2), nn.Conv2d(3, 3, 1), nn.ReLU6()],
    ):
        with pytest.raises(teq.InvalidInputError, match="round in circles: follow the affine"):
            teq.convert(net(*middle))
    # The first layer's pooling sees the input alone, the last one's is the readout's.
    assert teq.convert(net(nn.MaxPool2d(2), nn.Conv2d(3, 3, 2), nn.Tanh()))
    assert teq.convert(net(nn.Conv2d(3, 3, 3), nn.Tanh(), nn.MaxPool2d(2)))


@pytest.mark.parametrize(("activation", "settles"), [(nn.Tanh, False), (nn.ReLU6, True)])
def test_why_it_is_refused(
    activation: type[nn.Module], settles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where states can be negative the winner of a window loses by winning, for ever."""
    monkeypatch.setattr("toreqprop.models.neurons._check_pooling", lambda way, activation: None)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), activation(),
        nn.Conv2d(4, 4, 3, padding=1), activation(), nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, padding=1), activation(), nn.Flatten(), nn.Linear(64, 4),
    )  # fmt: skip
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2)
    model = teq.convert(net, tol=1e-5, max_steps=300, on_failure="ignore")
    assert model.equilibrium(torch.randn(32, *SHAPE)).converged == settles


@pytest.mark.parametrize("feedback", [0, -0.1, 1.5, float("nan"), True, "weak", None])
def test_a_feedback_that_is_none_is_refused(feedback: object) -> None:
    with pytest.raises(teq.InvalidInputError, match=r"feedback must be in \(0, 1\], got") as error:
        teq.convert(NETWORKS["lenet"](3, 4), feedback=feedback)  # type: ignore[arg-type]
    assert "trains by backpropagation" in str(error.value)


def test_feedback_that_leaves_the_range_of_floats_is_refused() -> None:
    net = NETWORKS["residual"](3, 4)
    with pytest.raises(teq.InvalidInputError, match=r"after 13 layers in float32: use 0.008"):
        teq.convert(net, feedback=1e-4)
    model, (x, y) = teq.convert(net, feedback=0.009), batch()
    assert teq.certify(model, x, y).ok


def test_shapes_that_do_not_fit_are_refused_by_the_name_of_the_module() -> None:
    net = NETWORKS["lenet"](3, 4)
    with pytest.raises(teq.InvalidInputError) as error:
        teq.convert(net, shape=(1, 12, 12))
    assert "Samples of shape (1, 12, 12) do not fit: module 6, Linear(" in str(error.value)
    assert "\n" not in str(error.value)
    model = teq.convert(net)
    with pytest.raises(teq.InvalidInputError, match=r"module 0, Conv2d.*cannot take \(3, 8, 8\)"):
        model(torch.randn(2, 3, 8, 8))
    with pytest.raises(teq.InvalidInputError, match="must be a torch tensor"):
        model([1.0])  # type: ignore[arg-type]
    with pytest.raises(teq.InvalidInputError, match="along its first dimension"):
        model(torch.tensor(1.0))
    with pytest.raises(teq.InvalidInputError, match=r"torch\.float64 and the model"):
        model(batch()[0].double())
    with pytest.raises(teq.InvalidInputError, match="NaN"):
        model(batch()[0] * float("nan"))
    uneven = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), teq.Residual(nn.Linear(5, 1)), nn.Tanh())
    with pytest.raises(teq.InvalidInputError, match=r"adds shapes that agree, and has \(1,\)"):
        teq.convert(uneven, shape=(4,))


@pytest.mark.parametrize(
    "net", [nn.Sequential(), nn.Sequential(nn.Tanh()), nn.Sequential(nn.Linear(2, 2))]
)
def test_a_network_without_neurons_is_refused(net: nn.Sequential) -> None:
    with pytest.raises(teq.InvalidInputError, match="has no layer of neurons"):
        teq.convert(net)


@pytest.mark.parametrize("wrong", [{"hidden": 0}, {"layers": 0}, {"outputs": 2.5}])
def test_sizes_for_rows_are_whole_numbers(wrong: dict[str, float]) -> None:
    good = {"features": 6, "hidden": 5, "outputs": 3}
    assert teq.ConvertedNetwork.for_rows(**good)(torch.randn(2, 6)).shape == (2, 3)
    with pytest.raises(teq.InvalidInputError, match=next(iter(wrong))):
        teq.ConvertedNetwork.for_rows(**(good | wrong))  # type: ignore[arg-type]


def test_other_modules_are_refused() -> None:
    with pytest.raises(teq.InvalidInputError, match="net must be a Sequential, got Linear"):
        teq.convert(nn.Linear(3, 3))  # type: ignore[arg-type]


class TestBounds:
    def test_lipschitz_is_tighter_with_a_shape(self) -> None:
        net, (x, y) = NETWORKS["lenet"](3, 4), batch()
        loose, tight = teq.convert(net).lipschitz(), teq.convert(net, shape=SHAPE).lipschitz()
        measured = teq.certify(teq.convert(net), x, y).contraction
        assert measured <= tight < loose

    def test_max_pooling_has_none_and_says_why(self) -> None:
        with pytest.raises(teq.UnsupportedModelError, match="another pixel wins"):
            teq.convert(NETWORKS["vgg"](3, 4)).lipschitz()

    def test_relu_settles_while_couplings_are_weak_and_says_when_not(self) -> None:
        """Its potential is convex too; but nothing bounds the states."""
        net = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 4))
        x, y = torch.randn(5, 6), torch.randint(0, 4, (5,))
        assert teq.certify(teq.convert(net, feedback=0.2), x, y).ok
        with torch.no_grad():
            net[2].weight.fill_(1.0)
        model = teq.convert(net, feedback=1.0, on_failure="raise")
        with pytest.raises(teq.ConvergenceError, match="non-finite"):
            model(x)


class TestPlainData:
    @EVERY
    def test_descriptions_build_the_same_network(self, name: str) -> None:
        net = NETWORKS[name](3, 4)
        again = module_data.build(module_data.describe(net))
        assert str(again) == str(net)
        again.load_state_dict(net.state_dict())
        x, _ = batch()
        assert torch.equal(again(x), net(x))

    def test_a_description_names_known_modules_alone(self) -> None:
        for wrong, said in (
            ([["Linear", {"in_features": 3}]], "cannot be built"),
            ([["System", {}]], "There is no module 'System'"),
            ([["Linear"]], "a list of modules, got str"),
            ([3], "a list of modules, got int"),
        ):
            with pytest.raises(teq.InvalidInputError, match=said):
                module_data.build(wrong)

    def test_a_copy_of_the_model_has_parameters_of_its_own(self) -> None:
        model = teq.convert(NETWORKS["lenet"](3, 4))
        other = copy.deepcopy(model)
        with torch.no_grad():
            other.net[0].weight.zero_()
        x, _ = batch()
        assert not torch.equal(other(x), model(x))
        assert torch.equal(other.to_sequential()(x), other.net(x))


def test_estimators_that_need_analytic_neurons_are_refused_by_theirs() -> None:
    x, y = batch()
    assert teq.certify(teq.convert(NETWORKS["lenet"](3, 4), gradient=teq.HolomorphicEP()), x, y).ok
    model = teq.convert(NETWORKS["sequence"](3, 4), gradient=teq.HolomorphicEP())
    with pytest.raises(teq.UnsupportedModelError, match="StackEnergy with ClippedReLU"):
        model(x).sum().backward()


def test_layers_of_a_network_in_words() -> None:
    found = read(NETWORKS["mixer"](3, 4))
    assert [type(a) for a in found.activations] == [Linear, *[Tanh, Linear] * 4]
    assert [(w.source, w.target) for w in found.skips] == [(0, 2), (2, 4), (4, 6), (6, 8)]


@pytest.mark.parametrize("pooling", [nn.AvgPool2d(2), nn.MaxPool2d(2)], ids=["average", "max"])
def test_convolutions_are_relaxed_by_passes(
    pooling: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default, as `HopfieldConvNet` is: the loop for all solvers is not asked."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), pooling, nn.Sigmoid(),
        nn.Conv2d(3, 4, 3, padding=1), pooling, nn.Sigmoid(), nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip
    model = teq.convert(net, shape=(1, 8, 8))
    monkeypatch.setattr(teq.GaussSeidel, "solve", lambda *_, **__: pytest.fail("the general loop"))
    F.cross_entropy(model(torch.randn(4, 1, 8, 8)), torch.arange(4) % 3).backward()
    assert all(p.grad is not None for p in model.parameters())
