"""`ellzero compress`, `decompress`, `cat` and `test`: files in and out, with the options of xz and zstd."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from ellzero.cli.arguments import UsageError, num_bytes
from ellzero.files.streams import STANDARD

# Types that tyro knows by itself: it checks defaults of others by a library whose import takes a fifth of the start of a command.
if TYPE_CHECKING:
    Files = tuple[Path, ...]
else:
    Files = tyro.conf.Positional[
        Annotated[
            tuple,
            PrimitiveConstructorSpec(
                nargs="*",
                metavar="[PATH [PATH ...]]",
                instance_from_str=lambda words: tuple(Path(word) for word in words),
                is_instance=lambda files: isinstance(files, tuple),
                str_from_instance=lambda files: [str(file) for file in files],
            ),
        ]
    ]
Name = Annotated[Optional[Path], tyro.conf.arg(aliases=["-o"], metavar="FILE")]  # noqa: UP045
Stdout = Annotated[bool, tyro.conf.arg(aliases=["-c", "--to-stdout"])]
Force = Annotated[bool, tyro.conf.arg(aliases=["-f"])]
Keep = Annotated[bool, tyro.conf.arg(aliases=["-k"])]
Quiet = Annotated[bool, tyro.conf.arg(aliases=["-q"])]
Verbose = Annotated[bool, tyro.conf.arg(aliases=["-v"])]
Remove = Annotated[bool, tyro.conf.arg(name="rm")]
Size = Annotated[Optional[str], tyro.conf.arg(metavar="SIZE")]  # noqa: UP045


@dataclass(frozen=True, kw_only=True)
class Compress:
    """Compresses files: FILE becomes FILE.l0, and stays unless --rm is given. Without a file, standard input to standard output."""

    files: Files = ()
    """The files; - is standard input."""
    output: Name = None
    """The file to write, for one input; - is standard output."""
    stdout: Stdout = False
    """Write to standard output (-c)."""
    level: Annotated[int, tyro.conf.arg(metavar="1-9")] = 5
    """1 is fast and 9 small; -1 to -9 for short. Decompression takes as long as compression."""
    memory: Size = None
    """The most memory that either direction may take, such as 200M."""
    force: Force = False
    """Overwrite files, compress what ends in .l0, write to a terminal."""
    keep: Keep = False
    """Keep the input, which is what happens without --rm."""
    rm: Remove = False
    """Remove an input when its output is finished and verified."""
    verify: bool = True
    """Decompress what was written and compare its hash, which takes as long again."""
    quiet: Quiet = False
    """Say nothing but errors."""
    verbose: Verbose = False
    """Say for every file what came of it."""

    def run(self) -> int:
        """Runs the command; returns the exit status.

        Raises:
            UsageError: options contradict each other.
        """
        from ellzero.cli.jobs.compress import compress_file
        from ellzero.cli.jobs.several import each

        check_outputs(self)
        memory = None if self.memory is None else num_bytes(self.memory)
        if not 1 <= self.level <= 9:
            raise UsageError(f"level {self.level}: levels are 1 (fast) to 9 (small)")
        if len(self.files) > 1 and to_standard(self):
            raise UsageError("compressed files are not joined: give one file with -c, or leave -c out")
        return each(self.files, lambda file: compress_file(file, self, memory))


@dataclass(frozen=True, kw_only=True)
class Decompress:
    """Decompresses files: FILE.l0 becomes FILE, and stays unless --rm is given. Without a file, standard input to standard output."""

    files: Files = ()
    """The files; - is standard input."""
    output: Name = None
    """The file to write, for one input; - is standard output."""
    stdout: Stdout = False
    """Write to standard output (-c)."""
    memory: Size = None
    """Refuse a file that needs more memory, such as 200M."""
    max_size: Size = None
    """Refuse a file that holds more bytes."""
    force: Force = False
    """Overwrite files."""
    keep: Keep = False
    """Keep the input, which is what happens without --rm."""
    rm: Remove = False
    """Remove an input when its output is finished."""
    quiet: Quiet = False
    """Say nothing but errors."""
    verbose: Verbose = False
    """Say for every file what came of it."""

    def run(self) -> int:
        """Runs the command; returns the exit status.

        Raises:
            UsageError: options contradict each other.
        """
        from ellzero.cli.jobs.compress import Limits, decompress_file
        from ellzero.cli.jobs.several import each

        check_outputs(self)
        limits = Limits.parse(self.max_size, self.memory)
        return each(self.files, lambda file: decompress_file(file, self, limits))


@dataclass(frozen=True, kw_only=True)
class Cat:
    """Decompresses files to standard output, one after the other."""

    files: Files = ()
    """The files; - is standard input."""
    memory: Size = None
    """Refuse a file that needs more memory, such as 200M."""
    max_size: Size = None
    """Refuse a file that holds more bytes."""
    force: Force = False
    """Nothing: accepted as zcat accepts it."""
    quiet: Quiet = False
    """Say nothing but errors."""
    verbose: Verbose = False
    """Say for every file what came of it."""

    def run(self) -> int:
        """Runs the command; returns the exit status."""
        return Decompress(
            files=self.files, stdout=True, memory=self.memory, max_size=self.max_size, quiet=self.quiet, verbose=self.verbose
        ).run()


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Decodes files, compressed data or networks, and compares their hashes and checks; writes nothing and changes nothing."""

    files: Files = ()
    """The files; - is standard input."""
    memory: Size = None
    """Refuse a file that needs more memory, such as 200M."""
    max_size: Size = None
    """Refuse a file that holds more bytes, or a network with a larger tensor (1G, unless given)."""
    quiet: Quiet = False
    """Say nothing but errors."""
    verbose: Verbose = False
    """Say how much was decoded."""

    def run(self) -> int:
        """Runs the command; returns the exit status."""
        from ellzero.cli.jobs.compress import Limits, verify_file
        from ellzero.cli.jobs.several import each

        limits = Limits.parse(self.max_size, self.memory)
        return each(self.files, lambda file: verify_file(file, self, limits))


def to_standard(options: Compress | Decompress) -> bool:
    """Whether what is written goes to standard output."""
    return options.stdout or (options.output is not None and str(options.output) == STANDARD)


def check_outputs(options: Compress | Decompress) -> None:
    """Refuses what would lose data.

    Raises:
        UsageError: one name for several outputs, or an input to remove whose output is not a file.
    """
    if options.stdout and options.output is not None and str(options.output) != STANDARD:
        raise UsageError("-c and -o name two outputs: give one of them")
    if options.output is not None and not to_standard(options) and len(options.files) > 1:
        raise UsageError(f"-o {options.output} names one output for {len(options.files)} files: leave it out")
    if options.rm and options.keep:
        raise UsageError("--rm and -k contradict each other: give one of them")
    if options.rm and to_standard(options):
        raise UsageError("--rm would remove files whose output went to standard output: leave one of them out")
