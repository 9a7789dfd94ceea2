"""Options of `ellzero bench`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ellzero.cli.options.fields import Files, Json, Quiet


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Compares bytes, bits per byte, speed both ways and memory with xz, bzip2, and zstd, brotli, bzip3, PPMd and zpaq where installed.

    Every coder works on each file as a whole, in a process of its own that decodes again and compares. Compile time of ellzero is not
    counted, nor is the start of the process.
    """

    files: Files = ()
    """The files."""
    level: Annotated[str, tyro.conf.arg(metavar="1-9,...")] = "5"
    """Levels of ellzero, such as 1,5,9; or -1 -5 -9."""
    only: Annotated[str | None, tyro.conf.arg(metavar="NAME,...")] = None
    """Only these others: names as in the table, or none."""
    as_json: Json = False
    """Print JSON, everything for each file."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Draw size against speed: FILE.png and FILE.svg."""
    quiet: Quiet = False
    """Print nothing but errors on stderr."""
