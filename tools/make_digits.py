"""Writes src/ellzero/data/digits.npz from scikit-learn's copy of the digits; run by hand, once: `python tools/make_digits.py`."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TEST_IMAGES = 360

digits = load_digits()
inputs, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
assert (inputs == digits.images).all()
np.savez_compressed(
    Path(__file__).parents[1] / "src/ellzero/data/digits.npz",
    train_inputs=inputs[:-TEST_IMAGES],
    train_labels=labels[:-TEST_IMAGES],
    test_inputs=inputs[-TEST_IMAGES:],
    test_labels=labels[-TEST_IMAGES:],
)
