"""What `ellzero bench` does: files are compressed by ellzero and by the other coders that are installed."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ellzero.cli.jobs.bench_coders import OTHERS, missing
from ellzero.cli.jobs.bench_run import Result, measure
from ellzero.cli.jobs.progress import say
from ellzero.cli.options.arguments import UsageError, levels_of
from ellzero.cli.options.bench import Bench
from ellzero.files.special import is_special
from ellzero.files.streams import STANDARD


def run_bench(options: Bench) -> int:
    """Measures coders on files; returns the exit status.

    A file that cannot be read, and a coder that fails on a file, are reported, and the others go on.

    Raises:
        UsageError: no file is named, or a level or name does not exist.
        OSError: a plot cannot be written.
        ImportError: a plot is wanted without matplotlib.
    """
    if not options.files or any(str(file) == STANDARD for file in options.files):
        raise UsageError("bench compares coders on files, not on standard input: name some")
    if options.plot is not None and is_special(options.plot):
        raise UsageError(f"--plot {options.plot}: a plot is two files, FILE.png and FILE.svg: name a file, not a device or a pipe")
    levels = levels_of(options.level)
    names = list(OTHERS) if options.only is None else [name for name in options.only.split(",") if name != "none"]
    if unknown := set(names) - set(OTHERS):
        raise UsageError(f"{', '.join(sorted(unknown))}: unknown; known are {', '.join(OTHERS)}, none")
    absent = [name for name in names if missing(name)]
    coders = [f"ellzero -{level}" for level in levels] + [name for name in names if name not in absent]
    results, status = _measure(options.files, coders, quiet=options.quiet or options.as_json)
    counts = Counter(result.coder for result in results)
    # Sums are compared over the same files only.
    partial = [coder for coder in coders if results and counts[coder] < max(counts.values())]
    compared = [result for result in results if result.coder not in partial]
    if options.plot is not None and compared:
        from ellzero.plots.coders import plot_coders

        plot_coders(totals(compared), options.plot.with_suffix("") if options.plot.suffix in {".png", ".svg"} else options.plot)
    if options.as_json:
        print(json.dumps({"results": [asdict(result) for result in results], "missing": absent}, indent=2))
    elif compared:
        _show(compared, absent)
    if partial:
        say(f"compared with no other, because not every file was measured: {', '.join(partial)}")
    return status


def _measure(files: Sequence[Path], coders: Sequence[str], *, quiet: bool) -> tuple[list[Result], int]:
    """Measures every coder on every file; failures are reported, and the exit status is then 1."""
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
    for result in results:
        before = added.get(result.coder)
        if before is None:
            added[result.coder] = result
            continue
        peaks = [peak for peak in (before.memory_bytes, result.memory_bytes) if peak is not None]
        added[result.coder] = Result(
            file="total",
            coder=result.coder,
            original_bytes=before.original_bytes + result.original_bytes,
            compressed_bytes=before.compressed_bytes + result.compressed_bytes,
            compress_seconds=before.compress_seconds + result.compress_seconds,
            decompress_seconds=before.decompress_seconds + result.decompress_seconds,
            memory_bytes=max(peaks, default=None),
        )
    return list(added.values())


def _show(results: list[Result], absent: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("coder", "bytes", "bits per byte", "kB/s in", "kB/s out", "memory"):
        table.add_column(heading, justify="left" if heading == "coder" else "right", no_wrap=True)
    for result in sorted(totals(results), key=lambda total: total.compressed_bytes):
        memory = "" if result.memory_bytes is None else f"{result.memory_bytes / (1 << 20):,.0f} MiB"
        bits = "" if not result.original_bytes else f"{result.bits_per_byte:.3f}"
        table.add_row(
            result.coder, f"{result.compressed_bytes:,}", bits, f"{result.compress_rate:,.0f}", f"{result.decompress_rate:,.0f}", memory
        )
    console = Console(width=None if sys.stdout.isatty() else 120)
    coders = len(totals(results))
    files, size = len(results) // coders, sum(result.original_bytes for result in results) // coders
    console.print(f"{files} file{'s' * (files != 1)}, {size:,} bytes", highlight=False)
    console.print(table, highlight=False, markup=False)
    if absent:
        say(f"not installed: {', '.join(absent)}; pip install 'ellzero[bench]' adds them")
    if any(result.coder == "zpaq" for result in results):
        say("zpaq is the Python package of that name, method 5 in one block: a few per cent larger than the program zpaq 7.15 -m5")
