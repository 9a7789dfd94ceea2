"""The command line: `ellzero COMMAND ...`; `ellzero COMMAND --help` lists a command's options."""

import sys

try:
    from ellzero.cli.main import l0, main
except KeyboardInterrupt:
    # Ctrl-C while it starts.
    print("ellzero: interrupted", file=sys.stderr)
    sys.exit(130)

__all__ = ["l0", "main"]
