"""Damaged network files, read in a process of its own whose memory is limited: an error that says so, or no harm."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from child_processes import environment

HERE = Path(__file__).parent


def damage(command: str, argument: int) -> Any:
    line = [sys.executable, str(HERE / "damage_networks.py"), command, str(argument)]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_byte_flipped_in_three_files_is_an_error():
    found = damage("flips", 1)
    assert found["count"] > 1500
    assert found["harmless"] == 0
    assert found["messages"] > 5


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_mutated_networks_are_clean_errors_or_no_harm_in_bounded_time_and_memory(count: int):
    found = damage("mutations", count)
    assert found["count"] == count
    assert found["messages"] > count / 100
    assert found["limited"] == sys.platform.startswith("linux")
    assert found["slowest"] < 2
