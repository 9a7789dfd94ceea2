"""Orders of hidden units: which unit comes first changes nothing in what a network computes, and bytes in its file."""

import numpy as np
from numpy.typing import NDArray


def density_order(weights: NDArray[np.generic]) -> NDArray[np.int64]:
    """Orders the rows of a matrix by how many non-zeros they have, the fullest first, equals as they were.

    Give each hidden layer's units this order: rows of its weights and entries of its biases and normalisations, `weights[order]`, and the
    columns that the next layer reads them by, `weights[:, order]`. Dead units then lie together at the end, and the number of weights of a
    unit is close to that of the one before it.

    Args:
        weights: or levels, [units, ...].

    Returns:
        The numbers of the units in their new order, [units].
    """
    counts = np.count_nonzero(weights.reshape(weights.shape[0], -1), axis=1)
    return np.argsort(-counts, kind="stable").astype(np.int64)
