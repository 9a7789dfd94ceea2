"""Code lengths against scipy and against distributions whose lengths are known exactly."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import integrate, special, stats

from ellzero.description import DescriptionLength, categorical_code_length_bits, gaussian_code_length_bits, mdl_price, nats_to_bits


def test_one_bit_is_ln_2_nats():
    assert nats_to_bits(math.log(2)) == 1
    assert nats_to_bits(math.log(256)) == pytest.approx(8, rel=1e-15)


@given(seed=st.integers(0, 2**31), count=st.integers(1, 40), classes=st.integers(1, 300))
def test_categorical_lengths_are_the_sum_of_minus_log2_p(seed: int, count: int, classes: int):
    random = np.random.default_rng(seed)
    log_probabilities = special.log_softmax(random.normal(scale=3, size=(count, classes)), axis=1)
    symbols = random.integers(classes, size=count)
    expected = -sum(math.log2(math.exp(row[symbol])) for row, symbol in zip(log_probabilities, symbols, strict=True))
    assert categorical_code_length_bits(log_probabilities, symbols) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_uniform_bytes_cost_eight_bits_each_in_any_type():
    log_probabilities = np.full((5, 256), -math.log(256), dtype=np.float32)
    for kind in (np.uint8, np.int64):
        assert categorical_code_length_bits(log_probabilities, np.array([0, 255, 3, 3, 9], dtype=kind)) == pytest.approx(40, rel=1e-6)


def test_no_symbols_cost_nothing_and_impossible_ones_cannot_be_coded():
    assert categorical_code_length_bits(np.zeros((0, 3)), np.zeros(0, dtype=np.int64)) == 0
    certain = np.array([[0.0, -np.inf]])
    assert categorical_code_length_bits(certain, np.array([0])) == 0
    assert categorical_code_length_bits(certain, np.array([1])) == math.inf


@pytest.mark.parametrize("total", [0.9, 1.1, math.nan])
def test_rows_that_are_no_distribution_are_refused_by_number(total: float):
    probabilities = np.full((3, 4), 0.25)
    probabilities[1] *= total
    with pytest.raises(ValueError, match="symbol 1 sum to"):
        categorical_code_length_bits(np.log(probabilities), np.array([0, 1, 2]))


@pytest.mark.parametrize("symbol", [-1, 4])
def test_a_symbol_outside_the_classes_is_refused(symbol: int):
    with pytest.raises(ValueError, match="expected 0 to 3"):
        categorical_code_length_bits(np.full((1, 4), -math.log(4)), np.array([symbol]))


@given(seed=st.integers(0, 2**31), sigma=st.floats(1e-3, 1e3), places=st.integers(0, 30))
def test_gaussian_lengths_are_scipys_density_times_the_cell(seed: int, sigma: float, places: int):
    residuals = np.random.default_rng(seed).normal(scale=sigma, size=17)
    expected = -stats.norm.logpdf(residuals, scale=sigma).sum() / math.log(2) + 17 * places
    assert gaussian_code_length_bits(residuals, sigma, 2.0**-places) == pytest.approx(expected, rel=1e-10, abs=1e-9)


def test_gaussian_cells_are_a_distribution_so_that_a_coder_could_keep_the_lengths():
    width = 0.1
    cells = np.arange(-100, 101) * width
    lengths = np.array([gaussian_code_length_bits(cells[i : i + 1], 1.5, width) for i in range(len(cells))])
    assert (2.0**-lengths).sum() == pytest.approx(1, rel=1e-9)
    exact, _ = integrate.quad(lambda x: stats.norm.pdf(x, scale=1.5), cells[107] - width / 2, cells[107] + width / 2)
    assert lengths[107] == pytest.approx(-math.log2(exact), abs=1e-3)


def test_the_best_sigma_is_the_root_mean_square_of_the_residuals():
    residuals = np.array([0.3, -1.2, 2.0, 0.1])
    best = math.sqrt(float(np.square(residuals).mean()))
    lengths = [gaussian_code_length_bits(residuals, best * factor, 1e-3) for factor in (0.99, 1.0, 1.01)]
    assert lengths[1] < min(lengths[0], lengths[2])


def test_with_sigma_squared_of_1_over_2_ln_2_the_length_is_the_squared_error():
    residuals = np.array([0.5, 2.0])
    sigma = math.sqrt(1 / (2 * math.log(2)))
    zero = gaussian_code_length_bits(np.zeros(2), sigma, 1.0)
    assert gaussian_code_length_bits(residuals, sigma, 1.0) - zero == pytest.approx(0.25 + 4.0, rel=1e-12)


@pytest.mark.parametrize(
    ("sigma", "width", "named"), [(0.0, 1.0, "sigma"), (math.nan, 1.0, "sigma"), (1.0, -1.0, "cell_width"), (1.0, math.inf, "cell_width")]
)
def test_lengths_without_a_scale_are_refused(sigma: float, width: float, named: str):
    with pytest.raises(ValueError, match=named):
        gaussian_code_length_bits(np.zeros(1), sigma, width)


def test_description_length_adds_model_and_data_and_rounds_up_to_bytes():
    length = DescriptionLength(model_bits=20.5, data_bits=3.75)
    assert length.total_bits == 24.25
    assert length.total_bytes == 4
    assert DescriptionLength(model_bits=16, data_bits=8).total_bytes == 3


@given(bits=st.floats(0.1, 64), samples=st.integers(1, 10**9), weights=st.integers(0, 10**6), loss=st.floats(0, 10))
def test_the_price_makes_the_objective_the_description_length(bits: float, samples: int, weights: int, loss: float):
    objective_nats = mdl_price(bits, samples) * weights + loss
    description = DescriptionLength(model_bits=bits * weights, data_bits=nats_to_bits(loss * samples))
    assert nats_to_bits(objective_nats * samples) == pytest.approx(description.total_bits, rel=1e-12)


def test_the_price_refuses_what_has_none():
    with pytest.raises(ValueError, match="samples is 0"):
        mdl_price(32, 0)
    with pytest.raises(ValueError, match="bits_per_weight is -1"):
        mdl_price(-1, 10)
