"""Options of `ellzero list`."""

from dataclasses import dataclass

from ellzero.cli.options.fields import Files, Json, Quiet, Recursive, Suffix, Verbose


@dataclass(frozen=True, kw_only=True)
class List:
    """Lists what files hold: sizes, ratio, blocks, level, the memory that decoding needs, hash and version; of networks, their tensors."""

    files: Files = ()
    """The files."""
    recursive: Recursive = False
    """List all files in folders that have the suffix."""
    suffix: Suffix = ".l0"
    """What names end in besides .l0."""
    as_json: Json = False
    """Print JSON, a list with one object per file."""
    quiet: Quiet = False
    """Print nothing but errors."""
    verbose: Verbose = False
    """Print hashes in full."""
