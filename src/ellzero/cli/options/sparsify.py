"""Options of `ellzero sparsify`."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from ellzero.cli.options.arguments import number


class RecipeName(enum.Enum):
    """The recipes of the command line."""

    PAPER = "paper"
    SMALLEST = "smallest"
    FAST = "fast"


@dataclass(frozen=True, kw_only=True)
class Sparsify:
    """Trains a network, makes it sparse, and writes a folder: the network, a log, a record and pictures.

    MODEL comes first. Every option that is not listed here is the method's: each field of the method's dataclass, such as --alpha 1e-4,
    --updates exact, or --tau 0.8 0.12 for what falls from one value to another. `ellzero methods drr` lists those of DRR.

    Examples:

      ellzero sparsify digits-mlp -o runs/digits

      ellzero sparsify lenet-300-100 --recipe smallest --nonzeros 1480 --seed 1 -o runs/smallest

      ellzero sparsify lenet-300-100 --data fashion-mnist --method drr --alpha 1e-4 -o runs/fashion
    """

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    """lenet-300-100, lenet-5-caffe, vgg-16-512, mlp-3x512, digits-mlp, or module:factory."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="RUN")]
    """The folder to write; it must not exist yet, unless --resume is given."""
    recipe: RecipeName = RecipeName.FAST
    """fast: a minute or two on MNIST. smallest: fewest weights, six or seven. paper: the paper's own settings, ten or more."""
    data: Annotated[str | None, tyro.conf.arg(metavar="DIR|NAME|MODULE:FUNCTION")] = None
    """The data set's folder, mnist, fashion-mnist, cifar10, or module:function that returns a Problem. Default: $ELLZERO_DATA."""
    seed: int = 0
    """Seeds initial weights, the order of the data, and augmentation."""
    method: Annotated[str | None, tyro.conf.arg(metavar="NAME|MODULE:CLASS")] = None
    """The method in place of the recipe's: none, rl1, drr, pmmp, admm, or module:Class for a method of your own."""
    nonzeros: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Prunes to this many non-zeros instead of the recipe's own target."""
    file_bytes: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Prunes to what fits into a file of this many bytes, and trains what is left on its grid: see RUN/quantised.l0."""
    error_increase: Annotated[float | None, tyro.conf.arg(metavar="POINTS")] = None
    """Searches for the sparsest network whose validation error grows by at most this many percentage points."""
    threads: int = 1
    """CPU threads; networks of this size are slower with more than one."""
    resume: tyro.conf.FlagCreatePairsOff[bool] = False
    """Goes on from the checkpoint in RUN, with the other options as they were."""
    quiet: Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(aliases=["-q"])] = False
    """Prints nothing but errors."""

    method_options: Annotated[Mapping[str, tuple[str, ...]], tyro.conf.Fixed, tyro.conf.Suppress] = field(default_factory=dict)
    """The words after each option of the method, by the option's name with underscores."""

    def settings(self) -> Mapping[str, Any]:
        """Lists the options that decide the result as plain JSON, for the record and to check a resumed run against."""
        plain = {name: value.value if isinstance(value, enum.Enum) else value for name, value in vars(self).items()}
        for name in ("output", "threads", "resume", "quiet"):
            del plain[name]
        return {**plain, "method_options": {name: _plain(words) for name, words in self.method_options.items()}}


def _plain(words: tuple[str, ...]) -> Any:
    """Turns the words after an option into a number or text, into a list of them where there are several, or into True where none is."""
    values = [number(word) for word in words]
    return values if len(values) > 1 else values[0] if values else True
