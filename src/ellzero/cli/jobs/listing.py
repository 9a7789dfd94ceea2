"""What `ellzero list` does: compressed files and network files are described without decoding data."""

import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from ellzero.archive.pack import contents
from ellzero.cli.jobs.compress import for_each_compressed
from ellzero.cli.options.arguments import UsageError
from ellzero.cli.options.listing import List
from ellzero.codec.bytes.copies import num_bytes_of_window
from ellzero.codec.bytes.data_file import DataSection, window_of
from ellzero.codec.bytes.parameters import BLOCK, BUFFERS, parameters_of
from ellzero.codec.container import VERSION, ContainerReader, Kind
from ellzero.codec.network.dtypes import DType
from ellzero.files.errors import printable
from ellzero.files.streams import STANDARD, open_input


def run_list(options: List) -> int:
    """Lists files; returns the exit status.

    Raises:
        UsageError: no file is named.
    """
    if not options.files or any(str(file) == STANDARD for file in options.files):
        raise UsageError("list reads files, not standard input: name some")
    entries: list[Data | Network] = []
    status = for_each_compressed(options, lambda file: entries.append(look(file)))
    if options.as_json:
        print(json.dumps([asdict(entry) for entry in entries], indent=2))
    elif entries:
        _show(entries, whole_hashes=options.verbose)
    return status


@dataclass(frozen=True, kw_only=True)
class Data:
    """The description of a data file.

    Attributes:
        file: the name of the file.
        kind: `data`.
        version: version of the format.
        original_bytes: size of the original.
        compressed_bytes: size of the file.
        ratio: compressed over original size; None for an empty file.
        blocks: number of blocks, including those stored.
        stored_blocks: number of blocks that did not compress.
        level: 1 to 9; None where all blocks are stored.
        memory_bytes: memory that decoding needs, beside the interpreter's.
        seconds: estimated time of decoding on one core.
        sha256: hash of the original, in hexadecimal digits.
    """

    file: str
    kind: str
    version: int
    original_bytes: int
    compressed_bytes: int
    ratio: float | None
    blocks: int
    stored_blocks: int
    level: int | None
    memory_bytes: int
    seconds: float
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Network:
    """The description of a network file.

    Attributes:
        file: the name of the file.
        kind: `network`.
        version: version of the format.
        original_bytes: size of the tensors in memory, tied ones once.
        compressed_bytes: size of the file.
        ratio: compressed over original size; None for an empty network.
        tensors: number of tensors, including tied ones.
        scalars: numbers in the tensors, tied ones once.
        nonzeros: how many of these are not zero.
        bits_per_scalar: bits of the file per number; None for an empty network.
    """

    file: str
    kind: str
    version: int
    original_bytes: int
    compressed_bytes: int
    ratio: float | None
    tensors: int
    scalars: int
    nonzeros: int
    bits_per_scalar: float | None


def look(path: Path) -> Data | Network:
    """Describes a file.

    Raises:
        OSError: the file is missing, or cannot be read.
        FormatError: the file is damaged; its checks are compared, and data are not decoded.
    """

    with open_input(path, terminal=False) as file:
        if not file.seekable():
            raise UsageError(f"{path} is a pipe: list reads files twice")
        kind = ContainerReader(file).kind
        file.seek(0)
        return _look_at_data(path, file) if kind is Kind.DATA else _look_at_network(path, file)


def _look_at_data(path: Path, file: BinaryIO) -> Data:

    reader = ContainerReader(file, max_section=2 * BLOCK)
    blocks: list[int] = []
    model = None
    window = 0
    for section in reader.sections(tuple(DataSection)):
        if section.kind == DataSection.MODEL:
            model = parameters_of(section, None)
        elif section.kind == DataSection.WINDOW:
            window = window_of(section)
        else:
            blocks.append(section.kind)
    size = reader.original.size
    learnt = sum(kind != DataSection.STORED for kind in blocks) / max(len(blocks), 1)
    return Data(
        file=str(path),
        kind="data",
        version=VERSION,
        original_bytes=size,
        compressed_bytes=reader.position,
        ratio=reader.position / size if size else None,
        blocks=len(blocks),
        stored_blocks=sum(kind in (DataSection.STORED, DataSection.STORED_AND_LEARNT) for kind in blocks),
        level=None if model is None else model.level,
        memory_bytes=(BUFFERS if model is None else model.num_bytes) + num_bytes_of_window(window),
        seconds=0.0 if model is None else size * learnt * model.microseconds_per_byte / 1e6,
        sha256=reader.original.sha256.hex(),
    )


def _look_at_network(path: Path, file: BinaryIO) -> Network:

    layers = contents(file).layers
    untied = [layer for layer in layers if layer.tied_to is None]
    scalars = sum(math.prod(layer.shape) for layer in untied)
    dense = sum(math.prod(layer.shape) * DType(layer.dtype).num_bytes for layer in untied)
    size = path.stat().st_size
    return Network(
        file=str(path),
        kind="network",
        version=VERSION,
        original_bytes=dense,
        compressed_bytes=size,
        ratio=size / dense if dense else None,
        tensors=len(layers),
        scalars=scalars,
        nonzeros=sum(layer.nonzeros for layer in untied),
        bits_per_scalar=8 * size / scalars if scalars else None,
    )


def _show(entries: list[Data | Network], *, whole_hashes: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("compressed", "original", "ratio", "level", "blocks", "memory", "time", "hash", "format", "file"):
        table.add_column(heading, justify="left" if heading in {"hash", "file"} else "right", no_wrap=True)
    for entry in entries:
        ratio = "" if entry.ratio is None else f"{100 * entry.ratio:.2f} %"
        sizes = (f"{entry.compressed_bytes:,}", f"{entry.original_bytes:,}", ratio)
        if isinstance(entry, Network):
            what = f"network: {entry.tensors:,} tensors, {entry.nonzeros:,} of {entry.scalars:,} numbers not zero"
            if entry.bits_per_scalar is not None:
                what += f", {entry.bits_per_scalar:.3f} bits per number"
            table.add_row(*sizes, "", "", "", "", "", str(entry.version), Text(f"{printable(entry.file)} ({what})"))
            continue
        blocks = f"{entry.blocks:,}" + (f" ({entry.stored_blocks:,} stored)" if entry.stored_blocks else "")
        level = "" if entry.level is None else str(entry.level)
        digits = entry.sha256 if whole_hashes else entry.sha256[:12]
        memory = f"{entry.memory_bytes / (1 << 20):,.0f} MiB"
        table.add_row(*sizes, level, blocks, memory, f"{entry.seconds:,.1f} s", digits, str(entry.version), Text(printable(entry.file)))
    Console(width=None if sys.stdout.isatty() else 250).print(table, highlight=False, markup=False)
