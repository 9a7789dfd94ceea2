"""What processes that a test starts are given."""

import os
from pathlib import Path


def environment() -> dict[str, str]:
    """Returns the variables with which Python finds the sources of this tree before any installed package."""
    source = str(Path(__file__).parents[1] / "src")
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))}
