"""Options of `ellzero demo`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Sparsifies LeNet-300-100 on MNIST, or a small network on 8x8 digits where ELLZERO_DATA is not set; then compresses a book."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="RUN")] = Path("runs/demo")
    """The folder to write; an earlier demo in it is replaced."""
    seed: int = 0
    """Seeds the run."""
