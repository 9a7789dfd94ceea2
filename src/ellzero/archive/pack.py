"""Packs networks of other formats into `.l0` files and unpacks them. Needs torch for its checkpoints only."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from ellzero.archive.checkpoints import CHECKPOINTS, write_checkpoint
from ellzero.archive.entries import Report, nonzeros, write_entries
from ellzero.archive.grids import Quantiser
from ellzero.archive.safetensors_files import write_safetensors
from ellzero.archive.sources import tensors_of
from ellzero.codec.container import DEFAULT_LIMIT, ContainerReader, Kind
from ellzero.codec.network.format import GROUP_SECTION, read_network
from ellzero.codec.network.tensors import Tied
from ellzero.codec.streams import Sink


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


def pack(source: Path, file: Sink, quantise: Quantiser | None = None) -> Report:
    """Packs a network, one tensor at a time.

    Args:
        source: a safetensors file or index of shards, a checkpoint of torch with weights alone, or a folder of one of these.
        file: where to.
        quantise: moves weights to a grid; None is lossless.

    Returns:
        Sizes.

    Raises:
        ValueError: the source is damaged, or no network.
        OSError: a file cannot be read.
    """
    return write_entries(file, tensors_of(source), quantise)


def unpack(file: BinaryIO, output: BinaryIO, *, suffix: str, max_size: int = DEFAULT_LIMIT) -> int:
    """Unpacks a network file.

    Args:
        file: a network file.
        output: where to.
        suffix: of the output: a checkpoint of torch for one of `CHECKPOINTS`, else safetensors.
        max_size: the most bytes that one tensor may take.

    Returns:
        The number of tensors.

    Raises:
        FormatError: the file is damaged, or holds no network.
    """
    entries = read_network(file, max_bytes=max_size)
    return write_checkpoint(output, entries) if suffix in CHECKPOINTS else write_safetensors(output, entries)


def layers(file: BinaryIO, *, max_size: int = DEFAULT_LIMIT) -> Iterator[Layer]:
    """Decodes a network file and describes its tensors, one at a time.

    Args:
        file: a network file.
        max_size: the most bytes that one tensor may take.

    Raises:
        FormatError: the file is damaged, or holds no network.
    """
    known: dict[str, Layer] = {}
    for entry in read_network(file, max_bytes=max_size):
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
        yield known[entry.name]


def group_bytes(file: BinaryIO) -> list[int]:
    """Lists the sizes of the groups of tensors in a network file, in bytes, after its check has held.

    Raises:
        FormatError: the file is damaged, or holds no network.
    """
    reader = ContainerReader(file)
    reader.expect(Kind.NETWORK)
    return [len(section.payload) for section in reader.sections((GROUP_SECTION,))]
