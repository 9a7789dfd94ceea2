"""`ellzero demo`: the whole job on a small network, in under two minutes."""

import os
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

    def run(self) -> None:
        """Runs the command.

        Raises:
            OSError: the folder holds something else than a demo, or cannot be written.
        """
        from ellzero.cli.jobs.demo import run_demo_text
        from ellzero.cli.jobs.sparsify import run_demo

        run_demo(self.output, self.seed, has_data=bool(os.environ.get("ELLZERO_DATA")))
        run_demo_text()
