"""What `ellzero pack` and `ellzero unpack` do."""

import math
from pathlib import Path

from ellzero.archive.pack import pack, unpack
from ellzero.archive.sources import files_of, tensors_of
from ellzero.archive.torch_checkpoints import CHECKPOINTS
from ellzero.cli.jobs.grids import chosen_grid, notes
from ellzero.cli.jobs.per_file import naming_file
from ellzero.cli.jobs.progress import say
from ellzero.cli.options.arguments import UsageError, num_bytes
from ellzero.cli.options.pack import GridName, Pack, Unpack
from ellzero.files.errors import FileError
from ellzero.files.special import is_special
from ellzero.files.streams import STANDARD, open_input, open_output
from ellzero.quantise.grids import LogGrid, UniformGrid

SUFFIX = ".l0"


def run_pack(options: Pack) -> None:
    """Packs a network.

    Raises:
        UsageError: options contradict each other, or are out of range.
        ValueError: the network is damaged, or its architecture another one.
        OSError: a file is missing, in the way, or cannot be written.
    """
    check(options)
    if str(options.network) == STANDARD:
        raise FileError("a network is read from files, not from standard input: write it to one first")
    if options.output is None and is_special(options.network):
        raise FileError(f"{options.network} is no regular file: name its output with -o", file=options.network)
    read = files_of(options.network)
    output = options.output if options.output is not None else default_output(options.network, options.moved)
    with open_output(output, source=options.network, others=read, force=options.force) as file:
        if options.calibrated or options.fold_batchnorm:
            from ellzero.cli.jobs.pack_model import pack_model  # with torch, which plain packing does without

            report = pack_model(options, file, calibrate=options.calibrated)
        elif options.model is not None:
            from ellzero.cli.jobs.pack_model import pack_as

            report = pack_as(options, file, options.model)
        else:
            report = pack(options.network, file, chosen_grid(options, tensors_of(options.network)), notes(options))
    if not options.quiet:
        share = 100 * report.file_bytes / max(report.dense_bytes, 1)
        say(
            f"{options.network} -> {output}: {report.tensors} tensors, {report.nonzeros:,} of {report.scalars:,} numbers not zero, "
            f"{report.dense_bytes:,} bytes in memory, {report.file_bytes:,} in the file ({share:.2f} %)"
        )


def run_unpack(options: Unpack) -> None:
    """Unpacks a network.

    Raises:
        ValueError: the file is damaged, or holds no network.
        OSError: a file is missing, in the way, or cannot be written.
    """
    max_size = num_bytes(options.max_size)
    with naming_file(options.file), open_input(options.file, terminal=False) as file:
        output = options.output if options.output is not None else _unpacked_output(options.file)
        with open_output(output, source=options.file, force=options.force) as target:
            tensors = unpack(file, target, name=output, max_size=max_size)
    if not options.quiet:
        say(f"{options.file} -> {output}: {tensors} tensors")


def check(options: Pack) -> None:
    """Checks that the options make sense together.

    Raises:
        UsageError: they do not.
    """
    if options.lossless and options.moved is not None:
        raise UsageError("--lossless contradicts --quantise, --data and --fold-batchnorm: leave it out, or them")
    if options.data is not None and options.quantise not in (None, GridName.CALIBRATED):
        raise UsageError(f"--data is for --quantise calibrated, not {options.quantise.value}: leave one of them out")
    runs = options.calibrated or options.fold_batchnorm
    if not runs and (options.input is not None or options.samples is not None):
        raise UsageError("--input and --samples are for --quantise calibrated and --fold-batchnorm: add one of these, or drop them")
    if runs and options.model is None and not (options.network / "options.json").is_file():
        raise UsageError("calibration and --fold-batchnorm run the network: say its architecture, --model NAME or module:factory")
    if runs and options.data is None and options.input is None:
        raise UsageError("the network is run on inputs: say where they are, --data, or the shape of one, such as --input 3x32x32")
    if options.answers is not None and not options.calibrated:
        raise UsageError("--answers is for calibration: add --data or --quantise calibrated, or drop it")
    if options.samples is not None and options.samples < 2:
        raise UsageError(f"--samples {options.samples}: expected at least 2")
    if not 0 < options.nats_per_kilobyte < math.inf:
        raise UsageError(f"--nats-per-kilobyte {options.nats_per_kilobyte}: expected a positive number")
    try:
        LogGrid(options.ratio)
        UniformGrid(error=options.error, vectors=options.error / 10)
    except ValueError as error:
        raise UsageError(str(error)) from error


def default_output(network: Path, moved: str | None = None) -> Path:
    """Names the file that a network is packed into: beside it, or within its folder, where a run has left its own without loss.

    Args:
        network: a file or folder.
        moved: what happens to the weights, in one word.
    """
    if network.is_dir():
        return network / f"network{'' if moved is None else f'-{moved}'}{SUFFIX}"
    name = network.name.removesuffix(".index.json").removesuffix(".tar")
    while (stem := Path(name).stem) != name and Path(name).suffix in (*CHECKPOINTS, ".safetensors"):
        name = stem
    return network.with_name(name + SUFFIX)


def _unpacked_output(file: Path) -> Path:
    if str(file) == STANDARD or is_special(file) or not file.is_file():
        return Path(STANDARD)
    return file.with_name(file.name.removesuffix(SUFFIX) + ".safetensors")
