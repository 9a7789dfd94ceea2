"""`ellzero inspect`: what a network file holds."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Shows what a network file holds: tensors with their shapes and densities, and where its bytes go."""

    file: tyro.conf.Positional[Path]
    """The .l0 file, or - for standard input."""
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print JSON."""
    max_size: Annotated[str, tyro.conf.arg(metavar="BYTES")] = "1G"
    """The most bytes that one tensor may take in memory; K, M and G after a number are powers of 1024."""

    def run(self) -> None:
        """Runs the command.

        Raises:
            ValueError: the file is damaged, or holds no network.
            OSError: the file is missing or cannot be read.
        """
        from ellzero.archive.pack import contents
        from ellzero.cli.arguments import num_bytes
        from ellzero.cli.jobs.several import naming
        from ellzero.files.streams import open_input

        max_size = num_bytes(self.max_size)
        with naming(self.file), open_input(self.file, terminal=False) as file:
            read = contents(file, max_size=max_size)
        groups, found, size = read.group_bytes, read.layers, read.file_bytes
        own = [layer for layer in found if layer.tied_to is None]
        numbers = sum(math.prod(layer.shape) for layer in own)
        nonzeros = sum(layer.nonzeros for layer in own)
        if self.as_json:
            sections = {"groups": groups, "frame": size - sum(groups)}
            totals = {"file_bytes": size, "scalars": numbers, "nonzeros": nonzeros, "bits_per_scalar": 8 * size / max(numbers, 1)}
            print(json.dumps({**totals, "bytes": sections, "tensors": [asdict(layer) for layer in found]}))
            return
        from rich.console import Console
        from rich.measure import Measurement
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for heading in ("tensor", "type", "shape", "numbers", "not zero", "density", "bytes", "bits a number"):
            table.add_column(heading, justify="left" if heading in {"tensor", "type", "shape"} else "right")
        for layer in found:
            count = math.prod(layer.shape)
            shape = " x ".join(map(str, layer.shape)) or "scalar"
            if layer.tied_to is not None:
                table.add_row(layer.name, layer.dtype, shape, "", f"is {layer.tied_to}", "", "", "")
            else:
                density = f"{100 * layer.nonzeros / count:.2f} %" if count else ""
                bits = f"{8 * layer.coded_bytes / count:.2f}" if count else ""
                table.add_row(layer.name, layer.dtype, shape, f"{count:,}", f"{layer.nonzeros:,}", density, f"{layer.coded_bytes:,}", bits)
        console = Console()
        # Names are not cut: where the terminal is narrower than the table, its lines wrap.
        console.width = max(console.width, Measurement.get(console, console.options.update(max_width=1 << 14), table).maximum)
        console.print(table, highlight=False)
        bits = f"{8 * size / numbers:.3f} bits a number" if numbers else "no numbers"
        console.print(
            f"{size:,} bytes: {sum(groups):,} in {len(groups)} group{'s' * (len(groups) != 1)} of tensors, {size - sum(groups)} around "
            f"them; {nonzeros:,} of {numbers:,} numbers not zero; {bits}",
            highlight=False,
            soft_wrap=True,
        )
