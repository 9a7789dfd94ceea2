"""What tests of the codec share."""

import pytest

from child_processes import environment


@pytest.fixture
def source_environment() -> dict[str, str]:
    """The environment of a process that imports this source tree."""
    return environment()
