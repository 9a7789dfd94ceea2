"""What makes a file worth trusting: every mode decoded in another process that gets only the archive, and no damage goes unseen."""

import hashlib
import json
import os
import random
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from ellzero.archive._compress import compress
from ellzero.cli.jobs.listing import Data, look
from ellzero.codec.bytes import data_file

HERE = Path(__file__).parent
NOISE = random.Random(7).randbytes(20_000)
WORDS = [b"the", b"model", b"learns", b"what", b"comes", b"before", b"it", b"Again", b"and", b"again,", b"1997.", b"\n"]
TEXT = b" ".join(random.Random(3).choices(WORDS, k=600))
CODE = b"".join(b"\x55\x8b\xec\xe8" + (5000 - 97 * i).to_bytes(4, "little", signed=True) + b"\x5d\xc3" for i in range(200))
RECORDS = b"".join(i.to_bytes(4, "little") + bytes((i % 7, 0, 255, 9)) + b"name%04d" % (i % 50) for i in range(150))
SAMPLES = {
    "empty": b"",
    "byte": b"\x00",
    "all": bytes(range(256)),
    "run": b"z" * 3000,
    "noise": NOISE,
    "short-noise": NOISE[:900],
    "text": TEXT,
    "crlf": TEXT.replace(b"\n", b"\r\n"),
    "bad-utf8": b"\xff\xfe\x80abc\xc0\xaf" * 60,
    "code": CODE,
    "records": RECORDS,
    "packed": compress(TEXT, level=1),
}


def script(name: str, *words: object, python: Path | str = sys.executable, **more: str) -> Any:
    environment = dict(os.environ) | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH")]))
    }
    line = [str(python), str(HERE / name), *map(str, words)]
    done = subprocess.run(line, env=environment | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sections(blob: bytes) -> list[int]:
    import io

    return [section.kind for section in data_file.ContainerReader(io.BytesIO(blob)).sections(tuple(data_file.DataSection))]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder of archives of every mode, and the hashes of what they were made of."""
    folder = tmp_path_factory.mktemp("archives")
    expected: dict[str, str] = {}
    kinds: set[int] = set()

    def add(name: str, data: bytes, blob: bytes) -> None:
        (folder / name).write_bytes(blob)
        expected[name] = hashlib.sha256(data).hexdigest()
        kinds.update(sections(blob))

    for name, data in SAMPLES.items():
        add(f"{name}-1", data, compress(data, level=1))
    for level in range(2, 10):
        data = TEXT[:1500] + CODE[:500] + NOISE[:100]
        add(f"mixed-{level}", data, compress(data, level=level))
    add("little-memory", TEXT, compress(TEXT, level=1, memory=data_file.model_for(1, 1).num_bytes))
    # Smaller blocks are blocks as well: several of every kind, in one file.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "BLOCK", 20_000)
        data = TEXT + RECORDS + NOISE * 2 + CODE * 4 + NOISE[:5000]
        add("many-blocks", data, compress(data, level=1))
    # What stands twice in a file is copied, from farther back than any file reaches without saying so.
    data = random.Random(8).randbytes(70_000) + TEXT
    add("twice", data * 2, compress(data * 2, level=1))
    assert kinds == set(data_file.DataSection)
    return folder, expected


def test_every_mode_is_decoded_by_a_process_that_gets_only_the_archive(archives: tuple[Path, dict[str, str]]):
    folder, expected = archives
    assert script("decode_archives.py", folder) == expected


def test_files_story_15_two_threads_decode_the_same(archives: tuple[Path, dict[str, str]]):
    folder, expected = archives
    assert script("decode_archives.py", folder, OMP_NUM_THREADS="2", NUMBA_NUM_THREADS="2", MKL_NUM_THREADS="2") == expected


def test_files_story_15_python_without_a_compiler_decodes_the_same(tmp_path: Path):
    samples = {"text": TEXT[:100], "code": CODE[:60], "empty": b"", "noise": NOISE}
    for name, data in samples.items():
        (tmp_path / name).write_bytes(compress(data, level=1))
    expected = {name: hashlib.sha256(data).hexdigest() for name, data in samples.items()}
    assert script("decode_archives.py", tmp_path, NUMBA_DISABLE_JIT="1") == expected


@pytest.mark.slow
def test_files_story_16_another_numpy_and_numba_decode_the_same(archives: tuple[Path, dict[str, str]], tmp_path: Path):
    # The oldest of both that pyproject.toml allows, and nothing else, with a cache of their own.
    venv.create(tmp_path / "old", with_pip=True)
    python = tmp_path / "old" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    line = [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "numpy==1.26.4", "numba==0.61.0"]
    installed = subprocess.run(line, capture_output=True, text=True, check=False)
    if installed.returncode and (sys.version_info >= (3, 13) or "Retrying" in installed.stderr):
        pytest.skip("this Python is newer than numpy 1.26.4 and numba 0.61.0, or no package index can be reached")
    assert installed.returncode == 0, installed.stderr
    asked = "import numba, numpy; print(numpy.__version__, numba.__version__)"
    assert subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout == "1.26.4 0.61.0\n"
    folder, expected = archives
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "LOCALAPPDATA": str(tmp_path / "cache")}
    assert script("decode_archives.py", folder, python=python, **cache) == expected


def test_every_byte_flipped_is_an_error():
    found = script("damage_archives.py", "flips", 1)
    assert found["count"] > 300
    assert found["sound"] == 0
    assert found["messages"] > 10


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_mutated_archives_are_clean_errors_in_bounded_time_and_memory(count: int):
    found = script("damage_archives.py", "mutations", count)
    assert found["count"] == count
    assert found["messages"] > count / 100
    assert found["slowest"] < 2
    # Beside the model: the block, decoded and in pieces, and the container's.
    assert found["growth"] <= found["need"] + 8 * found["block"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not say how much memory a process has used")
@pytest.mark.parametrize(("level", "size"), [(1, 1_200_000), (5, 60_000), (9, 20_000)])
def test_decoding_holds_no_more_memory_than_list_states(tmp_path: Path, level: int, size: int):
    data = b"".join(b"line %d of a text, of %d\n" % (i * i, i % 7) for i in range(size // 20))[:size]
    paths = [tmp_path / "small.l0", tmp_path / "large.l0"]
    for path, content in zip(paths, (data[:300], data), strict=True):
        path.write_bytes(compress(content, level=level))
    taken = script("decoding_memory.py", *paths)
    entry = look(paths[1])
    assert isinstance(entry, Data)
    assert taken <= entry.memory_bytes
    # It is no wild guess either, at the level whose model every file fills.
    assert level != 1 or taken > entry.memory_bytes / 2
