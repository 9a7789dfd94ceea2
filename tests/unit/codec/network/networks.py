"""Networks for tests: every data type, and trained ones' likeness."""

import io

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.network.dtypes import DType
from ellzero.codec.network.network_file import read_network, write_network
from ellzero.codec.network.stored_grids import Logarithmic, Uniform, worth
from ellzero.codec.network.tensors import Entry, ExactTensor, QuantisedTensor, Tied, exact


def written(entries: list[Entry]) -> bytes:
    file = io.BytesIO()
    count = write_network(file, entries)
    assert count == len(file.getvalue())
    return file.getvalue()


def read(file: bytes) -> list[ExactTensor | Tied]:
    return list(read_network(io.BytesIO(file)))


def expected(entry: Entry) -> ExactTensor | Tied:
    """What an entry comes back as."""
    if not isinstance(entry, QuantisedTensor):
        return entry
    rows = entry.shape[0] if len(entry.shape) > 1 else 1
    words = worth(entry.levels.reshape(-1), entry.grid, entry.dtype, rows)
    return ExactTensor(name=entry.name, dtype=entry.dtype, shape=entry.shape, words=words)


def assert_same(given: list[Entry], back: list[ExactTensor | Tied]) -> None:
    assert len(given) == len(back)
    for entry, other in zip(given, back, strict=True):
        wanted = expected(entry)
        assert wanted.name == other.name
        if isinstance(wanted, Tied):
            assert isinstance(other, Tied)
            assert wanted.of == other.of
            continue
        assert isinstance(other, ExactTensor)
        assert (wanted.dtype, wanted.shape) == (other.dtype, other.shape)
        assert wanted.words.dtype == other.words.dtype
        assert np.array_equal(wanted.words, other.words)


def sparse(source: np.random.Generator, *shape: int, density: float = 0.3) -> NDArray[np.float32]:
    return (source.standard_normal(shape) * (source.random(shape) < density)).astype(np.float32)


def of_every_kind(seed: int) -> list[Entry]:
    """A small network with every kind of entry."""
    source = np.random.default_rng(seed)
    waves = np.sin(np.outer(np.arange(12), np.arange(40))).astype(np.float32)
    return [
        exact("layers.0.weight", sparse(source, 8, 12)),
        exact("layers.0.bias", sparse(source, 8)),
        exact("layers.1.weight", sparse(source, 6, 8, 3, 3) + np.float32(1)),
        Tied(name="head.weight", of="layers.0.weight"),
        exact("count", np.int64(-77)),
        exact("empty", np.zeros((0, 3), np.float32)),
        exact("constant", np.full((5, 5), 2.5)),
        exact("small", source.integers(-128, 128, (4, 7)).astype(np.int8)),
        exact("half", sparse(source, 3, 4).astype(np.float16)),
        exact("complex", (sparse(source, 2, 3) + 1j * sparse(source, 2, 3)).astype(np.complex64)),
        exact("mask", source.random((4, 9)) < 0.5),
        exact("waves", np.concatenate([waves, waves[:, ::-1]])),
        ExactTensor(name="brain", dtype=DType.BF16, shape=(2, 3), words=source.integers(0, 1 << 16, 6).astype(np.uint16)),
        QuantisedTensor(
            name="by row",
            dtype=DType.BF16,
            shape=(6, 5),
            levels=source.integers(-30, 31, (6, 5)).astype(np.int32),
            grid=Uniform(steps=tuple(float(np.float32(step)) for step in source.random(6) + 0.1)),
        ),
        QuantisedTensor(
            name="picture",
            dtype=DType.F32,
            shape=(9, 30),
            levels=(source.integers(-9, 10, (9, 30)) * (source.random((9, 30)) < 0.4) * (np.arange(30) % 7 > 0)).astype(np.int32),
            grid=Logarithmic(smallest=0.25, ratio=1.3125),
            image_width=6,
        ),
        QuantisedTensor(
            name="by ratio",
            dtype=DType.F16,
            shape=(6, 5),
            levels=source.integers(-9, 10, (6, 5)).astype(np.int32),
            grid=Logarithmic(smallest=0.125, ratio=1.25),
        ),
    ]
