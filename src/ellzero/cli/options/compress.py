"""Options of `ellzero compress`, `decompress`, `cat` and `test`: files in and out, as xz and zstd have them."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from ellzero.cli.options.fields import Files, Force, Keep, Name, Quiet, Recursive, Remove, Size, Stdout, Suffix, Verbose


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
    """1 is fast and 9 small; -1 to -9 for short, --fast is -1, --best -9. Decompression takes as long as compression."""
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
    recursive: Recursive = False
    """Compress all files in folders that do not have the suffix yet."""
    suffix: Suffix = ".l0"
    """What is added to the name, in place of .l0."""
    quiet: Quiet = False
    """Print nothing but errors."""
    verbose: Verbose = False
    """Print a line about every file."""


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
    sparse: tyro.conf.FlagCreatePairsOff[bool] = False
    """Leave holes for long runs of zeros also in a regular file behind standard output, as is done in files of their own."""
    no_sparse: tyro.conf.FlagCreatePairsOff[bool] = False
    """Leave no holes."""
    recursive: Recursive = False
    """Decompress all files in folders that have the suffix."""
    suffix: Suffix = ".l0"
    """What names end in besides .l0."""
    quiet: Quiet = False
    """Print nothing but errors."""
    verbose: Verbose = False
    """Print a line about every file."""


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
    recursive: Recursive = False
    """Decompress all files in folders that have the suffix."""
    suffix: Suffix = ".l0"
    """What names end in besides .l0."""
    quiet: Quiet = False
    """Print nothing but errors."""
    verbose: Verbose = False
    """Print a line about every file."""


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Decodes files, compressed data or networks, and compares their hashes and checks; writes nothing and changes nothing."""

    files: Files = ()
    """The files; - is standard input."""
    memory: Size = None
    """Refuse a file that needs more memory, such as 200M."""
    max_size: Size = None
    """Refuse a file that holds more bytes, or a network with a larger tensor (1G, unless given)."""
    recursive: Recursive = False
    """Test all files in folders that have the suffix."""
    suffix: Suffix = ".l0"
    """What names end in besides .l0."""
    quiet: Quiet = False
    """Print nothing but errors."""
    verbose: Verbose = False
    """Print how much was decoded."""
