# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""Codes blocks of bytes with the byte model: one kernel for both directions, so that they cannot differ."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.bytes.contexts import note_byte, set_contexts
from ellzero.codec.bytes.predictor import learn, look_up, predict
from ellzero.codec.bytes.presets import Preset
from ellzero.codec.bytes.state import BIT_COUNT, PARTIAL, ROW, STRIDE, Model
from ellzero.codec.bytes.tables import Whole
from ellzero.codec.rangecoder import decode_bit, encode_bit, finish_encoder, start_decoder, start_encoder
from ellzero.jit.entry_points import entry
from ellzero.jit.kernels import specialised


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


_code_narrow_piece = specialised(code_piece, WIDE=False, SECTIONS=False)
_code_middle_piece = specialised(code_piece, SECTIONS=False)


class BlockCoder:
    """A model, and the kernel that codes blocks with it: compiled for no more than its level has, which spares much time.

    Args:
        preset: the level.
        model: its state.
    """

    def __init__(self, preset: Preset, model: Model) -> None:
        self._model = model
        widest = max(preset.contexts + preset.directs)
        self._sections, self._wide = widest > 45 or len(preset.sets) > 10, widest > 9
        self._code = self._kernel(0)

    def begin(self, *, stride: int, row: int) -> None:
        """Says of what records and rows the next block consists; 0 for none."""
        self._model.registers[[STRIDE, ROW]] = stride, row
        self._code = self._kernel(row)

    def code(self, block: NDArray[np.uint8], coded: NDArray[np.uint8], start: int, stop: int, *, decode: bool) -> int:
        """Codes a part of a block; see `code_piece`."""
        return int(self._code(self._model, block, coded, np.int64(start), np.int64(stop), decode))

    def _kernel(self, row: int) -> Callable[[Model, NDArray[np.uint8], NDArray[np.uint8], Whole, Whole, bool], np.int64]:
        if self._sections:
            return code_piece
        # Rows change contexts of any level.
        return _code_middle_piece if self._wide or row > 0 else _code_narrow_piece
