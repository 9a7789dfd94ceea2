"""What is wrong with a file, in one line that says what to do."""

from pathlib import Path


class FormatError(ValueError):
    """A file is no `.l0` file, damaged, of a newer version, or asks for the impossible.

    Attributes:
        file: the file that the message names; None where it names none.
    """

    def __init__(self, message: str = "", *, file: Path | None = None) -> None:
        super().__init__(message)
        self.file = file


class LimitError(FormatError):
    """A file is as it should be, or may be, but needs more than the caller allows."""


class MemoryLimitError(LimitError):
    """A file needs more memory for its model than the caller allows."""
