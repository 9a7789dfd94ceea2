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
    count_mask,
    csc_bits,
    csr_bits,
    dense_bits,
    entropy_bits,
    nonzeros_times_four_bytes,
    position_entropy_bits,
    stored_scalars,
)
from ellzero.description.online import OnlineCode, online_code
from ellzero.description.power_law import PowerLaw, fit_power_law

__all__ = [
    "DescriptionLength",
    "OnlineCode",
    "PowerLaw",
    "TensorCount",
    "bitmap_bits",
    "categorical_code_length_bits",
    "coo_bits",
    "count_mask",
    "csc_bits",
    "csr_bits",
    "dense_bits",
    "entropy_bits",
    "fit_power_law",
    "gaussian_code_length_bits",
    "mdl_price",
    "nats_to_bits",
    "nonzeros_times_four_bytes",
    "online_code",
    "position_entropy_bits",
    "stored_scalars",
]
