"""One message of the range coder, written or read: the same calls in both directions, so that they cannot differ."""

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.adaptive import INTEGER_CELLS, MAX_INTEGER_BITS, NEW, code_integer
from ellzero.codec.errors import FormatError
from ellzero.codec.network.cells import code_cells
from ellzero.codec.network.flags import code_flags
from ellzero.codec.network.layout import UNARY, Cells
from ellzero.codec.network.mixing import MixingModel, Stream, code_raw
from ellzero.codec.network.names import HISTORY, MAX_NAME, TYPICAL, WRITTEN, code_name, new_name_model
from ellzero.codec.rangecoder import MAX_BYTES_PER_DECISION, POSITION, finish_encoder, start_decoder, start_encoder

_TYPICAL_NUMBERS = {
    0: (2, 5), 2: (0, 0), 3: (0,), 4: (0, 1, 0, 1), 7: (0,), 8: (2, 1, 2, 1), 9: (0, 2, 0, 2), 10: (0, 2), 14: (8, 8), 15: (4, 4),
    16: (0,), 20: (7, 6), 21: (1,), 22: (0,),
}  # fmt: skip
"""What a network usually says of its tensors, by context: learnt before the first of them."""

MAX_NUMBER = (1 << MAX_INTEGER_BITS) - 2
_NUMBERS = 32
_NUMBER_LIMIT = 127
_PIECE = 1 << 14
_DECISIONS_PER_CELL = UNARY + 48
_AHEAD = 5
"""Bytes that a decoder reads ahead."""


class MessageCoder:
    """Codes numbers, names and cells into a message or out of one.

    Args:
        message: to be read; None to write one.
    """

    def __init__(self, message: bytes | None = None) -> None:
        self.reading = message is not None
        self._state = np.zeros(3, np.uint64)
        self._numbers = np.full(_NUMBERS * INTEGER_CELLS, NEW, np.uint32)
        self._names = new_name_model()
        self._history = np.zeros(HISTORY + MAX_NAME + 8, np.uint8)
        # Two bytes stand before the first name, so that every byte has two before it.
        self._progress = np.array([2, 0, 0], np.int64)
        self._learn_names()
        self._learn_numbers()
        if message is None:
            self._data = np.zeros(1 << 12, np.uint8)
            start_encoder(self._state)
        else:
            self._data = np.frombuffer(message, np.uint8).copy()
            start_decoder(self._state, self._data)

    def finish(self) -> bytes:
        """Ends a message that was written, and returns it."""
        self._reserve(1)
        return self._data[: finish_encoder(self._state, self._data)].tobytes()

    def end(self) -> None:
        """Asserts that nothing follows what was read.

        Raises:
            FormatError: there are more bytes than an encoder would have written.
        """
        # Of the bytes read ahead the encoder's last may be one.
        if self._data.size + _AHEAD - 1 > int(self._state[POSITION]):
            raise FormatError("a group of tensors is longer than what it holds: the file is damaged")

    @property
    def position(self) -> int:
        """The number of bytes written so far, or read, less those that are read ahead."""
        return max(int(self._state[POSITION]) - (_AHEAD if self.reading else 0), 0)

    def number(self, context: int, value: int = 0, *, below: int = MAX_NUMBER + 1, what: str = "a number") -> int:
        """Codes a number, small ones in few bits.

        Args:
            context: which numbers it is like, 0..31.
            value: the number; ignored where it is read.
            below: all that are possible lie below this.
            what: the number means, for the message.

        Raises:
            FormatError: the number read is impossible.
        """
        self._reserve(2 * MAX_INTEGER_BITS)
        coded = int(code_integer(*self._stream(), self._numbers, context * INTEGER_CELLS, value, _NUMBER_LIMIT))
        if not 0 <= coded < below:
            raise FormatError(f"{what} is {coded}, which must be below {below}: the file is damaged")
        return coded

    def raw(self, value: int, count: int) -> int:
        """Codes `count` bits as they are, at most 64."""
        self._reserve(4)
        return int(code_raw(self._stream(), np.uint64(value), count))

    def name(self, name: str = "") -> str:
        """Codes a name.

        Raises:
            FormatError: the name read is too long or no UTF-8.
        """
        start = int(self._progress[WRITTEN])
        text = name.encode() + b"\0"
        if not self.reading:
            self._history[start : start + len(text)] = np.frombuffer(text, np.uint8)
        self._reserve(8 * MAX_NAME)
        code_name(self._stream(), self._names, self._history, self._progress, MAX_NAME)
        stop = int(self._progress[WRITTEN])
        if stop > HISTORY or self._history[stop - 1] != 0:
            raise FormatError(f"the name of a tensor has more than {MAX_NAME - 1} bytes, or all names have too many: the file is damaged")
        try:
            return self._history[start : stop - 1].tobytes().decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"the name of a tensor is no UTF-8 ({error.reason}): the file is damaged") from error

    def flags(self, model: MixingModel, flags: NDArray[np.uint8], width: int, link: NDArray[np.uint8]) -> None:
        """Codes which lines of a matrix live; arguments as in `code_flags`."""
        self._reserve(flags.size)
        code_flags(self._stream(), model, flags, max(width, 1), link)

    def cells(self, model: MixingModel, cells: Cells) -> None:
        """Codes a matrix of levels."""
        for start in range(0, cells.levels.size, _PIECE):
            stop = min(start + _PIECE, cells.levels.size)
            self._reserve(_DECISIONS_PER_CELL * (stop - start))
            code_cells(self._stream(), model, cells, start, stop)

    def _stream(self) -> Stream:
        return Stream(self._state, self._data, self.reading)

    def _reserve(self, decisions: int) -> None:
        needed = int(self._state[POSITION]) + MAX_BYTES_PER_DECISION * decisions
        if not self.reading and needed > self._data.size:
            # Memory that is not written to is not taken.
            larger = np.zeros(needed + self._data.size, np.uint8)
            larger[: self._data.size] = self._data
            self._data = larger

    def _learn_names(self) -> None:
        typical = TYPICAL.encode()
        self._history[2 : 2 + len(typical)] = np.frombuffer(typical, np.uint8)
        stream = _nowhere()
        for _ in range(typical.count(b"\0")):
            code_name(stream, self._names, self._history, self._progress, MAX_NAME)

    def _learn_numbers(self) -> None:
        stream = _nowhere()
        for context, values in _TYPICAL_NUMBERS.items():
            for value in values:
                code_integer(*stream, self._numbers, context * INTEGER_CELLS, value, _NUMBER_LIMIT)


def _nowhere() -> Stream:
    """Returns a stream that what is learnt beforehand is written to: an encoder whose buffer holds nothing."""
    state = np.zeros(3, np.uint64)
    start_encoder(state)
    return Stream(state, np.zeros(0, np.uint8), False)
