"""Archives that were made once and are kept: what they hold comes back, whatever the encoder does by now.

Format 0 is not released and may change. When it does, `GENERATE_EXPECTED=1 python -m pytest tests/end_to_end/test_kept_archives.py` makes
the files anew; from format 1 on files may be added and none may be changed.
"""

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from child_processes import environment
from ellzero.archive._compress import compress
from ellzero.archive.load import load_file
from ellzero.cli.jobs.listing import Data, look

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "archives"
WORDS = b"ten green bottles were hanging on the wall and if one should fall there would be no more of them\n".split(b" ")
TEXT = b" ".join(random.Random(11).choices(WORDS, k=200))
CODE = b"".join(b"\x55\x8b\xec\xe8" + (5000 - 97 * n).to_bytes(4, "little", signed=True) + b"\x5d\xc3" for n in range(80))
RECORDS = b"".join(n.to_bytes(4, "little") + bytes((n % 7, 0, 255, 9)) + b"name%04d" % (n % 50) for n in range(80))
NOISE = random.Random(11).randbytes(300)

SECTIONS = b"\n".join(b"Verse %d\n" % n + TEXT[90 * n : 90 * n + 90] + b"\n" for n in range(9))

# File -> its level and what it was made of, which nothing but GENERATE_EXPECTED=1 compresses, where there is no such file yet. What level 9
# makes of text has other contexts now than that of text-9.l0.
MADE_OF = {
    "text-1.l0": (1, TEXT),
    "text-5.l0": (5, TEXT),
    "text-9.l0": (9, TEXT),
    "sections-9.l0": (9, SECTIONS),
    "code-1.l0": (1, CODE),
    "wide-5.l0": (5, RECORDS),
    "stored-5.l0": (5, NOISE),
    "empty-5.l0": (5, b""),
    "run-5.l0": (5, TEXT[:300] + bytes(40_000) + TEXT[100:400]),
}
SHA256 = {
    "text-1.l0": "394872e2491216da3f6a67d9d5bb0417c397d67429d51b568a671952da6fdbd1",
    "text-5.l0": "394872e2491216da3f6a67d9d5bb0417c397d67429d51b568a671952da6fdbd1",
    "text-9.l0": "394872e2491216da3f6a67d9d5bb0417c397d67429d51b568a671952da6fdbd1",
    "sections-9.l0": "385af1ac547985c40fd914167756e335fb9a211013af1da7ddfa20d1f33be23d",
    "code-1.l0": "1f50262fd3f807979a2948fc0111d4558f24577ff598351b8cafdecccb30be95",
    "wide-5.l0": "ddc77564d2d34bc7f22644646a86c7183a7fbf5d0636d8f835a99934d732e7b1",
    "stored-5.l0": "6168c76c0f5a4df7e0ebdb05d9d5aa36b994577884c82545823f081511a61c97",
    "empty-5.l0": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "run-5.l0": "369b2420d45bde7078836d642291047fb6194ba21c4a2249f59010155b2f5c48",
}


@pytest.fixture(scope="module", autouse=True)
def made_on_request() -> None:
    if os.environ.get("GENERATE_EXPECTED") == "1":
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name, (level, data) in MADE_OF.items():
            if not (FOLDER / name).exists():
                (FOLDER / name).write_bytes(compress(data, level=level))


def test_files_story_16_archives_of_before_are_decoded():
    line = [sys.executable, str(Path(__file__).with_name("decode_archives.py")), str(FOLDER)]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == SHA256


def test_each_is_of_the_kind_that_its_name_says():
    assert {name: hashlib.sha256(data).hexdigest() for name, (_, data) in MADE_OF.items()} == SHA256
    assert {path.name for path in FOLDER.iterdir()} == set(SHA256)
    for path in FOLDER.iterdir():
        entry = look(path)
        assert isinstance(entry, Data)
        assert entry.level == (None if path.name == "empty-5.l0" else MADE_OF[path.name][0])
        assert entry.stored_blocks == path.name.startswith("stored")
        wide = path.name != "empty-5.l0" and path.read_bytes()[8] & 16 > 0
        assert wide == path.name.startswith(("wide", "stored"))
        assert (path.name != "empty-5.l0" and path.read_bytes()[8] & 32 > 0) == path.name.startswith("sections")
        assert path.stat().st_size < 400


# Networks as files: SHA-256 over the names and bytes of their tensors, in the order of the names, first 32 letters.
NETWORKS = {
    "digits.l0": "c0b41e8852facaf7230d08c583f4b0e6",
    "lenet-5-1196.l0": "49804bb780f3a6b3fd38b37554271670",
    "lenet-5-1475.l0": "fc28450f44d07747a5ce08a065686309",
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_kept_network_comes_back(name: str):
    tensors = load_file(ROOT / "tests" / "data" / "networks" / name)
    digest = hashlib.sha256()
    for tensor in sorted(tensors):
        digest.update(tensor.encode())
        digest.update(tensors[tensor].numpy().tobytes())
    assert digest.hexdigest()[:32] == NETWORKS[name]
