"""`ellzero pack` and `ellzero unpack`: networks of other formats as `.l0` files, and back."""

import enum
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ellzero.files.streams import STANDARD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ellzero.codec.network.tensors import Entry
    from ellzero.quantise.grids import Quantiser

SUFFIX = ".l0"


class GridName(enum.Enum):
    """The grids of the command line."""

    LOG = "log"
    UNIFORM = "uniform"
    SHARED = "shared"
    CALIBRATED = "calibrated"


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Packs a network into a small file: lossless, or with its weights on a grid.

    Reads safetensors (one file, or an index of shards), a checkpoint of torch that holds weights alone (.pt, .pth, .bin), or a folder of
    one of these: a run of `ellzero sparsify`, or a model as Hugging Face stores it. Without --quantise, --data or --fold-batchnorm every
    bit comes back.

    Examples:

      ellzero pack model.safetensors

      ellzero pack model.safetensors --quantise uniform --error 0.05

      ellzero pack model.safetensors --model mine:factory --data mine:inputs --fold-batchnorm

      ellzero pack model.safetensors --model mine:factory --input 3x32x32 --quantise calibrated --fold-batchnorm
    """

    network: tyro.conf.Positional[Path]
    """The network."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    """The file to write, or - for standard output; by default the name of the network with the ending .l0, in a folder network.l0, or
    network-log.l0 and the like where weights are moved."""
    quantise: GridName | None = None
    """Move weights to a grid: log (each weight by at most a factor of about sqrt(ratio); for sparse networks), uniform (each tensor by
    --error), shared (one step for all tensors, all weights by --error), or calibrated (each layer by what the answers depend on; needs
    --model, and --data or --input)."""
    lossless: bool = False
    """Keep every bit, which is what happens without --quantise."""
    ratio: float = 1.3
    """Of neighbouring magnitudes on the logarithmic grid."""
    error: float = 0.03
    """Root mean square of the change of a tensor on the uniform grid, over that of its weights; vectors get a tenth of it."""
    model: Annotated[str | None, tyro.conf.arg(metavar="NAME|MODULE:FACTORY")] = None
    """The network's architecture: a name that `ellzero sparsify` takes, or module:factory. Names and shapes are checked against it, and
    its running statistics and counters stay exact on every grid. To calibration and folding a run's folder says it by itself."""
    data: Annotated[str | None, tyro.conf.arg(metavar="DIR|NAME|MODULE:FUNCTION")] = None
    """Unlabelled inputs to calibrate by: a data set's folder or name, of which the first training images are taken, or module:function
    that returns a batch, or batches, as the network takes them."""
    samples: int | None = None
    """How many inputs are taken of a data set, 128 by default, or made up without data, 64."""
    input: Annotated[str | None, tyro.conf.arg(metavar="SHAPE")] = None
    """Shape of one input, such as 3x32x32, for --quantise calibrated and --fold-batchnorm without --data."""
    nats_per_kilobyte: float = 1.6e-4
    """How far the answers may move, in nats of divergence, for each kilobyte that calibration saves."""
    fold_batchnorm: bool = False
    """Fold batch normalisation into the layers before it, for inference; the architecture stays the same."""
    force: Annotated[bool, tyro.conf.arg(aliases=["-f"])] = False
    """Overwrite a file that exists, and write to a terminal."""
    quiet: Annotated[bool, tyro.conf.arg(aliases=["-q"])] = False
    """Print nothing."""

    def run(self) -> None:
        """Runs the command.

        Raises:
            UsageError: options contradict each other, or are out of range.
            ValueError: the network is damaged, or its architecture another one.
            OSError: a file is missing, in the way, or cannot be written.
        """
        from ellzero.archive.pack import pack
        from ellzero.archive.sources import files_of, tensors_of
        from ellzero.cli.jobs.messages import say
        from ellzero.files.errors import FileError
        from ellzero.files.streams import open_output

        self.check()
        if str(self.network) == STANDARD:
            raise FileError("a network is read from files, not from standard input: write it to one first")
        read = files_of(self.network)
        output = self.output if self.output is not None else default_output(self.network, self.moved)
        with open_output(output, source=self.network, others=read, force=self.force) as file:
            if self.calibrated or self.fold_batchnorm:
                from ellzero.cli.jobs.pack_model import pack_model

                report = pack_model(self, file, calibrate=self.calibrated)
            elif self.model is not None:
                from ellzero.cli.jobs.pack_model import pack_as

                report = pack_as(self, file, self.model)
            else:
                report = pack(self.network, file, self.grid(tensors_of(self.network)))
        if not self.quiet:
            sizes = asdict(report)
            share = 100 * report.file_bytes / max(report.dense_bytes, 1)
            say(
                f"{self.network} -> {output}: {report.tensors} tensors, {report.nonzeros:,} of {report.scalars:,} numbers not zero, "
                f"{sizes['dense_bytes']:,} bytes in memory, {report.file_bytes:,} in the file ({share:.2f} %)"
            )

    @property
    def calibrated(self) -> bool:
        """Whether weights are moved by what the answers depend on."""
        return self.quantise is GridName.CALIBRATED or self.data is not None

    @property
    def moved(self) -> str | None:
        """What happens to the weights, in a word; None where every bit stays."""
        if self.calibrated:
            return GridName.CALIBRATED.value
        return self.quantise.value if self.quantise is not None else "folded" if self.fold_batchnorm else None

    def check(self) -> None:
        """Asserts that the options make sense together.

        Raises:
            UsageError: they do not.
        """
        from ellzero.cli.arguments import UsageError
        from ellzero.quantise.grids import LogGrid, UniformGrid

        if self.lossless and self.moved is not None:
            raise UsageError("--lossless contradicts --quantise, --data and --fold-batchnorm: leave it out, or them")
        if self.data is not None and self.quantise not in (None, GridName.CALIBRATED):
            raise UsageError(f"--data is for --quantise calibrated, not {self.quantise.value}: leave one of them out")
        runs = self.calibrated or self.fold_batchnorm
        if not runs and (self.input is not None or self.samples is not None):
            raise UsageError("--input and --samples are for --quantise calibrated and --fold-batchnorm: add one of these, or drop them")
        if runs and self.model is None and not (self.network / "options.json").is_file():
            raise UsageError("calibration and --fold-batchnorm run the network: say its architecture, --model NAME or module:factory")
        if runs and self.data is None and self.input is None:
            raise UsageError("the network is run on inputs: say where they are, --data, or the shape of one, such as --input 3x32x32")
        if self.samples is not None and self.samples < 2:
            raise UsageError(f"--samples {self.samples}: expected at least 2")
        if not 0 < self.nats_per_kilobyte < math.inf:
            raise UsageError(f"--nats-per-kilobyte {self.nats_per_kilobyte}: expected a positive number")
        try:
            LogGrid(self.ratio)
            UniformGrid(error=self.error, vectors=self.error / 10)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def grid(self, tensors: "Iterable[Entry]") -> "Quantiser | None":
        """Makes the quantiser that needs the weights alone; None where none is chosen.

        Args:
            tensors: the network's, read only for a step that all share.

        Raises:
            ValueError: a ratio or an error out of range, or the network is damaged.
        """
        from ellzero.quantise.grids import LogGrid, UniformGrid
        from ellzero.quantise.shared_step import shared_step

        match self.quantise:
            case GridName.LOG:
                return LogGrid(self.ratio)
            case GridName.UNIFORM:
                return UniformGrid(error=self.error, vectors=self.error / 10)
            case GridName.SHARED:
                return shared_step(tensors, self.error)
            case _:
                return None


