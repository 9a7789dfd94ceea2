"""The commands, as the command line tells them apart."""

from typing import Annotated

import tyro

from ellzero.cli.jobs.bench import Bench
from ellzero.cli.jobs.listing import List
from ellzero.cli.options.compress import Cat, Compress, Decompress, Verify
from ellzero.cli.options.demo import Demo
from ellzero.cli.options.inspect import Inspect
from ellzero.cli.options.pack import Pack, Unpack
from ellzero.cli.options.sparsify import Sparsify

Command = Annotated[
    Annotated[Sparsify, tyro.conf.subcommand("sparsify")]
    | Annotated[Pack, tyro.conf.subcommand("pack")]
    | Annotated[Unpack, tyro.conf.subcommand("unpack")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Compress, tyro.conf.subcommand("compress")]
    | Annotated[Decompress, tyro.conf.subcommand("decompress")]
    | Annotated[Cat, tyro.conf.subcommand("cat")]
    | Annotated[Verify, tyro.conf.subcommand("test")]
    | Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Demo, tyro.conf.subcommand("demo")],
    tyro.conf.OmitSubcommandPrefixes,
    tyro.conf.EnumChoicesFromValues,
]
