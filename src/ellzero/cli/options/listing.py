"""Options of `ellzero list`."""

from dataclasses import dataclass

from ellzero.cli.options.fields import Files, Json, Quiet, Verbose


@dataclass(frozen=True, kw_only=True)
class List:
    """Lists what files hold: sizes, ratio, blocks, level, the memory that decoding needs, hash and version; of networks, their tensors."""

    files: Files = ()
    """The files."""
    as_json: Json = False
    """Print JSON, a list with one object per file."""
    quiet: Quiet = False
    """Print nothing but errors."""
    verbose: Verbose = False
    """Print hashes in full."""
