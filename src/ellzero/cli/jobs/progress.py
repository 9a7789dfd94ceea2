"""What commands print to stderr while they work: lines, and a progress bar on a terminal. Standard output is for results alone."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from ellzero.files.errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress


def say(text: str) -> None:
    """Prints one line to stderr."""
    print(printable(text), file=sys.stderr)


class Bar:
    """A line on stderr with speed and time left, if stderr is a terminal.

    Args:
        label: what is being done, and to which file.
        total: the number of bytes to go through; None where that is not known.
        expected: microseconds per byte that are expected, for the time left before there is anything to measure.
        hidden: whether nothing is shown in any case.
    """

    def __init__(self, label: str, total: int | None, *, expected: float, hidden: bool) -> None:
        self._total, self._expected = total, expected
        self._started = time.monotonic()
        self._progress: Progress | None = None
        if not hidden and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console
            from rich.markup import escape

            columns = (progress.TextColumn(escape(printable(label))), progress.BarColumn(), progress.TextColumn("{task.fields[pace]}"))
            self._progress = progress.Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task("", total=total, pace=pace(0, total, 0, expected))

    def update(self, done: int) -> None:
        """Shows how many bytes are done."""
        if self._progress is not None:
            seconds = time.monotonic() - self._started
            self._progress.update(self._task, completed=done, pace=pace(done, self._total, seconds, self._expected), refresh=True)

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
