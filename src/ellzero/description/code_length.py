"""Code lengths of data under a distribution, in bits, and the description length of eq. 2 that they are one half of."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

_LN2 = math.log(2)


def nats_to_bits(nats: float) -> float:
    """Converts nats (natural logarithm, what losses are in) to bits: the one place where it is done.

    Args:
        nats: an amount of information in nats.

    Returns:
        The same amount in bits: nats *divided* by ln 2.
    """
    return nats / _LN2


def categorical_code_length_bits(log_probabilities: Float[np.ndarray, "symbols classes"], symbols: Integer[np.ndarray, "symbols"]) -> float:
    """Computes the length of symbols coded by an ideal arithmetic coder under one categorical distribution per symbol.

    Args:
        log_probabilities: natural logarithms of the probabilities, one row per symbol, whose probabilities sum to 1.
        symbols: the class that occurred, in [0, classes).

    Returns:
        -sum(log2 p(symbol)) in bits; infinite where a symbol of probability 0 occurred.

    Raises:
        ValueError: a symbol is outside the classes, or a row is no distribution. A row that sums to more than 1 promises code
            lengths that no decoder can keep.
    """
    if symbols.size == 0:
        return 0.0
    classes = log_probabilities.shape[1]
    if symbols.min() < 0 or symbols.max() >= classes:
        raise ValueError(f"symbols lie in [{symbols.min()}, {symbols.max()}], but there are {classes} classes: expected 0 to {classes - 1}")
    totals = np.exp(log_probabilities.astype(np.float64)).sum(axis=1)
    # A float32 log-softmax over 256 classes is off by about 1e-6; an unnormalised mixture by far more.
    worst = int(np.abs(totals - 1).argmax())
    if not abs(totals[worst] - 1) < 1e-4:
        raise ValueError(f"the probabilities of symbol {worst} sum to {totals[worst]:.6g}, not 1: pass the output of a log-softmax")
    chosen = np.take_along_axis(log_probabilities, symbols[:, None], axis=1).astype(np.float64)
    return nats_to_bits(-float(chosen.sum()))


def gaussian_code_length_bits(residuals: Float[np.ndarray, "samples"], sigma: float, cell_width: float) -> float:
    """Computes the length of real numbers coded to a stated precision under a Gaussian (eq. 5).

    A sample costs -log2 of the cell width times the density at it, no more: eq. 14-15 of the paper, which also multiply by the
    probability 1/N of a cell, count log2 N twice. The density is taken as constant over a cell, so `cell_width` should be well below
    `sigma`; without that the length can even be negative.

    Args:
        residuals: y - m(x), observation minus predicted mean, in the unit of y.
        sigma: standard deviation of the Gaussian, in the unit of y.
        cell_width: the precision to which y is recorded, in the unit of y: 1 for integers, 2^-k for k binary places.

    Returns:
        The summed length in bits.

    Raises:
        ValueError: `sigma` or `cell_width` is not positive and finite.
    """
    for name, value in (("sigma", sigma), ("cell_width", cell_width)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}: expected a positive finite number in the unit of y")
    constant = 0.5 * math.log2(2 * math.pi * sigma**2) - math.log2(cell_width)
    squares = float(np.square(residuals, dtype=np.float64).sum())
    return residuals.size * constant + nats_to_bits(squares / (2 * sigma**2))


@dataclass(frozen=True, kw_only=True)
class DescriptionLength:
    """The description length of eq. 2: what the model costs plus what the data cost once the model is known.

    Attributes:
        model_bits: length of the model, by a stated rule (`model_size`) or as the length of a file.
        data_bits: length of the data given the model.
    """

    model_bits: float
    data_bits: float

    @property
    def total_bits(self) -> float:
        """The length of both parts in bits."""
        return self.model_bits + self.data_bits

    @property
    def total_bytes(self) -> int:
        """The length of both parts in whole bytes, rounded up as a file is."""
        return math.ceil(self.total_bits / 8)


def mdl_price(bits_per_weight: float, samples: int) -> float:
    """Computes the alpha of eq. 6 that makes it the description length of eq. 2.

    With a mean loss in nats over `samples` samples, one more weight must save its own `bits_per_weight` bits over all of them:
    alpha = bits_per_weight * ln 2 / samples. It is a price and not a hyperparameter wherever the loss is a code length.

    Args:
        bits_per_weight: what storing one non-zero weight costs, its position included, in bits.
        samples: the number of samples (symbols of a text) that the mean loss is taken over, the whole set and not a batch.

    Returns:
        alpha, in nats per weight.

    Raises:
        ValueError: `bits_per_weight` is negative or `samples` is not positive.
    """
    if not bits_per_weight >= 0:
        raise ValueError(f"bits_per_weight is {bits_per_weight}: expected 0 or more")
    if samples <= 0:
        raise ValueError(f"samples is {samples}: expected the number of samples the mean loss is taken over")
    return bits_per_weight * _LN2 / samples
