"""What `ellzero inspect` does."""

import json
import math
from dataclasses import asdict

from ellzero.archive.pack import contents
from ellzero.cli.jobs.per_file import naming_file
from ellzero.cli.options.arguments import num_bytes
from ellzero.cli.options.inspect import Inspect
from ellzero.files.errors import printable
from ellzero.files.streams import open_input


def run_inspect(options: Inspect) -> None:
    """Prints what a network file holds.

    Raises:
        ValueError: the file is damaged, or holds no network.
        OSError: the file is missing or cannot be read.
    """
    max_size = num_bytes(options.max_size)
    with naming_file(options.file), open_input(options.file, terminal=False) as file:
        read = contents(file, max_size=max_size)
    groups, layers, size = read.group_bytes, read.layers, read.file_bytes
    untied = [layer for layer in layers if layer.tied_to is None]
    numbers = sum(math.prod(layer.shape) for layer in untied)
    nonzeros = sum(layer.nonzeros for layer in untied)
    if options.as_json:
        sections = {"groups": groups, "frame": size - sum(groups)}
        totals = {"file_bytes": size, "scalars": numbers, "nonzeros": nonzeros, "bits_per_scalar": 8 * size / max(numbers, 1)}
        print(json.dumps({**totals, "bytes": sections, "tensors": [asdict(layer) for layer in layers]}))
        return
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("tensor", "type", "shape", "numbers", "not zero", "density", "bytes", "bits per number"):
        table.add_column(heading, justify="left" if heading in {"tensor", "type", "shape"} else "right")
    for layer in layers:
        count = math.prod(layer.shape)
        # Text, in which no mark-up of the table's is looked for.
        name = Text(printable(layer.name))
        shape = " x ".join(map(str, layer.shape)) or "scalar"
        if layer.tied_to is not None:
            table.add_row(name, layer.dtype, shape, "", Text(f"is {printable(layer.tied_to)}"), "", "", "")
        else:
            density = f"{100 * layer.nonzeros / count:.2f} %" if count else ""
            bits = f"{8 * layer.coded_bytes / count:.2f}" if count else ""
            table.add_row(name, layer.dtype, shape, f"{count:,}", f"{layer.nonzeros:,}", density, f"{layer.coded_bytes:,}", bits)
    console = Console()
    # Names are not cut: where the terminal is narrower than the table, its lines wrap.
    console.width = max(console.width, Measurement.get(console, console.options.update(max_width=1 << 14), table).maximum)
    console.print(table, highlight=False)
    bits = f"{8 * size / numbers:.3f} bits per number" if numbers else "no numbers"
    console.print(
        f"{size:,} bytes: {sum(groups):,} in {len(groups)} group{'s' * (len(groups) != 1)} of tensors, {size - sum(groups)} around "
        f"them; {nonzeros:,} of {numbers:,} numbers not zero; {bits}",
        highlight=False,
        soft_wrap=True,
    )
