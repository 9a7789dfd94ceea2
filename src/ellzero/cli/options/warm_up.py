"""Options of `ellzero warm-up`."""

from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """Compiles beforehand what the first use of a level would compile, several levels at once where there are several cores."""

    level: Annotated[str, tyro.conf.arg(metavar="LEVELS")] = "1,5,9"
    """Levels of files, with commas between several; 1 and 2 share their code, as do 3 to 7, and 8 and 9."""
    networks: bool = True
    """Also compile what packs networks, where torch is installed."""
    quiet: Annotated[bool, tyro.conf.arg(aliases=["-q"])] = False
    """Print nothing but errors."""
