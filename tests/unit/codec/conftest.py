"""What tests of the codec share."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def source_environment() -> dict[str, str]:
    """The environment of a process that imports this source tree."""
    source = str(Path(__file__).parents[3] / "src")
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))}
