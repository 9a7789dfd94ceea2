"""A decoder in a process of its own, which gets only archives: a folder of them in, a line of JSON out. It cannot import torch."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

sys.modules["torch"] = None  # type: ignore[assignment]  # importing it raises

from ellzero.archive._compress import decompress  # noqa: E402


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of what each archive holds, or what is wrong with it."""
    found: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        try:
            found[path.name] = hashlib.sha256(decompress(path.read_bytes())).hexdigest()
        except ValueError as error:
            found[path.name] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    result: Any = hashes(Path(sys.argv[1]))
    print(json.dumps(result))
