"""`ellzero pack` and `ellzero unpack`: networks of other formats as `.l0` files, and back."""

import enum
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ellzero.manners import STANDARD

SUFFIX = ".l0"


class GridName(enum.Enum):
    """The grids of the command line."""

    LOG = "log"
    UNIFORM = "uniform"


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Packs a network into a small file: lossless, or with its weights on a grid.

    Reads safetensors (one file, or an index of shards), a checkpoint of torch that holds weights alone (.pt, .pth, .bin), or a folder of
    one of these: a run of `ellzero sparsify`, or a model as Hugging Face stores it. Without --quantise every bit comes back.
    """

    network: tyro.conf.Positional[Path]
    """The network."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    """The file to write, or - for standard output; by default the name of the network with the ending .l0."""
    quantise: GridName | None = None
    """Move weights to a grid: log (each weight by at most a factor of about sqrt(ratio); for sparse networks) or uniform (by --error)."""
    lossless: bool = False
    """Keep every bit, which is what happens without --quantise."""
    ratio: float = 1.3
    """Of neighbouring magnitudes on the logarithmic grid."""
    error: float = 0.03
    """Root mean square of the change of a tensor on the uniform grid, over that of its weights; vectors get a tenth of it."""
    force: Annotated[bool, tyro.conf.arg(aliases=["-f"])] = False
    """Overwrite a file that exists, and write to a terminal."""
    quiet: Annotated[bool, tyro.conf.arg(aliases=["-q"])] = False
    """Print nothing."""

    def run(self) -> None:
        """Runs the command.

        Raises:
            ValueError: the network is damaged, or options contradict each other.
            OSError: a file is missing, in the way, or cannot be written.
        """
        from ellzero.archive.grids import LogGrid, UniformGrid
        from ellzero.archive.pack import pack
        from ellzero.cli.messages import say
        from ellzero.manners import open_output

        if self.lossless and self.quantise is not None:
            raise ValueError("--lossless and --quantise contradict each other: give one of them")
        grid = None
        if self.quantise is GridName.LOG:
            grid = LogGrid(self.ratio)
        elif self.quantise is GridName.UNIFORM:
            grid = UniformGrid(error=self.error, vectors=self.error / 10)
        output = self.output if self.output is not None else default_output(self.network)
        with open_output(output, source=self.network if self.network.is_file() else None, force=self.force) as file:
            report = pack(self.network, file, grid)
        if not self.quiet:
            sizes = asdict(report)
            share = 100 * report.file_bytes / max(report.dense_bytes, 1)
            say(
                f"{self.network} -> {output}: {report.tensors} tensors, {report.nonzeros:,} of {report.scalars:,} numbers not zero, "
                f"{sizes['dense_bytes']:,} bytes in memory, {report.file_bytes:,} in the file ({share:.2f} %)"
            )


@dataclass(frozen=True, kw_only=True)
class Unpack:
    """Unpacks a network to safetensors, or to a checkpoint of torch where the output ends in .pt, .pth or .bin."""

    file: tyro.conf.Positional[Path]
    """The .l0 file, or - for standard input."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    """The file to write, or - for standard output; by default the name of the input with the ending .safetensors."""
    max_size: int = 1 << 30
    """The most bytes that one tensor may take in memory."""
    force: Annotated[bool, tyro.conf.arg(aliases=["-f"])] = False
    """Overwrite a file that exists, and write to a terminal."""
    quiet: Annotated[bool, tyro.conf.arg(aliases=["-q"])] = False
    """Print nothing."""

    def run(self) -> None:
        """Runs the command.

        Raises:
            ValueError: the file is damaged, or holds no network.
            OSError: a file is missing, in the way, or cannot be written.
        """
        from ellzero.archive.pack import unpack
        from ellzero.cli.messages import say
        from ellzero.manners import open_input, open_output

        output = self.output
        if output is None:
            if str(self.file) == STANDARD:
                output = Path(STANDARD)
            else:
                output = self.file.with_name(self.file.name.removesuffix(SUFFIX) + ".safetensors")
        with open_input(self.file, terminal=False) as file, open_output(output, source=self.file, force=self.force) as target:
            tensors = unpack(file, target, suffix=output.suffix, max_size=self.max_size)
        if not self.quiet:
            say(f"{self.file} -> {output}: {tensors} tensors")


def default_output(network: Path) -> Path:
    """Names the file that a network is packed into: beside it, or within a run's folder."""
    if network.is_dir():
        return network / f"network{SUFFIX}"
    name = network.name.removesuffix(".index.json")
    return network.with_name(name).with_suffix(SUFFIX)
