"""What `ellzero compress`, `decompress`, `cat` and `test` do."""

import io
import os
import stat
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ellzero.archive.compressed_file import BinaryFile
from ellzero.cli.jobs.per_file import files_within, for_each_file, shown
from ellzero.cli.jobs.progress import Bar, say, say_compiling
from ellzero.cli.options.arguments import UsageError, num_bytes
from ellzero.cli.options.compress import Cat, Compress, Decompress, Verify
from ellzero.cli.options.listing import List
from ellzero.codec.bytes.copies import map_file
from ellzero.codec.bytes.data_file import ByteEncoder, DataSection, decode_blocks
from ellzero.codec.bytes.parameters import BLOCK, model_for
from ellzero.codec.container import DEFAULT_LIMIT, MAGIC, ContainerReader, Kind, Original, Sink, Source, Tally
from ellzero.codec.errors import FormatError
from ellzero.files.errors import FileError
from ellzero.files.sparse import SparseFile, takes_holes
from ellzero.files.special import is_special
from ellzero.files.streams import STANDARD, check_removable, open_input, open_output, remove_input, temporary_file
from ellzero.jit.kernels import before_numba

SUFFIX = ".l0"
_DECODING = 8.0  # microseconds per byte, where the level is not known


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of decoding.

    Args:
        max_size: bytes of output; None for no limit.
        memory: bytes of the model; None for the memory of the largest level.
    """

    max_size: int | None
    memory: int | None

    @classmethod
    def parse(cls, max_size: str | None, memory: str | None) -> "Limits":
        """Reads both from the command line.

        Raises:
            UsageError: a text is no size.
        """
        return cls(
            max_size=None if max_size is None else num_bytes(max_size),
            memory=None if memory is None else num_bytes(memory),
        )


def run_compress(options: Compress) -> int:
    """Compresses files; returns the exit status.

    Raises:
        UsageError: options contradict each other.
    """
    check_outputs(options)
    memory = None if options.memory is None else num_bytes(options.memory)
    if not 1 <= options.level <= 9:
        raise UsageError(f"level {options.level}: levels are 1 (fast) to 9 (small)")
    files, status = options.files, 0
    if options.recursive and files:
        files, status = files_within(files, lambda name: not has_suffix(name, options.suffix))
        if not files:
            return status
    if len(files) > 1 and to_standard(options):
        raise UsageError("compressed files are not joined: give one file with -c, or leave -c out")
    return max(status, for_each_file(files, lambda file: compress_file(file, options, memory)))


def run_decompress(options: Decompress) -> int:
    """Decompresses files; returns the exit status.

    Raises:
        UsageError: options contradict each other.
    """
    check_outputs(options)
    limits = Limits.parse(options.max_size, options.memory)
    return for_each_compressed(options, lambda file: decompress_file(file, options, limits))


def run_cat(options: Cat) -> int:
    """Decompresses files to standard output; returns the exit status."""
    return run_decompress(
        Decompress(
            files=options.files,
            stdout=True,
            memory=options.memory,
            max_size=options.max_size,
            recursive=options.recursive,
            suffix=options.suffix,
            quiet=options.quiet,
            verbose=options.verbose,
        )
    )


def run_test(options: Verify) -> int:
    """Decodes files and writes nothing; returns the exit status."""
    limits = Limits.parse(options.max_size, options.memory)
    check_suffix(options.suffix)
    return for_each_compressed(options, lambda file: verify_file(file, options, limits))


def to_standard(options: Compress | Decompress) -> bool:
    """Tells whether the output goes to standard output."""
    return options.stdout or (options.output is not None and str(options.output) == STANDARD)


def check_outputs(options: Compress | Decompress) -> None:
    """Refuses options that would lose data.

    Raises:
        UsageError: one name for several outputs, or an input to remove whose output is not a file.
    """
    check_suffix(options.suffix)
    if options.recursive and options.output is not None and not to_standard(options):
        raise UsageError(f"-o {options.output} names one output for all files of a folder: leave it out, or -r")
    if options.stdout and options.output is not None and str(options.output) != STANDARD:
        raise UsageError("-c and -o name two outputs: give one of them")
    if options.output is not None and not to_standard(options) and len(options.files) > 1:
        raise UsageError(f"-o {options.output} names one output for {len(options.files)} files: leave it out")
    if options.rm and options.keep:
        raise UsageError("--rm and -k contradict each other: give one of them")
    if options.rm and to_standard(options):
        raise UsageError("--rm would remove files whose output went to standard output: leave one of them out")


def check_suffix(suffix: str) -> None:
    """Checks a suffix for names.

    Raises:
        UsageError: names cannot end in it.
    """
    if not suffix or os.sep in suffix or (os.altsep or os.sep) in suffix:
        raise UsageError(f"--suffix {suffix}: expected the end of a name, such as .l0, without {os.sep}")


def has_suffix(name: str, suffix: str) -> bool:
    """Tells whether a file is compressed by its name: it ends in the suffix, or in .l0."""
    return _ending(name, suffix) is not None


def for_each_compressed(options: Decompress | Verify | List, job: Callable[[Path], None]) -> int:
    """Runs a job on every file that is named, and with -r on the compressed ones in folders; returns the exit status."""
    files, status = options.files, 0
    if options.recursive and files:
        files, status = files_within(files, lambda name: has_suffix(name, options.suffix))
        if not files:
            return status
    return max(status, for_each_file(files, job))


class Prefixed:
    """A file whose first bytes were read already, as a pipe cannot be rewound.

    Args:
        prefix: the bytes that were read.
        file: the rest.
    """

    def __init__(self, prefix: bytes, file: Source) -> None:
        self._prefix, self._file = prefix, file

    def read(self, size: int, /) -> bytes:
        """Reads at most `size` bytes; none only at the end."""
        if not self._prefix:
            return self._file.read(size)
        taken, self._prefix = self._prefix[:size], self._prefix[size:]
        return taken


def compress_file(source: Path, options: Compress, memory: int | None) -> None:
    """Compresses a file, and decodes the result again before it gets its name.

    Raises:
        OSError: a file is missing, in the way, or cannot be written.
        FormatError: what was written does not decode to what was read; no output stays.
    """
    ending = _ending(source.name, options.suffix)
    if ending is not None and not options.force:
        raise FileError(f"{source} ends in {ending} already: -f compresses it once more", file=source)
    output = _output(source, options) or _archive_name(source, options.suffix)
    started = time.monotonic()
    with (
        _removing(source, output, options) as removable,
        open_input(source) as reader,
        open_output(output, source=source, force=options.force, keep=True) as writer,
        _readable(writer, verify=options.verify) as (sink, copy),
    ):
        removable(reader)
        original, size = _encode(reader, sink, source, options, memory)
        if copy is not None:
            writer.flush()
            copy.seek(0)
            _verify(copy, original, source, options, memory)
    summary = f"{original.size:,} -> {size:,} bytes"
    if original.size:
        summary += f" ({100 * size / original.size:.2f} %, {8 * size / original.size:.3f} bits per byte)"
    _report(options, source, output, summary + (", verified" if options.verify else ""), original.size, started)


def decompress_file(source: Path, options: Decompress, limits: Limits) -> None:
    """Decompresses a file.

    Raises:
        OSError: a file is missing, in the way, or cannot be written.
        FormatError: the file is damaged, holds something else, or needs more than allowed; no output file stays.
    """
    output = _output(source, options) or _original_name(source, options.suffix)
    started = time.monotonic()
    with (
        _removing(source, output, options) as removable,
        open_input(source, terminal=False) as reader,
        open_output(output, source=source, force=options.force, terminal=True, keep=True) as writer,
    ):
        removable(reader)
        # What can be read back is a file of its own, not standard output or what else stands there.
        holes = not options.no_sparse and (options.sparse or writer.readable()) and takes_holes(writer)
        sink = SparseFile(writer) if holes else writer
        size = _decode(reader, sink, source, limits, quiet=options.quiet)
        if isinstance(sink, SparseFile):
            sink.finish()
    _report(options, source, output, f"{size:,} bytes", size, started)


def verify_file(source: Path, options: Verify, limits: Limits) -> None:
    """Decodes a file and writes nothing.

    Raises:
        OSError: the file is missing or cannot be read.
        FormatError: the file is damaged, holds something else, or needs more than allowed.
    """
    with open_input(source, terminal=False) as file:
        start = file.read(len(MAGIC) + 2)
        reader = file if file.seekable() else Prefixed(start, file)
        if file.seekable():
            file.seek(0)
        if start[:4] == MAGIC and start[5:] == bytes((Kind.NETWORK,)):
            from ellzero.codec.network.network_file import read_network

            max_bytes = DEFAULT_LIMIT if limits.max_size is None else limits.max_size
            what = f"a network of {sum(1 for _ in read_network(reader, max_bytes=max_bytes))} tensors"
        else:
            what = f"{_decode(reader, None, source, limits, quiet=options.quiet):,} bytes"
    if not options.quiet:
        say(f"{shown(source)}: OK" + (f", {what}" if options.verbose else ""))


def _encode(reader: BinaryFile, sink: Sink, source: Path, options: Compress, memory: int | None) -> tuple[Original, int]:
    # Some files of the system say that they are empty and are not.
    size = _size(reader) or None
    expected = model_for(options.level, size, memory).microseconds_per_byte
    tally = Tally()
    before_numba(skip_linear_algebra)
    say_compiling(quiet=options.quiet)
    with Bar(f"compressing {shown(source)}", size, expected=expected, hidden=options.quiet) as bar:
        encoder = ByteEncoder(sink, level=options.level, size=size, memory=memory, report=bar.update)
        if size is not None:
            encoder.look_for_copies(map_file(reader, size))
        while piece := reader.read(BLOCK):
            tally.update(piece)
            encoder.write(piece)
        return tally.original, encoder.finish()


def _verify(copy: Source, original: Original, source: Path, options: Compress, memory: int | None) -> None:
    expected = model_for(options.level, original.size, memory).microseconds_per_byte
    tally = Tally()
    with Bar(f"verifying {shown(source)}", original.size, expected=expected, hidden=options.quiet) as bar:
        done = 0
        try:
            for block in decode_blocks(copy, max_size=None):
                tally.update(block)
                done += len(block)
                bar.update(done)
            if tally.original != original:
                raise FormatError("other bytes came back")
        except FormatError as error:
            raise FormatError(
                f"{shown(source)}: what was written does not decode to what was read ({error}): memory or disk may be faulty; "
                "the input is as it was, and the output is not to be used",
                file=source,
            ) from error


def _decode(reader: Source, writer: Sink | None, source: Path, limits: Limits, *, quiet: bool) -> int:
    done = 0
    hidden = quiet or not sys.stderr.isatty()
    total = None if hidden else _announced(reader)
    before_numba(skip_linear_algebra)
    say_compiling(quiet=quiet)
    with Bar(f"decoding {shown(source)}", total, expected=_DECODING, hidden=hidden) as bar:
        for block in decode_blocks(reader, max_size=limits.max_size, memory=limits.memory):
            if writer is not None:
                writer.write(block)
            done += len(block)
            bar.update(done)
    return done


def _announced(reader: Source) -> int | None:
    """Returns the size of the original, which stands at the end of the file; None where the file cannot be rewound or is damaged."""
    if not isinstance(reader, io.BufferedReader) or not reader.seekable():
        return None
    start = reader.tell()
    try:
        container = ContainerReader(reader, max_section=2 * BLOCK)
        container.expect(Kind.DATA)
        for _ in container.sections(tuple(DataSection)):
            pass
        return container.original.size
    except FormatError:
        return None
    finally:
        reader.seek(start)


def skip_linear_algebra() -> None:
    """Keeps numba from importing scipy.linalg, which takes a fifth of a second and multiplies matrices, which no kernel does."""
    modules: dict[str, Any] = sys.modules
    if "numba.np.arraymath" in modules or "scipy.linalg" in modules:
        return
    modules["scipy.linalg"] = None
    try:
        import_module("numba.np.arraymath")
    finally:
        del modules["scipy.linalg"]


@contextmanager
def _removing(source: Path, output: Path, options: Compress | Decompress) -> Generator[Callable[[BinaryFile], None], None, None]:
    """Removes the input at the end, if asked to. Yields a function that is called with the opened input before it is read."""
    opened: list[os.stat_result] = []
    if options.rm:
        check_removable(source, force=options.force)
    yield lambda reader: opened.append(os.fstat(reader.fileno())) if options.rm else None
    if opened:
        remove_input(source, output, opened[0])


@contextmanager
def _readable(writer: BinaryFile, *, verify: bool) -> Generator[tuple[Sink, BinaryFile | None], None, None]:
    """Yields a file to write to, and a file from which the same bytes can be read afterwards; None where nobody asks for it."""
    if not verify or writer.readable():
        yield writer, writer if verify else None
        return
    with temporary_file(remedy="TMPDIR names another folder, --no-verify needs none") as copy:
        yield _Both(writer, copy), copy


class _Both:
    """Writes to two files."""

    def __init__(self, first: Sink, second: Sink) -> None:
        self._first, self._second = first, second

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Writes all of `data`."""
        self._first.write(data)
        return self._second.write(data)


