# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""Codes a block of bytes with the byte model: one kernel for both directions, so that they cannot differ."""

import numpy as np

from ellzero.codec.bytes.contexts import note_byte, set_contexts
from ellzero.codec.bytes.model import learn, look_up, predict
from ellzero.codec.bytes.state import BIT_COUNT, PARTIAL, Model
from ellzero.codec.jit import kernel
from ellzero.codec.kernels import decode_bit, encode_bit, finish_encoder, start_decoder, start_encoder


@kernel
def code_block(m: Model, data: np.ndarray, coded: np.ndarray, decode: bool) -> np.int64:
    """Encodes `data` into `coded`, or decodes `coded` into `data`; returns the number of coded bytes (encoder)."""
    state = np.zeros(3, np.uint64)
    if decode:
        start_decoder(state, coded)
    else:
        start_encoder(state)
    r = m.registers
    for index in range(data.size):
        set_contexts(m)
        r[PARTIAL] = 1
        r[BIT_COUNT] = 0
        byte = np.int64(data[index])
        for _ in range(2):
            look_up(m)
            for _ in range(4):
                p = predict(m)
                if decode:
                    bit = decode_bit(state, coded, p)
                else:
                    bit = (byte >> (7 - r[BIT_COUNT])) & 1
                    encode_bit(state, coded, bit, p)
                learn(m, bit)
        byte = r[PARTIAL] & 255
        if decode:
            data[index] = np.uint8(byte)
        note_byte(m, byte)
    if decode:
        return np.int64(0)
    return finish_encoder(state, coded)
