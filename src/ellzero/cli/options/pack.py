"""Options of `ellzero pack` and `ellzero unpack`: networks of other formats as `.l0` files, and back."""

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


class GridName(enum.Enum):
    """The grids of the command line."""

    LOG = "log"
    UNIFORM = "uniform"
    SHARED = "shared"
    CALIBRATED = "calibrated"


class AnswersName(enum.Enum):
    """What answers may be said to be on the command line."""

    LOGITS = "logits"
    PROBABILITIES = "probabilities"
    EMBEDDINGS = "embeddings"
    VALUES = "values"


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
    """Ratio of neighbouring magnitudes on the logarithmic grid."""
    error: float = 0.03
    """Root mean square of the change of a tensor on the uniform grid, relative to that of its weights; a tenth of it for vectors."""
    model: Annotated[str | None, tyro.conf.arg(metavar="NAME|MODULE:FACTORY")] = None
    """The network's architecture: a name that `ellzero sparsify` takes, or module:factory. Names and shapes are checked against it, and
    its running statistics and counters stay exact on every grid. The folder of a run names its architecture itself, for calibration and
    folding."""
    data: Annotated[str | None, tyro.conf.arg(metavar="DIR|NAME|MODULE:FUNCTION")] = None
    """Unlabelled inputs to calibrate by: a data set's folder or name, of which the first training images are taken, or module:function
    that returns a batch, or batches, as the network takes them."""
    samples: int | None = None
    """The number of inputs: taken from a data set (128 by default), or synthesised without data (64)."""
    input: Annotated[str | None, tyro.conf.arg(metavar="SHAPE")] = None
    """Shape of one input, such as 3x32x32, for --quantise calibrated and --fold-batchnorm without --data."""
    nats_per_kilobyte: float = 1.6e-4
    """How far the answers may move, in nats of divergence, for each kilobyte that calibration saves."""
    answers: AnswersName | None = None
    """What the network's answers are, for calibration: logits or probabilities of classes, embeddings compared by their cosine, or values;
    by default what they show, where that is clear."""
    fold_batchnorm: bool = False
    """Fold batch normalisation into the layers before it, for inference; the architecture stays the same."""
    force: Annotated[bool, tyro.conf.arg(aliases=["-f"])] = False
    """Overwrite a file that exists, and write to a terminal."""
    quiet: Annotated[bool, tyro.conf.arg(aliases=["-q"])] = False
    """Print nothing."""

    @property
    def calibrated(self) -> bool:
        """Whether weights are moved by what the answers depend on."""
        return self.quantise is GridName.CALIBRATED or self.data is not None

    @property
    def moved(self) -> str | None:
        """What happens to the weights, in one word; None where every bit stays."""
        if self.calibrated:
            return GridName.CALIBRATED.value
        return self.quantise.value if self.quantise is not None else "folded" if self.fold_batchnorm else None


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