def _output(source: Path, options: Compress | Decompress) -> Path | None:
    """Returns the output that the command line names; None where the name of the input decides."""
    if to_standard(options) or (str(source) == STANDARD and options.output is None):
        return Path(STANDARD)
    return options.output


def _archive_name(source: Path, suffix: str) -> Path:
    if is_special(source):
        raise FileError(f"{source} is no regular file: name its output with -o, or write to standard output with -c", file=source)
    return source.with_name(source.name + suffix)


def _original_name(source: Path, suffix: str) -> Path:
    ending = _ending(source.name, suffix)
    if ending is None:
        raise FileError(f"{source} does not end in {suffix}: name its output with -o, or write to standard output with -c", file=source)
    return source.with_name(source.name.removesuffix(ending))


def _ending(name: str, suffix: str) -> str | None:
    """Returns what a compressed file's name ends in; None where it is none. What is nothing but an ending is a name."""
    return next((ending for ending in (suffix, SUFFIX) if name.endswith(ending) and name != ending), None)


def _size(file: BinaryFile) -> int | None:
    """Returns the size of a file on disk; None for pipes and the like."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _report(options: Compress | Decompress, source: Path, output: Path, what: str, size: int, started: float) -> None:
    """Prints the sizes and the speed, if asked to, or if stderr is a terminal and the output a file."""
    if options.quiet or not (options.verbose or (sys.stderr.isatty() and str(output) != STANDARD)):
        return
    rate = size / 1000 / max(time.monotonic() - started, 1e-3)
    target = "standard output" if str(output) == STANDARD else str(output)
    say(f"{shown(source)} -> {target}: {what}, {rate:,.0f} kB/s")
