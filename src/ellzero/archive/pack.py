"""Packs networks of other formats into `.l0` files and unpacks them. Needs torch for its checkpoints only."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from ellzero.archive.entries import Budget, SaveReport, nonzeros, write_entries
from ellzero.archive.safetensors_files import write_safetensors
from ellzero.archive.sources import tensors_of
from ellzero.archive.torch_checkpoints import Say, names_checkpoint, say_nothing, write_checkpoint
from ellzero.codec.container import DEFAULT_LIMIT, ContainerReader, Kind, Sink, Source
from ellzero.codec.network.network_file import checked_groups, decode_network, read_network
from ellzero.codec.network.tensors import Tied
from ellzero.quantise.grids import Quantiser


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A tensor of a network file.

    Attributes:
        name: of the tensor.
        dtype: data type, as safetensors calls it.
        shape: sizes of the dimensions.
        nonzeros: numbers that are not zero.
        tied_to: name of the tensor that it is; None where it is one of its own.
        coded_bytes: what it takes in the file beside its name and shape, to a byte or two; 0 where it is tied.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nonzeros: int
    tied_to: str | None
    coded_bytes: int


def pack(source: Path, file: Sink, quantise: Quantiser | None = None, say: Say = say_nothing) -> SaveReport:
    """Packs a network, one tensor at a time.

    Args:
        source: a safetensors file or index of shards, a checkpoint of torch with weights alone, or a folder of one of these.
        file: where to.
        quantise: moves weights to a grid; None is lossless.
        say: is told what the source holds beside the network, which is left out.

    Returns:
        Sizes.

    Raises:
        ValueError: the source is damaged, or no network.
        OSError: a file cannot be read.
    """
    return write_entries(file, tensors_of(source, say), quantise)


def unpack(file: BinaryIO, output: BinaryIO, *, name: Path, max_size: int = DEFAULT_LIMIT) -> int:
    """Unpacks a network file.

    Args:
        file: a network file.
        output: where to.
        name: of the output: a checkpoint of torch where it is called as one, else safetensors.
        max_size: the most bytes that may be held in memory: one tensor, or for a checkpoint all together.

    Returns:
        The number of tensors.

    Raises:
        FormatError: the file is damaged, or holds no network.
        LimitError: it takes more than `max_size`.
    """
    if not names_checkpoint(name):
        return write_safetensors(output, read_network(file, max_bytes=max_size))
    refusal = f"all tensors together take more than the limit of {max_size} bytes: raise it, or unpack to .safetensors, one after the other"
    return write_checkpoint(output, read_network(file, max_bytes=max_size, accept=Budget(max_size, refusal)))


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a network file holds, and where its bytes go.

    Attributes:
        layers: the tensors.
        group_bytes: of each group of tensors.
        file_bytes: of the whole file.
    """

    layers: list[Layer]
    group_bytes: list[int]
    file_bytes: int


def contents(file: Source, *, max_size: int = DEFAULT_LIMIT) -> Contents:
    """Decodes a network file from front to back, one tensor in memory at a time, and describes it.

    Args:
        file: a network file.
        max_size: the most bytes that one tensor may take.

    Raises:
        FormatError: the file is damaged, or holds no network.
        LimitError: a tensor takes more than `max_size`.
    """
    reader = ContainerReader(file, max_section=max_size)
    reader.expect(Kind.NETWORK)
    sizes: list[int] = []

    def groups() -> Iterator[bytes]:
        for group in checked_groups(reader):
            sizes.append(len(group))
            yield group

    known: dict[str, Layer] = {}
    for entry in decode_network(groups(), max_bytes=max_size):
        if isinstance(entry, Tied):
            known[entry.name] = replace(known[entry.of], name=entry.name, tied_to=entry.of, coded_bytes=0)
        else:
            known[entry.name] = Layer(
                name=entry.name,
                dtype=entry.dtype.value,
                shape=entry.shape,
                nonzeros=nonzeros(entry),
                tied_to=None,
                coded_bytes=entry.coded_bytes or 0,
            )
    return Contents(layers=list(known.values()), group_bytes=sizes, file_bytes=reader.position)
