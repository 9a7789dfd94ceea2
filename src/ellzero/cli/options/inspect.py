"""Options of `ellzero inspect`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ellzero.cli.options.fields import Json


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Shows what a network file holds: tensors with their shapes and densities, and where its bytes go."""

    file: tyro.conf.Positional[Path]
    """The .l0 file, or - for standard input."""
    as_json: Json = False
    """Print JSON."""
    max_size: Annotated[str, tyro.conf.arg(metavar="BYTES")] = "1G"
    """The most bytes that one tensor may take in memory; K, M and G after a number are powers of 1024."""
