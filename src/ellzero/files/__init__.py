"""Files: written whole or not at all, standard streams, and errors that name a file and say what to do."""

from ellzero.files.errors import FileError
from ellzero.files.whole import replacing

__all__ = ["FileError", "replacing"]
