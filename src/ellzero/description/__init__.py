"""Description length: what a network and the data given the network cost, in bits."""

from ellzero.description.code_length import (
    DescriptionLength,
    categorical_code_length_bits,
    gaussian_code_length_bits,
    mdl_price,
    nats_to_bits,
)
from ellzero.description.model_size import (
    TensorCount,
    bitmap_bits,
    coo_bits,
    count,
    csc_bits,
    csr_bits,
    dense_bits,
    entropy_bits,
    nonzeros_times_four_bytes,
    position_entropy_bits,
    stored_scalars,
)

__all__ = [
    "DescriptionLength",
    "TensorCount",
    "bitmap_bits",
    "categorical_code_length_bits",
    "coo_bits",
    "count",
    "csc_bits",
    "csr_bits",
    "dense_bits",
    "entropy_bits",
    "gaussian_code_length_bits",
    "mdl_price",
    "nats_to_bits",
    "nonzeros_times_four_bytes",
    "position_entropy_bits",
    "stored_scalars",
]
