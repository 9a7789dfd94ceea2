"""Known answers of the coder, by which compiled code is tried before it codes a file.

What was compiled from another source, or wrongly, decodes what it encodes: comparing with the original shows nothing then, and no other
machine reads the file.
"""

import zlib
from functools import cache

import numpy as np

from ellzero.codec.bytes.block_coder import BlockCoder
from ellzero.codec.bytes.parameters import ByteModel
from ellzero.codec.bytes.presets import PICTURED, preset_for
from ellzero.codec.bytes.state import new_model
from ellzero.files.errors import FileError
from ellzero.jit.kernels import cache_folder, disabled

_SAMPLE = b"<p>Ten 10, ten 100;\n\xe8\x01\0\0\0ten 10, <b>Ten 100</b>\n\nten: \xff\xfe" + bytes(range(0, 240, 7)) + b"\nTen 10, ten 100"
_SMALLEST = 10  # log2 of the buckets and of the bytes kept

ANSWERS = {
    (1, False): 2515806084,
    (2, False): 3291357950,
    (3, False): 602109243,
    (4, False): 1456802896,
    (5, False): 576367146,
    (6, False): 1999312600,
    (7, False): 4219299900,
    (8, False): 1082462686,
    (8, True): 3703111412,
    (9, False): 1082462686,
    (9, True): 3703111412,
}
"""CRC-32 of the messages that the sample makes, by level and by whether there are contexts of sections."""


def check_coder(parameters: ByteModel) -> None:
    """Tries the coder of a level, once in a process, which takes some milliseconds.

    Raises:
        FileError: it gives another answer than its source does: what is kept of compiled code is damaged, or of another source.
    """
    # Wide models have the parts of level 7.
    if not disabled() and not has_known_answer(7 if parameters.wide else parameters.level, sections=parameters.sections):
        raise FileError(
            f"the compiled coder of level {parameters.level} does not compute what its source says: delete {cache_folder()}, where it is "
            "kept, and try again",
            file=cache_folder(),
        )


@cache
def has_known_answer(level: int, *, sections: bool) -> bool:
    """Tells whether the sample makes the messages that it should, and comes back from them."""
    return answer(level, sections=sections) == ANSWERS[level, sections]


def answer(level: int, *, sections: bool) -> int | None:
    """Returns the CRC-32 of the messages that the sample makes, as text and as a picture; None where it does not come back from them."""
    preset = preset_for(level, sections=sections)
    check = 0
    both = [BlockCoder(preset, new_model(preset, _SMALLEST, _SMALLEST)) for _ in range(2)]
    for stride, row in ((0, 0), (3, 24) if level in PICTURED else (0, 0)):
        sample = np.frombuffer(_SAMPLE, np.uint8).copy()
        message = np.zeros(2 * sample.size, np.uint8)
        for coder in both:
            coder.begin(stride=stride, row=row)
        size = both[0].code(sample, message, 0, sample.size, decode=False)
        check = zlib.crc32(message[:size].tobytes(), check)
        sample[:] = 0
        both[1].code(sample, message[:size].copy(), 0, sample.size, decode=True)
        if sample.tobytes() != _SAMPLE:
            return None
    return check
