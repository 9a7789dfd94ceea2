"""The command line: `ellzero COMMAND ...`; `ellzero COMMAND --help` lists a command's options."""

from ellzero.cli.main import main

__all__ = ["main"]
