"""`ellzero sparsify`: trains and sparsifies a network, and leaves a folder with all that came of it."""

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from ellzero.cli.options.method_options import ADMMOptions, MethodName, PMMPOptions, plain


class RecipeName(enum.Enum):
    """The recipes of the command line."""

    PAPER = "paper"
    SMALLEST = "smallest"
    FAST = "fast"


@dataclass(frozen=True, kw_only=True)
class Sparsify:
    """Trains a network, makes it sparse, and writes a folder: the network, a log, a record and pictures.

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
    method: MethodName | None = None
    """The penalty, in place of the recipe's."""
    alpha: float | None = None
    """The penalty's strength, in place of the recipe's."""
    beta: float | None = None
    """Sharpness of DRR's penalty, in place of the recipe's."""
    pmmp: Annotated[PMMPOptions, tyro.conf.OmitArgPrefixes] = field(default_factory=PMMPOptions)
    admm: Annotated[ADMMOptions, tyro.conf.OmitArgPrefixes] = field(default_factory=ADMMOptions)
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

    def run(self) -> None:
        """Runs the command.

        Raises:
            ValueError: options, network or data are not what they should be.
            OSError: a file is missing, or RUN exists or cannot be written.
            KeyboardInterrupt: interrupted; RUN holds a checkpoint.
        """
        from ellzero.cli.jobs.sparsify import run_sparsify

        run_sparsify(self)

    def settings(self) -> Mapping[str, Any]:
        """Lists the options that decide the result, for the record and to check a resumed run against."""
        return plain({name: value for name, value in vars(self).items() if name not in {"output", "threads", "resume", "quiet"}})


def prepare_folder(options: Sparsify) -> None:
    """Makes the run's folder, or checks that the one to resume was made with the same options.

    Raises:
        FileExistsError: the folder exists and `resume` is not given.
        FileNotFoundError: there is nothing to resume.
        ValueError: the run to resume has other options, or is finished.
    """
    folder, file = options.output, options.output / "options.json"
    if not options.resume:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileExistsError(f"{folder} exists already: choose another folder, or go on with the run in it with --resume")
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(options.settings(), indent=2) + "\n")
        return
    if not file.is_file():
        raise FileNotFoundError(f"there is no run to resume in {folder}: leave out --resume to start one")
    try:
        before = json.loads(file.read_text())
    except ValueError as error:
        raise ValueError(f"{file} is damaged: start anew in another folder") from error
    now = json.loads(json.dumps(options.settings()))
    different = [f"{name} {before.get(name)!r} -> {value!r}" for name, value in now.items() if before.get(name) != value]
    if different:
        raise ValueError(f"the run in {folder} was started with other options ({'; '.join(different)}): pass the same ones to resume it")
    if (folder / "record.json").exists():
        raise ValueError(f"the run in {folder} is finished: its figures are in {folder / 'record.json'}")


def remove_folder(folder: Path) -> None:
    """Removes a run's folder in which nothing has been trained yet."""
    (folder / "options.json").unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
