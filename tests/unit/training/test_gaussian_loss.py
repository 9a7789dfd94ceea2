"""The Gaussian loss against scipy, least squares and Proposition B.1."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy import stats
from torch import Tensor, nn

import ellzero as lz
from ellzero.description import gaussian_code_length_bits, nats_to_bits
from ellzero.training.gaussian_loss import GaussianLoss, gaussian_nats, solved_gaussian_nats, solved_sigma


def numbers(seed: int, *shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    predicted, noise = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    return predicted.requires_grad_(), (predicted + 0.7 * noise).detach()


@given(seed=st.integers(0, 2**31), sigma=st.floats(1e-2, 1e2))
def test_is_scipys_density_in_nats(seed: int, sigma: float) -> None:
    predicted, observed = numbers(seed, 5, 3)
    expected = -stats.norm.logpdf(observed.numpy(), predicted.detach().numpy(), sigma).mean()
    assert gaussian_nats(predicted, observed, math.log(sigma)).item() == pytest.approx(expected, rel=1e-10)


def test_sigma_may_differ_between_outputs() -> None:
    predicted, observed = numbers(0, 5, 3)
    sigmas = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    expected = -stats.norm.logpdf(observed.numpy(), predicted.detach().numpy(), sigmas.numpy()).mean()
    assert gaussian_nats(predicted, observed, sigmas.log()).item() == pytest.approx(expected, rel=1e-12)


def test_with_sigma_squared_of_1_over_2_ln_2_it_is_least_squares_in_bits() -> None:
    predicted, observed = numbers(1, 40)
    loss = gaussian_nats(predicted, observed, -0.5 * math.log(2 * math.log(2)))
    error = (predicted - observed).square().mean()
    constant = 0.5 * math.log2(math.pi / math.log(2))
    assert nats_to_bits(loss.item()) == pytest.approx(error.item() + constant, rel=1e-13)
    (ours,), (least_squares,) = torch.autograd.grad(loss, predicted), torch.autograd.grad(error, predicted)
    torch.testing.assert_close(ours / math.log(2), least_squares, rtol=1e-13, atol=0)


def test_the_solved_sigma_is_where_the_trained_one_has_no_gradient() -> None:
    predicted, observed = numbers(2, 30)
    loss = GaussianLoss().double()
    loss.solve_(predicted, observed)
    assert loss.sigma == pytest.approx(np.sqrt(np.mean((observed - predicted.detach()).numpy() ** 2)), rel=1e-12)
    (gradient,) = torch.autograd.grad(loss(predicted, observed), loss.log_sigma)
    assert abs(gradient.item()) < 1e-12
    for factor in (0.9, 1.1):
        moved = gaussian_nats(predicted, observed, math.log(factor * loss.sigma))
        assert moved.item() > loss(predicted, observed).item()


def test_the_solved_loss_is_the_logarithm_of_the_mean_squared_error_with_its_gradient() -> None:
    predicted, observed = numbers(3, 30)
    ours = solved_gaussian_nats(predicted, observed, least_sigma=1e-6)
    formula = 0.5 * (2 * math.pi * math.e * (predicted - observed).square().mean()).log()
    torch.testing.assert_close(ours, formula)
    torch.testing.assert_close(torch.autograd.grad(ours, predicted), torch.autograd.grad(formula, predicted))


def test_a_perfect_fit_has_a_finite_loss_and_no_gradient() -> None:
    predicted, _ = numbers(4, 6)
    loss = solved_gaussian_nats(predicted, predicted.detach(), least_sigma=0.01)
    assert loss.item() == pytest.approx(0.5 * math.log(2 * math.pi * 1e-4))
    assert bool((torch.autograd.grad(loss, predicted)[0] == 0).all())
    assert solved_sigma(predicted, predicted.detach(), least_sigma=0.01).item() == pytest.approx(0.01)


def test_the_code_length_is_the_loss_and_the_cells() -> None:
    predicted, observed = numbers(5, 8, 2)
    loss = GaussianLoss(0.7).double()
    bits = loss.code_length_bits(predicted, observed, cell_width=2.0**-10)
    assert bits == pytest.approx(16 * (nats_to_bits(loss(predicted, observed).item()) + 10), rel=1e-12)
    assert bits == pytest.approx(
        gaussian_code_length_bits((observed - predicted.detach()).numpy().ravel(), loss.sigma, 2.0**-10), rel=1e-12
    )


NOISES = {
    "Gaussian": lambda random, n: random.normal(size=n),
    "uniform": lambda random, n: random.uniform(-math.sqrt(3), math.sqrt(3), size=n),
    "Laplace": lambda random, n: random.laplace(scale=math.sqrt(0.5), size=n),
}
SIGMA = 0.3


def trained(noise: str, n: int, seed: int) -> tuple[float, float]:
    """Trains four coefficients and the noise level together; returns the relative error of sigma^2 and the mean squared error of f.

    The function is linear in its coefficients, 2 sin(3x) - x + 0.5 in a basis that holds it, so that the minimum is the only one.
    """
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, size=n)
    basis = torch.from_numpy(np.stack([np.sin(3 * x), x, np.ones(n), np.cos(3 * x)], axis=1))
    truth = torch.tensor([2.0, -1.0, 0.5, 0.0], dtype=torch.float64)
    y = basis @ truth + SIGMA * torch.from_numpy(NOISES[noise](random, n))
    theta, loss = nn.Parameter(torch.zeros(4, dtype=torch.float64)), GaussianLoss(1.0).double()
    optimizer = torch.optim.LBFGS([theta, *loss.parameters()], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-10)

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(basis @ theta, y)
        value.backward()
        return value

    optimizer.step(closure)
    # The minimum over both is least squares and its mean squared residual.
    fitted = torch.linalg.lstsq(basis, y.unsqueeze(1)).solution.squeeze(1)
    torch.testing.assert_close(theta.detach(), fitted, rtol=1e-3, atol=1e-4)
    assert loss.sigma == pytest.approx(solved_sigma(basis @ fitted, y).item(), rel=1e-4)
    return loss.sigma**2 / SIGMA**2 - 1, float((basis @ (theta.detach() - truth)).square().mean())


@pytest.mark.parametrize(("noise", "fourth_moment"), [("Gaussian", 3.0), ("uniform", 1.8), ("Laplace", 6.0)])
def test_proposition_b1_sigma_and_the_function_are_found_as_the_data_grow(noise: str, fourth_moment: float) -> None:
    """The variance's error is that of a mean of n squares whatever the noise, and four coefficients cost 4 sigma^2 / n."""
    for n in (30, 300, 3_000, 30_000):
        ends = [trained(noise, n, seed) for seed in range(4)]
        expected = math.sqrt((fourth_moment - 1) / n)
        assert abs(np.mean([sigma for sigma, _ in ends]) + 4 / n) < 4 * expected / 2
        assert 0.1 * 4 * SIGMA**2 / n < np.mean([error for _, error in ends]) < 3 * 4 * SIGMA**2 / n


