import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ellzero


@pytest.mark.parametrize("name", ellzero.__all__)
def test_every_public_name_resolves(name):
    assert getattr(ellzero, name) is not None


@pytest.mark.parametrize("name", ellzero._NAMESPACES)
def test_every_namespace_is_a_room_whose_names_resolve(name):
    room = getattr(ellzero, name)
    assert room is importlib.import_module(f"ellzero.{name}")
    assert [inner for inner in room.__all__ if getattr(room, inner, None) is None] == []
    assert name in dir(ellzero)


def test_the_stub_lists_the_same_names():
    stub = Path(ellzero.__file__).with_suffix(".pyi").read_text()
    assert sorted({*re.findall(r"(\w+) as \1\b", stub), "__version__"}) == sorted([*ellzero.__all__, *ellzero._NAMESPACES])
    for home, names in re.findall(r"^from (\S+) import \(?([^)\n]*(?:\n[^)]*)*?)\)?$", stub, re.MULTILINE):
        for name in re.findall(r"(\w+) as", names):
            assert getattr(importlib.import_module(home), name) is getattr(ellzero, name)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        ellzero.nonsense  # noqa: B018


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)


def test_importing_the_package_and_its_torch_free_parts_imports_no_torch():
    done = run(
        "import sys; sys.modules['torch'] = None; import ellzero as lz; lz.records.Record, lz.records.read_lines, lz.plots.plot_curves;"
        " print(lz.__version__)"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ellzero.__version__


def test_without_torch_the_error_names_the_extra():
    done = run("import sys; sys.modules['torch'] = None; import ellzero as lz; lz.sparsify")
    assert done.returncode == 1
    assert "ellzero[torch]" in done.stderr


def test_there_are_few_enough_public_names_to_read_through():
    assert len(ellzero.__all__) <= 75
