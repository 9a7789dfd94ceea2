"""Damages bytes as accidents and strangers do, for the tests of all decoders."""

import random
from collections.abc import Callable

from ellzero.codec.varint import varint


def any_number(source: random.Random) -> int:
    """A number of 1 to 64 bits, each length as likely."""
    return source.getrandbits(source.randint(1, 64))


def scrambled(source: random.Random, data: bytes | bytearray, number: Callable[[random.Random], int] = any_number) -> bytes:
    """Bytes with one to three things wrong; `number` draws what is inserted to lie about what follows."""
    wrong = bytearray(data)
    for _ in range(source.randint(1, 3)):
        place = source.randrange(len(wrong) + 1)
        match source.randrange(7):
            case 0 if place < len(wrong):
                wrong[place] ^= 1 << source.randrange(8)
            case 1 if place < len(wrong):
                wrong[place] = source.randrange(256)
            case 2:
                del wrong[place:]
            case 3:
                wrong[place:place] = source.randbytes(source.randint(1, 40))
            case 4:
                wrong[place:place] = varint(number(source))
            case 5:
                start = source.randrange(len(wrong) + 1)
                wrong[place:place] = wrong[start : start + source.randint(1, 60)]
            case _:
                del wrong[place : place + source.randint(1, 40)]
    return bytes(wrong)