def test_attach_regularises_the_network_and_leaves_the_noise_level_to_the_loss() -> None:
    torch.manual_seed(0)
    model, loss = nn.Linear(6, 1), GaussianLoss(1.0)
    x = torch.randn(200, 6)
    y = 2 * x[:, :1] + 0.5 * torch.randn(200, 1)
    optimizer = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=0.02)
    sparsifier = lz.attach(optimizer, model, lz.RL1(alpha=0.3, proximal=True))
    assert list(sparsifier.params) == ["weight"]
    for _ in range(300):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    assert float(model.weight.detach()[0, 1:].abs().max()) < 0.1 < 1.5 < float(model.weight.detach()[0, 0]) < 2
    assert loss.sigma == pytest.approx((model(x) - y).detach().square().mean().sqrt().item(), rel=0.02)


@pytest.mark.usefixtures("unchecked")
def test_shapes_that_differ_are_refused_where_they_would_be_broadcast() -> None:
    """A network's [n, 1] against targets [n] would be n x n differences."""
    predicted, observed = torch.zeros(5, 1), torch.zeros(5)
    loss = GaussianLoss()
    for compute in (
        lambda: loss(predicted, observed),
        lambda: loss.solve_(predicted, observed),
        lambda: loss.code_length_bits(predicted, observed, cell_width=0.1),
        lambda: solved_gaussian_nats(predicted, observed, least_sigma=0.1),
        lambda: solved_sigma(predicted, observed),
        lambda: gaussian_nats(predicted, observed, 0.0),
    ):
        with pytest.raises(ValueError, match=r"predicted has the shape \[5, 1\] and observed \[5\]"):
            compute()
    assert loss.sigma == pytest.approx(0.1)


def test_sigmas_that_are_none_are_refused() -> None:
    predicted, observed = numbers(0, 3)
    for sigma in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"sigma is {sigma}"):
            GaussianLoss(sigma)
        with pytest.raises(ValueError, match=f"least_sigma is {sigma}"):
            solved_gaussian_nats(predicted, observed, least_sigma=sigma)
    with pytest.raises(ValueError, match=r"cell_width is 0\.0"):
        GaussianLoss().code_length_bits(predicted, observed, cell_width=0.0)
