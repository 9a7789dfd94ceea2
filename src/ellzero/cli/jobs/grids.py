"""The grid that `ellzero pack` is asked for, where it needs no network."""

from collections.abc import Iterable

from ellzero.archive.torch_checkpoints import Say, say_nothing
from ellzero.cli.jobs.progress import say
from ellzero.cli.options.pack import GridName, Pack
from ellzero.codec.network.tensors import Entry
from ellzero.quantise.grids import LogGrid, Quantiser, UniformGrid
from ellzero.quantise.shared_step import SharedStep


def chosen_grid(options: Pack, tensors: Iterable[Entry]) -> Quantiser | None:
    """Makes the quantiser that needs the weights alone; None where none is chosen.

    Args:
        options: the command line.
        tensors: the network's, read only for a step that all share.

    Raises:
        ValueError: a ratio or an error out of range, or the network is damaged.
    """
    match options.quantise:
        case GridName.LOG:
            return LogGrid(options.ratio)
        case GridName.UNIFORM:
            return UniformGrid(error=options.error, vectors=options.error / 10)
        case GridName.SHARED:
            return SharedStep.at_error(tensors, options.error)
        case _:
            return None


def notes(options: Pack) -> Say:
    """Returns what says on stderr what of a network's files is left out; nothing with --quiet."""
    return say_nothing if options.quiet else say
