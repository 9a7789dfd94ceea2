"""What commands say while they work: on stderr, so that standard output is for results alone."""

import sys


def say(text: str) -> None:
    """Prints one line to stderr."""
    print(text, file=sys.stderr)
