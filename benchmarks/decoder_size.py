"""The size of the decoder of data files: `python benchmarks/decoder_size.py`.

Counted are the sources of this package that a process has loaded once it has decoded files of every kind (coded, wide, stored and
learnt), as they stand, comments and what the same files hold of the encoder included; and the same as one .tar.xz. Python, numpy and
numba are not counted. No text, dictionary or weights belong to the decoder, so that there is nothing else to count.
"""

import io
import json
import lzma
import random
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DECODE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from ellzero.codec.bytes.data_file import decode_blocks
import io
for blob in sys.stdin.read().split():
    for _ in decode_blocks(io.BytesIO(bytes.fromhex(blob)), max_size=None):
        pass
names = sorted(name for name in sys.modules if name.split(".")[0] == "ellzero")
print(json.dumps([sys.modules[name].__file__ for name in names]))
"""


def sources() -> list[Path]:
    """The files of the package that decoding loads."""
    from ellzero.archive._compress import compress

    noise = random.Random(1).randbytes(5000)
    text = b"the decoder decodes what the encoder encodes, " * 30
    blobs = [compress(text, level=1), compress(text + noise, level=6), compress(noise, level=1), compress(b"", level=1)]
    line = [sys.executable, "-c", DECODE, str(ROOT / "src")]
    done = subprocess.run(line, input="\n".join(blob.hex() for blob in blobs), stdout=subprocess.PIPE, text=True, check=True)
    return [Path(name) for name in json.loads(done.stdout)]


def packed(files: list[Path]) -> int:
    """Bytes of a .tar.xz of them, which holds no names of people and no times."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for file in files:
            entry = tarfile.TarInfo(file.relative_to(ROOT).as_posix())
            entry.size = file.stat().st_size
            tar.addfile(entry, io.BytesIO(file.read_bytes()))
    return len(lzma.compress(whole.getvalue(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    found = sources()
    for file in found:
        print(f"{file.stat().st_size:>8,}  {file.relative_to(ROOT / 'src').as_posix()}")
    plain = [ROOT / "tests" / "reference" / name for name in ("decoder.py", "byte_model.py")]
    for files, what in ((found, "the decoder"), (plain, "the decoder in Python alone, tests/reference")):
        print(f"{sum(file.stat().st_size for file in files):>8,}  bytes, {len(files)} files; as .tar.xz {packed(files):,} bytes: {what}")
