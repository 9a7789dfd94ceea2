"""What commands print to stderr while they work: lines, and a progress bar on a terminal. Standard output is for results alone."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from ellzero.files.errors import printable
from ellzero.jit.kernels import before_compiling, cache_folder

if TYPE_CHECKING:
    from rich.progress import Progress


_SHOWN_EVERY = 0.1  # seconds


def say(text: str) -> None:
    """Prints one line to stderr."""
    print(printable(text), file=sys.stderr)


def say_compiling(*, quiet: bool) -> None:
    """Has a line printed where something has to be compiled first, also where stderr is no terminal: it takes some seconds."""
    if not quiet:
        before_compiling(_tell_compiling)


def _tell_compiling(kept: bool) -> None:
    if kept:
        say("ellzero: compiling once, which takes some seconds; `ellzero warm-up` does it beforehand")
    else:
        where = f"{cache_folder()} cannot be written; NUMBA_CACHE_DIR names another folder"
        say(f"ellzero: compiling, which takes some seconds each time: {where}")


class Bar:
    """A line on stderr with speed and time left, if stderr is a terminal.

    The time before the first report is not counted in the speed: something may have been compiled, or looked for, in it.

    Args:
        label: what is being done, and to which file.
        total: the number of bytes to go through; None where that is not known.
        expected: microseconds per byte that are expected, for the time left before there is anything to measure.
        hidden: whether nothing is shown in any case.
    """

    def __init__(self, label: str, total: int | None, *, expected: float, hidden: bool) -> None:
        self._total, self._expected = total, expected
        self._first: tuple[int, float] | None = None
        self._shown = -1.0
        self._progress: Progress | None = None
        if not hidden and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console
            from rich.markup import escape

            columns = (progress.TextColumn(escape(printable(label))), progress.BarColumn(), progress.TextColumn("{task.fields[pace]}"))
            self._progress = progress.Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task("", total=total, pace=pace(0, total, 0, expected))

    def update(self, done: int) -> None:
        """Shows how many bytes are done, ten times a second at most."""
        now = time.monotonic()
        if self._first is None:
            self._first = done, now
        if self._progress is None or (now - self._shown < _SHOWN_EVERY and done != self._total):
            return
        self._shown = now
        before, started = self._first
        left = None if self._total is None else self._total - before
        speed = pace(done - before, left, now - started, self._expected)
        self._progress.update(self._task, completed=done, pace=speed, refresh=True)

    def __enter__(self) -> "Bar":
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()


def pace(done: int, total: int | None, seconds: float, expected: float) -> str:
    """Formats a speed and the time left.

    Args:
        done: bytes done so far.
        total: bytes in all; None where that is not known.
        seconds: the time that `done` took.
        expected: microseconds per byte, where nothing is done yet.
    """
    rate = done / seconds if done and seconds > 0 else 1e6 / expected
    words = [f"{rate / 1000:,.0f} kB/s" if done else f"about {rate / 1000:,.0f} kB/s"]
    if total is not None:
        minutes, left = divmod(round(max(total - done, 0) / rate), 60)
        words.append(f"{minutes}:{left:02} left")
    return ", ".join(words)
