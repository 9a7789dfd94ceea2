"""What goes into a network file comes out of it, bit for bit, and nothing else does."""

import io
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[3] / "reference"))

import network as reference
from networks import assert_same, of_every_kind, read, sparse, written

from ellzero.codec.container import ContainerReader, ContainerWriter, Kind
from ellzero.codec.errors import FormatError, LimitError
from ellzero.codec.network import matrix, words
from ellzero.codec.network.dtypes import DType
from ellzero.codec.network.group import Names
from ellzero.codec.network.network_file import GROUP_SECTION, decode_network, encode_network, read_network
from ellzero.codec.network.stored_grids import Logarithmic, Uniform
from ellzero.codec.network.tensors import Description, Entry, ExactTensor, QuantisedTensor, Tied, exact

shapes = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6)


@pytest.mark.parametrize("mixed_cells", [1 << 18, 0])
def test_a_network_of_every_kind_of_tensor_comes_back(monkeypatch: pytest.MonkeyPatch, mixed_cells: int, seeds: int):
    monkeypatch.setattr(matrix, "MIXED_CELLS", mixed_cells)
    entries = of_every_kind(seeds)
    assert_same(entries, read(written(entries)))


@given(dtype=st.sampled_from(DType), shape=shapes, seed=st.integers(0, 1 << 32), kept=st.sampled_from([0.0, 0.05, 0.5, 1.0]))
def test_bits_of_any_type_and_shape_come_back(dtype: DType, shape: tuple[int, ...], seed: int, kept: float):
    source = np.random.default_rng(seed)
    count = int(np.prod(shape)) * dtype.words
    words = source.integers(0, 1 << dtype.word_bits, count, dtype=np.uint64).astype(dtype.word_type)
    words[source.random(count) >= kept] = 0
    entries: list[Entry] = [ExactTensor(name="x", dtype=dtype, shape=shape, words=words)]
    assert_same(entries, read(written(entries)))


@given(
    array=st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.int32, np.uint64, np.bool_]).flatmap(
        lambda kind: arrays.arrays(kind, shapes)
    )
)
def test_extreme_numbers_come_back(array: np.ndarray):
    entries: list[Entry] = [exact("x", array)]
    back = read(written(entries))
    assert_same(entries, back)
    assert isinstance(back[0], ExactTensor)
    assert back[0].array().tobytes() == array.tobytes()


@given(
    shape=arrays.array_shapes(min_dims=1, max_dims=4, max_side=6),
    seed=st.integers(0, 1 << 32),
    scale=st.sampled_from([0.1, 1.0, 30.0, 2000.0]),
    dtype=st.sampled_from([DType.F32, DType.F16, DType.BF16, DType.F64]),
    logarithmic=st.booleans(),
)
def test_levels_come_back_as_the_numbers_that_they_are_worth(
    shape: tuple[int, ...], seed: int, scale: float, dtype: DType, logarithmic: bool
):
    levels = np.random.default_rng(seed).normal(0, scale, shape).round().astype(np.int32)
    levels = levels.clip(-4096, 4096)
    grid = Logarithmic(smallest=2.0**-10, ratio=1.0009765625) if logarithmic else Uniform(steps=(0.3125,))
    entries: list[Entry] = [QuantisedTensor(name="x", dtype=dtype, shape=shape, levels=levels, grid=grid)]
    assert_same(entries, read(written(entries)))


@given(names=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40), unique=True, max_size=8))
def test_any_names_come_back_in_their_order(names: list[str]):
    entries: list[Entry] = [exact(name, np.float32(index)) for index, name in enumerate(names)]
    assert [tensor.name for tensor in read(written(entries))] == names


def test_the_bytes_of_a_tiny_network_stay_what_they_are():
    entries: list[Entry] = [
        exact("fc.weight", np.array([[0, 1.5, 0], [-0.25, 0, 0]], np.float32)),
        QuantisedTensor(
            name="fc.bias", dtype=DType.F32, shape=(2,), levels=np.array([3, 0], np.int32), grid=Logarithmic(smallest=0.5, ratio=1.5)
        ),
    ]
    assert written(entries).hex(" ") == LITERAL
    assert written(entries) == written(entries)


LITERAL = "89 6c 30 0a 00 02 01 0e c0 39 96 77 84 53 1d 3e 95 40 2b e0 22 40 00 00 84 af 9f 38"


@pytest.mark.parametrize("mixed_cells", [1 << 18, 10])
def test_the_decoder_written_from_the_document_alone_agrees(monkeypatch: pytest.MonkeyPatch, mixed_cells: int, seed: int):
    monkeypatch.setattr(matrix, "MIXED_CELLS", mixed_cells)
    entries = of_every_kind(seed)
    file = written(entries)
    decoded = reference.decode(file)
    for (name, value), tensor in zip(decoded.items(), read(file), strict=True):
        assert name == tensor.name
        if isinstance(tensor, Tied):
            assert value == tensor.of
        else:
            assert value == (tensor.dtype.value, tensor.shape, tensor.words.tolist())


def test_without_a_compiler_the_bytes_are_the_same(source_environment: dict[str, str], seed: int):
    here = Path(__file__).parent
    code = f"import sys; sys.path.insert(0, {str(here)!r}); from networks import *; print(written(of_every_kind({seed})).hex())"
    environment = source_environment | {"NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", code]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert found.strip() == written(of_every_kind(seed)).hex()


def test_large_networks_are_groups_that_decode_one_tensor_at_a_time():
    source = np.random.default_rng(0)
    entries: list[Entry] = [exact(f"layers.{index}.weight", sparse(source, 800, 500, density=0.01)) for index in range(4)]
    entries.append(Tied(name="tied", of="layers.0.weight"))
    file = written(entries)
    sections = list(ContainerReader(io.BytesIO(file)).sections((GROUP_SECTION,)))
    assert len(sections) == 2
    assert_same(entries, read(file))


