"""A process that compresses goes on with whatever else it does."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[4] / "benchmarks" / "responsive.py"


@pytest.mark.slow
def test_a_thread_is_never_stopped_for_long(source_environment: dict[str, str]):
    done = subprocess.run([sys.executable, SCRIPT, "200000"], env=source_environment, capture_output=True, text=True, check=True)
    # Milliseconds beyond the 5 that the thread sleeps; it is 50 on a machine that does nothing else.
    assert float(done.stdout.split()[-2]) < 500
