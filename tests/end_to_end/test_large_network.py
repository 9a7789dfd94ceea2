"""A network is packed and unpacked a tensor at a time, whatever the size of the file."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "large_network.py"
    spec = importlib.util.spec_from_file_location("large_network", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not say how much memory a process has used")
def test_a_network_of_300_mebibytes_takes_the_memory_of_a_few_tensors(tmp_path: Path):
    measured = benchmark().measure(tmp_path, 300, 4)
    assert measured["source_mebibytes"] > 300
    # A tensor takes 4 MiB, and some times that while it is coded.
    for command in ("pack", "unpack"):
        assert measured[f"{command}_mebibytes"] - measured["start_mebibytes"] < 60
