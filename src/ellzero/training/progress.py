"""How a run shows its progress: a bar on a terminal, and a function that is called after every epoch."""

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress as Bar, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ellzero.training.plan import Stage
from ellzero.training.task import Epoch


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How a run shows its progress.

    Attributes:
        bar: whether a bar is shown where stderr is a terminal.
        on_epoch: called with the figures of every epoch.
    """

    bar: bool = True
    on_epoch: Callable[[Epoch], None] | None = None


class ProgressBar:
    """Shows stage, loss and non-zeros on stderr while a run goes on; silent where stderr is not a terminal."""

    def __init__(self, shown: bool) -> None:
        console = Console(stderr=True)
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (shown and console.is_terminal),
        )
        self.task: TaskID | None = None
        self.stage: Stage | None = None

    def __enter__(self) -> "ProgressBar":
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.stop()

    def batch(self, stage: Stage, done: int, total: int) -> None:
        """Moves the bar; a new stage begins a new bar."""
        if self.bar.disable:
            return
        if stage is not self.stage or self.task is None:
            if self.task is not None:
                self.bar.remove_task(self.task)
            self.stage, self.task = stage, self.bar.add_task(stage.name, total=total, state="")
        self.bar.update(self.task, completed=done, total=total)

    def epoch(self, entry: Epoch) -> None:
        """Shows the figures of an epoch beside the bar."""
        if self.bar.disable or self.task is None:
            return
        error = "" if entry.valid_error is None else f"  error {100 * entry.valid_error:.2f} %"
        self.bar.update(self.task, state=f"loss {entry.train_loss:.4f}{error}  non-zeros {entry.nonzeros:,}")
