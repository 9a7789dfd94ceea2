"""What every test shares: shapes checked at run time, one thread, seeds, the folder of real data."""

import os
from pathlib import Path

import pytest

# The hook must be in place before the first import of ellzero. JAXTYPING_DISABLE=1 runs the tests without the checks.
if os.environ.get("JAXTYPING_DISABLE", "0").lower() not in {"1", "true"}:
    import jaxtyping

    jaxtyping.install_import_hook("ellzero", "shape_checks.checker")

import torch
from hypothesis import settings

from child_processes import environment

# Wall-clock deadlines fail on a busy machine; the same examples every time make a failure reproducible.
settings.register_profile("ellzero", deadline=None, max_examples=30, derandomize=True)
# `make slow` looks for new ones, and says how to repeat what it finds.
settings.register_profile("random", deadline=None, max_examples=200, derandomize=False, print_blob=True)
settings.load_profile("ellzero")

# Small products are slower with two threads than with one, and xdist already runs a process a core.
torch.set_num_threads(1)


@pytest.fixture
def seed() -> int:
    """The seed of a test that needs one and does not care which."""
    return 20250517


@pytest.fixture(params=[0, 1, 2])
def seeds(request: pytest.FixtureRequest) -> int:
    """Three seeds, for behaviour that must not depend on luck."""
    return request.param


@pytest.fixture
def generator(seed: int) -> torch.Generator:
    """A seeded generator of random tensors."""
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches the tests' own type checks off, to see what a user sees."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)


@pytest.fixture
def data_directory() -> Path:
    """The folder of real data sets that ELLZERO_DATA names; the test is skipped without it."""
    named = os.environ.get("ELLZERO_DATA")
    if not named:
        pytest.skip("ELLZERO_DATA is not set: it names the folder of real data sets")
    folder = Path(named)
    assert folder.is_dir(), f"ELLZERO_DATA names {named}, which is no folder"
    return folder


@pytest.fixture
def source_environment() -> dict[str, str]:
    """The environment of a process that imports this source tree."""
    return environment()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test that asks for real data, so that `-m 'not data'` leaves them out."""
    for item in items:
        if "data_directory" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.data)
