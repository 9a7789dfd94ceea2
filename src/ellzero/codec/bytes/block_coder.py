# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""Codes blocks of bytes with the byte model: one kernel for both directions, so that they cannot differ."""

import numpy as np

from ellzero.codec.bytes.contexts import note_byte, set_contexts
from ellzero.codec.bytes.predictor import learn, look_up, predict
from ellzero.codec.bytes.state import BIT_COUNT, PARTIAL, Model
from ellzero.codec.bytes.tables import Whole
from ellzero.codec.rangecoder import decode_bit, encode_bit, finish_encoder, start_decoder, start_encoder
from ellzero.jit.entry_points import entry


@entry
def code_piece(m: Model, data: np.ndarray, coded: np.ndarray, start: Whole, stop: Whole, decode: bool) -> np.int64:
    """Codes `data[start:stop]`, a part of a block whose parts before it were coded last.

    Args:
        m: the model, with the state of the coder.
        data: the block, to be encoded or filled.
        coded: the message of the whole block, to be filled or decoded.
        start: where the part begins; 0 begins a message.
        stop: where it ends; the size of the block ends the message.
        decode: the direction.

    Returns:
        The number of coded bytes, where a message was encoded to its end.
    """
    state = m.coder
    r = m.registers
    if start == 0:
        if decode:
            start_decoder(state, coded)
        else:
            start_encoder(state)
    for index in range(start, stop):
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
    return finish_encoder(state, coded) if stop == data.size and not decode else np.int64(0)
