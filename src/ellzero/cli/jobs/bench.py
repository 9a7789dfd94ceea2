"""`ellzero bench`: files compressed by ellzero and by what else is installed, side by side."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ellzero.cli.arguments import UsageError
from ellzero.cli.jobs.bench_run import Result, measure
from ellzero.cli.jobs.messages import say
from ellzero.cli.options.compress import Files, Quiet
from ellzero.files.streams import STANDARD


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Compares bytes, bits a byte, speed both ways and memory with xz, bzip2, and zstd, brotli, bzip3, PPMd and zpaq where installed.

    Every coder works on each file as a whole, in a process of its own that decodes again and compares. Compile time of ellzero is not
    counted, nor is the start of the process.
    """

    files: Files = ()
    """The files."""
    level: Annotated[str, tyro.conf.arg(metavar="1-9,...")] = "5"
    """Levels of ellzero, such as 1,5,9; or -1 -5 -9."""
    only: Annotated[str | None, tyro.conf.arg(metavar="NAME,...")] = None
    """Only these others: names as in the table, or none."""
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print JSON, everything for each file."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Draw size against speed: FILE.png and FILE.svg."""
    quiet: Quiet = False
    """Say nothing but errors on stderr."""

    def run(self) -> int:
        """Runs the command; returns the exit status.

        A file that cannot be read, and a coder that fails on one, are said, and the others go on.

        Raises:
            UsageError: no file is named, or a level or name does not exist.
            OSError: a plot cannot be written.
            ImportError: a plot is wanted without matplotlib.
        """
        from ellzero.cli.jobs.bench_coders import OTHERS, missing

        if not self.files or any(str(file) == STANDARD for file in self.files):
            raise UsageError("bench compares coders on files, not on standard input: name some")
        levels = self.level.split(",")
        if not all(level in set("123456789") for level in levels):
            raise UsageError(f"level {self.level}: levels are 1 (fast) to 9 (small), with commas between several")
        names = list(OTHERS) if self.only is None else [name for name in self.only.split(",") if name != "none"]
        if unknown := set(names) - set(OTHERS):
            raise UsageError(f"{', '.join(sorted(unknown))}: unknown; known are {', '.join(OTHERS)}, none")
        absent = [name for name in names if missing(name)]
        coders = [f"ellzero -{level}" for level in levels] + [name for name in names if name not in absent]
        results, status = _measure(self.files, coders, quiet=self.quiet or self.as_json)
        counts = Counter(result.coder for result in results)
        # Sums are compared over the same files only.
        partial = [coder for coder in coders if results and counts[coder] < max(counts.values())]
        compared = [result for result in results if result.coder not in partial]
        if self.plot is not None and compared:
            from ellzero.plots.coders import plot_coders

            plot_coders(totals(compared), self.plot.with_suffix("") if self.plot.suffix in {".png", ".svg"} else self.plot)
        if self.as_json:
            print(json.dumps({"results": [asdict(result) for result in results], "missing": absent}, indent=2))
        elif compared:
            _show(compared, absent)
        if partial:
            say(f"compared with no other, because not every file was measured: {', '.join(partial)}")
        return status


def _measure(files: Sequence[Path], coders: Sequence[str], *, quiet: bool) -> tuple[list[Result], int]:
    """Measures every coder on every file; what fails is said, and the exit status is 1."""
    results: list[Result] = []
    status = 0
    for file in files:
        for coder in coders:
            try:
                results.append(measure(coder, file))
            except (OSError, ValueError) as error:
                say(f"ellzero: {error}")
                status = 1
                if isinstance(error, OSError):
                    break  # No coder can read it.
            else:
                if not quiet:
                    say(f"{file}: {coder}: {results[-1].compressed_bytes:,} bytes")
    return results, status


def totals(results: list[Result]) -> list[Result]:
    """Adds up the files of each coder; memory is the largest of them."""
    added: dict[str, Result] = {}
    for one in results:
        before = added.get(one.coder)
        if before is None:
            added[one.coder] = one
            continue
        peaks = [peak for peak in (before.memory_bytes, one.memory_bytes) if peak is not None]
        added[one.coder] = Result(
            file="total",
            coder=one.coder,
            original_bytes=before.original_bytes + one.original_bytes,
            compressed_bytes=before.compressed_bytes + one.compressed_bytes,
            compress_seconds=before.compress_seconds + one.compress_seconds,
            decompress_seconds=before.decompress_seconds + one.decompress_seconds,
            memory_bytes=max(peaks, default=None),
        )
    return list(added.values())


def _show(results: list[Result], absent: list[str]) -> None:
    import sys

    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("coder", "bytes", "bits a byte", "kB/s in", "kB/s out", "memory"):
        table.add_column(heading, justify="left" if heading == "coder" else "right", no_wrap=True)
    for one in sorted(totals(results), key=lambda result: result.compressed_bytes):
        memory = "" if one.memory_bytes is None else f"{one.memory_bytes / (1 << 20):,.0f} MiB"
        bits = "" if not one.original_bytes else f"{one.bits_per_byte:.3f}"
        table.add_row(one.coder, f"{one.compressed_bytes:,}", bits, f"{one.compress_rate:,.0f}", f"{one.decompress_rate:,.0f}", memory)
    console = Console(width=None if sys.stdout.isatty() else 120)
    coders = len(totals(results))
    files, size = len(results) // coders, sum(one.original_bytes for one in results) // coders
    console.print(f"{files} file{'s' * (files != 1)}, {size:,} bytes", highlight=False)
    console.print(table, highlight=False, markup=False)
    if absent:
        say(f"not installed: {', '.join(absent)}; pip install 'ellzero[bench]' adds them")
    if any(one.coder == "zpaq" for one in results):
        say("zpaq is the Python package of that name, method 5 in one block: a few per cent larger than the program zpaq 7.15 -m5")