def test_tensors_that_are_split_piece_by_piece_are_the_same_bytes(monkeypatch: pytest.MonkeyPatch, seeds: int):
    entries = of_every_kind(seeds)
    whole = written(entries)
    monkeypatch.setattr(words, "_PIECE", 7)
    monkeypatch.setattr(matrix, "_PIECE", 11)
    assert written(entries) == whole
    assert_same(entries, read(whole))


def test_sparse_values_that_are_all_different_are_not_looked_up_as_repeated(monkeypatch: pytest.MonkeyPatch):
    source = np.random.default_rng(3)
    weights = sparse(source, 300, 40, density=0.1) + np.float32(0)  # no -0, which is not zero here

    def repeats(array: np.ndarray) -> bool:
        levels, extra = words.split_words(exact("x", array).words, DType.F32, words.find_split(exact("x", array).words, DType.F32))
        form = matrix.form_of(array.shape, 1, 0)
        return matrix.Levels(form=form, levels=levels, extra=extra, extra_bits=23, top=0, logarithmic=True).repeats()

    assert not repeats(weights)
    assert repeats(np.concatenate([weights, weights]))
    monkeypatch.setattr(matrix, "_SAMPLED_CELLS", 0)
    assert not repeats(weights)
    assert repeats(np.concatenate([weights, weights]))


def test_a_caller_refuses_a_tensor_before_it_is_decoded():
    entries: list[Entry] = [exact("weight", np.ones((3, 4), np.float32))]
    told: list[Description] = []

    def refuse(description: Description) -> None:
        told.append(description)
        raise KeyError(description.name)

    with pytest.raises(KeyError):
        list(read_network(io.BytesIO(written(entries)), accept=refuse))
    assert told == [Description(name="weight", dtype=DType.F32, shape=(3, 4))]


def test_a_tensor_above_the_limit_is_refused():
    file = written([exact("zeros", np.zeros((1 << 12, 1 << 12), np.float32))])
    assert len(file) < 64
    with pytest.raises(LimitError, match="67108864 bytes"):
        list(read_network(io.BytesIO(file), max_bytes=1 << 20))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([exact("a", np.float32(1)), exact("a", np.float32(2))], "two tensors"),
        ([exact("a\0b", np.float32(1))], "NUL"),
        ([exact("a", np.float32(1)), Tied(name="b", of="a"), Tied(name="b", of="a")], "two tensors"),
        ([exact("ä" * 2048, np.float32(1))], "has 4096 bytes, at most 4095"),
        ([Tied(name="a", of="b")], "does not come before"),
        ([ExactTensor(name="a", dtype=DType.F32, shape=(3,), words=np.zeros(2, np.uint32))], "2 words"),
        (
            [QuantisedTensor(name="a", dtype=DType.I8, shape=(1,), levels=np.ones(1, np.int32), grid=Uniform(steps=(1.0,)))],
            "cannot be quantised",
        ),
        (
            [QuantisedTensor(name="a", dtype=DType.F32, shape=(1,), levels=np.ones(1, np.int32), grid=Uniform(steps=(0.1,)))],
            "single precision",
        ),
    ],
)
def test_what_cannot_be_stored_is_refused(entries: list[Entry], message: str):
    with pytest.raises(ValueError, match=message):
        written(entries)


def test_names_are_found_without_comparing_them_with_all_others():
    compared = 0

    class Name(str):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = Names()
    for index in range(1000):
        assert Name(index) not in names
        names.add(Name(index))
    assert [names.place(Name(index)) for index in range(1000)] == list(range(1000))
    assert [names.latest(index) for index in (0, 999)] == ["999", "0"]
    assert len(names) == 1000
    assert compared < 10_000


def test_a_name_of_the_most_bytes_comes_back():
    entries: list[Entry] = [exact("n" * 4095, np.float32(1)), exact("m" * 4095, np.float32(2))]
    assert [tensor.name for tensor in read(written(entries))] == ["n" * 4095, "m" * 4095]


def test_damaged_groups_decode_to_an_error_or_to_other_tensors_and_nothing_else():
    group = next(encode_network(of_every_kind(3)))
    source = random.Random(0)
    failed = 0
    for _ in range(200):
        damaged = bytearray(group)
        for _ in range(source.randrange(1, 4)):
            damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
        del damaged[len(damaged) - source.choice([0, 0, source.randrange(len(damaged))]) :]
        try:
            list(decode_network([bytes(damaged)], max_bytes=1 << 16))
        except FormatError:
            failed += 1
    assert failed > 100


def test_levels_that_claim_to_repeat_bits_are_an_error(monkeypatch: pytest.MonkeyPatch):
    # Believing it would read memory that is not there, in either direction.
    monkeypatch.setattr(matrix.Levels, "repeats", lambda _: True)
    entry = QuantisedTensor(name="a", dtype=DType.F32, shape=(300,), levels=np.ones(300, np.int32), grid=Uniform(steps=(1.0,)))
    with pytest.raises(FormatError, match="claims to repeat"):
        written([entry])


def test_bytes_after_the_last_tensor_are_an_error():
    group = next(encode_network(of_every_kind(0)))
    with pytest.raises(FormatError, match="longer than what it holds"):
        list(decode_network([group + bytes(range(1, 9))]))


def test_a_network_file_that_holds_data_is_refused():
    file = io.BytesIO()
    ContainerWriter(file, Kind.NETWORK).section(2, b"", check=True)
    with pytest.raises(FormatError):
        read(file.getvalue())
