"""The size of the decoder is stated beside what it decodes, and is true."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_files_story_31_the_size_of_the_decoder_is_stated_and_true():
    script = runpy.run_path(str(ROOT / "benchmarks" / "decoder_size.py"))
    files = script["sources"]()
    names = {file.name for file in files}
    assert {"container.py", "data_file.py", "predictor.py", "rangecoder.py"} <= names
    assert not any(part in file.parts for file in files for part in ("cli", "training", "network"))
    page = " ".join((ROOT / "experiments/README.md").read_text(encoding="utf-8").split())
    said = re.search(r"sources that decoding a data file loads are ([\d,]+) bytes, ([\d,]+) as one .tar.xz", page)
    assert said is not None
    size, packed = (int(number.replace(",", "")) for number in said.groups())
    # Within a tenth, so that not every comment changes the page.
    assert abs(sum(file.stat().st_size for file in files) / size - 1) < 0.1
    assert abs(script["packed"](files) / packed - 1) < 0.1
