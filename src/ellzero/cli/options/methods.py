"""Options of `ellzero methods`, and the names of methods."""

from dataclasses import dataclass
from typing import Annotated

import tyro

METHODS = {
    "none": "ellzero.methods:Unregularised",
    "rl1": "ellzero.methods:RL1",
    "drr": "ellzero.methods:DRR",
    "pmmp": "ellzero.methods:PMMP",
    "admm": "ellzero.methods:ADMM",
}
"""The methods that the command line knows by a name, as `module:Class`."""


@dataclass(frozen=True, kw_only=True)
class Methods:
    """Lists methods that `ellzero sparsify --method` knows by name, or the options of a method.

    Examples:

      ellzero methods

      ellzero methods pmmp

      ellzero methods mine:MyMethod
    """

    method: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[NAME|MODULE:CLASS]")] = None
    """A method's name, or module:Class. Without it, all names are listed."""
