"""What the file commands do without, because its import takes a tenth of a second or more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {
    "torch",
    "scipy",
    "matplotlib",
    "rich",
    "safetensors",
    "asyncio",
    "unittest",
    "ellzero.cli.options.sparsify",
    "ellzero.cli.jobs.sparsify",
    "ellzero.cli.jobs.bench",
}


def imported(*words: str) -> set[str]:
    """The modules that a command imports."""
    script = f"import sys; from ellzero.cli.main import main; assert main({list(words)}) == 0; print(*sys.modules)"
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT / "src")}
    return set(subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("level", [1, 9])
def test_compressing_and_decompressing_import_no_more_than_they_need(level: int, tmp_path: Path):
    original, packed, copy = tmp_path / "a", tmp_path / "a.l0", tmp_path / "b"
    original.write_bytes(b"to be or not to be " * 40)
    heavy = HEAVY | ({"numba"} if sys.platform == "linux" else set())
    imported("compress", f"-{level}", str(original))  # compiles where nothing is compiled yet
    assert not imported("compress", f"-{level}f", str(original)) & heavy
    assert not imported("decompress", str(packed), "-o", str(copy)) & heavy
    assert copy.read_bytes() == original.read_bytes()
