"""The online (prequential) code: each batch is coded by what was learnt from those before it, and the model is never sent.

The receiver decodes a batch, learns from it as the sender did, and is ready for the next one. What the model costs is in the data's
code length: it predicts badly while it has seen little. This is the integral under the loss curve of the paper's section 3.3 (A. P.
Dawid, "Present position and potential developments: some personal views: statistical theory: the prequential approach", 1984; L. Blier and
Y. Ollivier, "The description length of deep learning models", 2018).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int64

from ellzero.description.code_length import nats_to_bits

BatchType = TypeVar("BatchType")

# A float32 log-softmax can put a certain symbol at a probability of 1 + 1e-7.
_ABOVE_ONE = 1e-5


@dataclass(frozen=True, kw_only=True, eq=False)
class OnlineCode:
    """The length of data in an online code.

    Attributes:
        batch_bits: code length of each batch under the model as it was before that batch.
        batch_symbols: how many symbols of each batch were predicted.
        verbatim_symbols: how many symbols were not predicted and are coded as they are.
        verbatim_bits: what those cost together.
    """

    batch_bits: Float[np.ndarray, "batches"]
    batch_symbols: Int64[np.ndarray, "batches"]
    verbatim_symbols: int = 0
    verbatim_bits: float = 0.0

    @property
    def symbols(self) -> int:
        """How many symbols were coded."""
        return int(self.batch_symbols.sum()) + self.verbatim_symbols

    @property
    def total_bits(self) -> float:
        """The length of everything in bits. There is no model part to add."""
        return float(self.batch_bits.sum()) + self.verbatim_bits

    @property
    def total_bytes(self) -> int:
        """The length of everything in whole bytes, rounded up as a file is."""
        return math.ceil(self.total_bits / 8)

    @property
    def mean_bits(self) -> float:
        """Bits per symbol; 0 where there is no symbol."""
        return self.total_bits / self.symbols if self.symbols else 0.0


def online_code(
    batches: Iterable[BatchType],
    log_probabilities: Callable[[BatchType], Float[np.ndarray, "..."]],
    learn: Callable[[BatchType], object],
    *,
    symbols: int,
    verbatim_bits: float | None = None,
) -> OnlineCode:
    """Codes data in one pass: each batch by the model as it is, then lets the model learn from it.

    Symbols are counted by their log-probabilities and compared with `symbols`. A network that sees 2,048 bytes predicts 2,047 of them;
    to multiply its mean loss by 2,048 is no code length, nor is a sum over several epochs.

    Args:
        batches: the data, once, in the order of coding.
        log_probabilities: batch -> the natural logarithm of the probability of each symbol in it that is predicted, any shape. It must use
            nothing but earlier batches and earlier symbols of this one, or no receiver can follow.
        learn: lets the model learn from a batch, as often as it likes and from all batches so far.
        symbols: how many symbols the data hold.
        verbatim_bits: bits per symbol that no log-probability was given for, such as the first byte of each context: 8 for bytes. None
            refuses data of which some symbols are not coded.

    Returns:
        The code's length, batch by batch.

    Raises:
        ValueError: more or, without `verbatim_bits`, fewer symbols were coded than there are, or a log-probability is NaN or above 0.
    """
    bits: list[float] = []
    counts: list[int] = []
    for index, batch in enumerate(batches):
        logs = np.asarray(log_probabilities(batch))
        if logs.size and not logs.max() <= _ABOVE_ONE:
            raise ValueError(f"batch {index} has the log-probability {logs.max()}: expected natural logarithms of probabilities, at most 0")
        bits.append(nats_to_bits(-float(logs.sum(dtype=np.float64))))
        counts.append(logs.size)
        learn(batch)
    missing = symbols - sum(counts)
    if missing < 0:
        raise ValueError(f"{sum(counts)} symbols were coded, but the data hold {symbols}: an online code passes over them once")
    if missing and verbatim_bits is None:
        raise ValueError(
            f"{sum(counts)} of {symbols} symbols were coded: pass verbatim_bits=, what each of the other {missing} costs, 8 for a byte"
        )
    return OnlineCode(
        batch_bits=np.array(bits, dtype=np.float64),
        batch_symbols=np.array(counts, dtype=np.int64),
        verbatim_symbols=missing,
        verbatim_bits=missing * (verbatim_bits or 0.0),
    )
