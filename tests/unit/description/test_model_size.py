"""Sizes against the arrays that scipy really stores, and against enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import sparse, special

from ellzero.description import (
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


@given(rows=st.integers(1, 12), columns=st.integers(1, 12), seed=st.integers(0, 2**31), density=st.floats(0, 1))
def test_coo_csr_and_csc_are_the_bytes_that_scipy_stores(rows: int, columns: int, seed: int, density: float):
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(rows, columns)).astype(np.float32) * (random.random((rows, columns)) < density)
    tensor = count_mask(matrix != 0)
    coo, csr, csc = sparse.coo_array(matrix), sparse.csr_array(matrix), sparse.csc_array(matrix)
    assert coo_bits(tensor) == 8 * (coo.data.nbytes + sum(index.nbytes for index in coo.coords))
    assert csr_bits(tensor) == 8 * (csr.data.nbytes + csr.indices.nbytes + csr.indptr.nbytes)
    assert csc_bits(tensor) == 8 * (csc.data.nbytes + csc.indices.nbytes + csc.indptr.nbytes)
    assert bitmap_bits(tensor) == matrix.size + 8 * csr.data.nbytes
    assert dense_bits(tensor) == 8 * matrix.nbytes
    assert nonzeros_times_four_bytes(tensor) == 8 * csr.data.nbytes


def test_a_convolution_is_a_matrix_with_a_row_an_output_channel():
    tensor = TensorCount(shape=(4, 3, 5, 5), nonzeros=10)
    assert csr_bits(tensor, index_bits=8, value_bits=16) == 10 * 24 + 5 * 8
    assert csc_bits(tensor, index_bits=8, value_bits=16) == 10 * 24 + 76 * 8
    assert coo_bits(tensor, index_bits=8, value_bits=16) == 10 * (4 * 8 + 16)


def test_vectors_and_scalars_are_one_row():
    assert csr_bits(TensorCount(shape=(7,), nonzeros=2), index_bits=8) == 2 * 40 + 2 * 8
    assert csr_bits(TensorCount(shape=(), nonzeros=1), index_bits=8) == 40 + 2 * 8
    assert coo_bits(TensorCount(shape=(), nonzeros=1)) == 32
    assert csc_bits(TensorCount(shape=(7,), nonzeros=2), index_bits=8) == 2 * 40 + 8 * 8


@pytest.mark.parametrize("n", range(1, 9))
def test_the_entropy_of_positions_is_that_of_all_placements(n: int):
    for k in range(n + 1):
        placements = len(list(itertools.combinations(range(n), k)))
        assert position_entropy_bits(TensorCount(shape=(n,), nonzeros=k)) == pytest.approx(math.log2(placements), abs=1e-12)


@given(n=st.integers(1, 10**7), share=st.floats(0, 1))
def test_the_entropy_of_positions_agrees_with_scipy_and_undercuts_a_bitmap(n: int, share: float):
    k = round(n * share)
    bits = position_entropy_bits(TensorCount(shape=(n,), nonzeros=k))
    reference = (special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)) / math.log(2)
    assert bits == pytest.approx(reference, rel=1e-9, abs=1e-5)
    assert -1e-5 <= bits <= n


def test_the_entropy_of_a_network_is_the_sum_over_its_tensors():
    tensors = [TensorCount(shape=(4, 4), nonzeros=3), TensorCount(shape=(10,), nonzeros=5)]
    assert entropy_bits(tensors, value_bits=4) == pytest.approx(math.log2(560) + math.log2(252) + 8 * 4)
    assert entropy_bits(iter(tensors)) == pytest.approx(math.log2(560) + math.log2(252) + 8 * 32)


def test_stored_scalars_count_the_zeros_of_what_is_stored_whole():
    sparse_tensors = [TensorCount(shape=(300, 784), nonzeros=1000), TensorCount(shape=(10, 300), nonzeros=90)]
    dense_tensors = [TensorCount(shape=(300,), nonzeros=20), TensorCount(shape=(10,), nonzeros=10)]
    assert stored_scalars(sparse_tensors) == 1090
    assert stored_scalars(sparse_tensors, dense_tensors) == 1400


@pytest.mark.parametrize("nonzeros", [-1, 7])
def test_counts_that_do_not_fit_the_shape_are_refused(nonzeros: int):
    with pytest.raises(ValueError, match=f"{nonzeros} non-zeros do not fit"):
        TensorCount(shape=(2, 3), nonzeros=nonzeros)