@dataclass(frozen=True, kw_only=True)
class Unpack:
    """Unpacks a network to safetensors, or to a checkpoint of torch where the output ends in .pt, .pth or .bin."""

    file: tyro.conf.Positional[Path]
    """The .l0 file, or - for standard input."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    """The file to write, or - for standard output; by default the name of the input with the ending .safetensors."""
    max_size: Annotated[str, tyro.conf.arg(metavar="BYTES")] = "1G"
    """The most bytes that may be held in memory: one tensor, or for a checkpoint all of them; K, M and G after a number are powers of
    1024."""
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
        from ellzero.cli.arguments import num_bytes
        from ellzero.cli.jobs.messages import say
        from ellzero.cli.jobs.several import naming
        from ellzero.files.streams import open_input, open_output

        max_size = num_bytes(self.max_size)
        with naming(self.file), open_input(self.file, terminal=False) as file:
            output = self.output if self.output is not None else self._default_output()
            with open_output(output, source=self.file, force=self.force) as target:
                tensors = unpack(file, target, suffix=output.suffix, max_size=max_size)
        if not self.quiet:
            say(f"{self.file} -> {output}: {tensors} tensors")

    def _default_output(self) -> Path:
        if str(self.file) == STANDARD or not self.file.is_file():
            return Path(STANDARD)
        return self.file.with_name(self.file.name.removesuffix(SUFFIX) + ".safetensors")


def default_output(network: Path, moved: str | None = None) -> Path:
    """Names the file that a network is packed into: beside it, or within its folder, where a run has left its own without loss.

    Args:
        network: a file or folder.
        moved: what happens to the weights, in a word.
    """
    if network.is_dir():
        return network / f"network{'' if moved is None else f'-{moved}'}{SUFFIX}"
    name = network.name.removesuffix(".index.json")
    return network.with_name(name).with_suffix(SUFFIX)
