"""Options that several commands have."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import tyro
from tyro.constructors import PrimitiveConstructorSpec

# Types that tyro knows by itself: it checks defaults of others by a library whose import takes a fifth of the start of a command.
if TYPE_CHECKING:
    Files = tuple[Path, ...]
else:
    Files = tyro.conf.Positional[
        Annotated[
            tuple,
            PrimitiveConstructorSpec(
                nargs="*",
                metavar="[PATH [PATH ...]]",
                instance_from_str=lambda words: tuple(Path(word) for word in words),
                is_instance=lambda files: isinstance(files, tuple),
                str_from_instance=lambda files: [str(file) for file in files],
            ),
        ]
    ]
Name = Annotated[Optional[Path], tyro.conf.arg(aliases=["-o"], metavar="FILE")]  # noqa: UP045
Stdout = Annotated[bool, tyro.conf.arg(aliases=["-c", "--to-stdout"])]
Force = Annotated[bool, tyro.conf.arg(aliases=["-f"])]
Keep = Annotated[bool, tyro.conf.arg(aliases=["-k"])]
Quiet = Annotated[bool, tyro.conf.arg(aliases=["-q"])]
Verbose = Annotated[bool, tyro.conf.arg(aliases=["-v"])]
Remove = Annotated[bool, tyro.conf.arg(name="rm")]
Recursive = Annotated[bool, tyro.conf.arg(aliases=["-r"])]
Suffix = Annotated[str, tyro.conf.arg(aliases=["-S"], metavar="SUFFIX")]
Json = Annotated[bool, tyro.conf.arg(name="json")]
Size = Annotated[Optional[str], tyro.conf.arg(metavar="SIZE")]  # noqa: UP045
