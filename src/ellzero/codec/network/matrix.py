"""A tensor as the coder of levels takes it: a matrix, linked to earlier tensors, with a model that others share."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.errors import FormatError
from ellzero.codec.network import layout
from ellzero.codec.network.layout import Cells
from ellzero.codec.network.message import MessageCoder
from ellzero.codec.network.mixing import MixingModel
from ellzero.codec.network.repeats import TABLE_BITS, nothing_repeated

MIXED_CELLS = 1 << 18
"""Larger matrices than this are written in the quick mode."""

_REPEATED_CELLS = 256
_SAMPLED_CELLS = 1 << 16
_PIECE = 1 << 18
MAX_REPEATED_CELLS = 1 << 26

# Contexts of the numbers that are coded here.
_MODES, _COLUMN_LINK, _ROW_LINK = 20, 21, 22

# How a tensor is coded, bits of one number: some levels are zero, some negative, contexts are mixed, magnitudes may repeat.
_HAS_ZEROS, _HAS_SIGNS, _MIXED, _REPEATS = 1, 2, 4, 8

Profile = NDArray[np.uint8]
"""How alive each row of a tensor is: the number of bits of its count of non-zeros, at most 7."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """A tensor's shape as a matrix.

    Attributes:
        rows: output channels; 1 for a vector.
        columns: cells of a row.
        taps: cells of a channel: the places of a convolution's kernel.
        width: cells after which a neighbour in the second direction comes, in an image or a kernel; 0 or 1 for none.
    """

    rows: int
    columns: int
    taps: int
    width: int


def form_of(shape: tuple[int, ...], words: int, image_width: int) -> Form:
    """Finds the matrix for a shape.

    Args:
        shape: of the tensor.
        words: of one number; the words of a number are neighbours in a row.
        image_width: of a matrix whose columns are pixels, else 0.
    """
    size = math.prod(shape) * words
    if len(shape) < 2:
        return Form(rows=1, columns=size, taps=1, width=0)
    taps = max(math.prod(shape[2:]) * words, 1)
    width = shape[-1] * words if len(shape) > 3 else image_width if len(shape) == 2 else 0
    return Form(rows=shape[0], columns=size // max(shape[0], 1), taps=taps, width=width)


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Levels and what is known of them beforehand.

    Attributes:
        form: the matrix.
        levels: row by row, [rows * columns]; filled in where they are read.
        extra: bits that follow each, of the same size; or empty.
        extra_bits: how many of them; -1 where the level says so.
        top: the level that no bits follow, where `extra_bits` is -1.
        logarithmic: whether the levels are logarithms.
    """

    form: Form
    levels: NDArray[np.int32]
    extra: NDArray[np.uint64]
    extra_bits: int
    top: int
    logarithmic: bool

    def repeats(self) -> bool:
        """Tells whether an eighth or more of the magnitudes that are not zero have been there before, bit for bit."""
        if self.extra.size != self.levels.size or not _REPEATED_CELLS <= self.levels.size <= MAX_REPEATED_CELLS:
            return False
        sampled = self.levels.size > _SAMPLED_CELLS
        pieces: list[NDArray[np.uint64]] = []
        for start in range(0, self.levels.size, _PIECE):
            levels = self.levels[start : start + _PIECE]
            key = (np.abs(levels).astype(np.uint64) << np.uint64(53)) ^ self.extra[start : start + _PIECE]
            key = key[levels != 0]
            # A sixteenth of all possible values, so that a value is in the sample as often as in the tensor.
            pieces.append(key[(key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(60) == 0] if sampled else key)
        key = np.concatenate(pieces)
        key.sort()
        distinct = int(np.count_nonzero(np.diff(key))) + min(key.size, 1)
        return distinct * 8 <= key.size * 7 and key.size > 0


def code_levels(coder: MessageCoder, model: MixingModel, matrix: Levels, profiles: list[Profile]) -> Profile:
    """Codes the levels of a tensor.

    Args:
        coder: written or read.
        model: of tensors like this one, which learns.
        matrix: the levels.
        profiles: of the tensors before it in its group.

    Returns:
        The tensor's own profile.
    """
    form, levels = matrix.form, matrix.levels.reshape(matrix.form.rows, matrix.form.columns)
    alive = levels != 0
    modes = _HAS_ZEROS * int(not alive.all()) + _HAS_SIGNS * int((levels < 0).any())
    modes += _MIXED * int(levels.size <= MIXED_CELLS) + _REPEATS * int(matrix.repeats())
    modes = coder.number(_MODES, modes, below=16, what="the mode of a tensor")
    if modes & _REPEATS and matrix.extra.size != matrix.levels.size:
        raise FormatError("a quantised tensor claims to repeat bits that it has not: the file is damaged")
    own = layout.with_own_slots(model, form.rows + form.columns if modes & _MIXED else 0)
    rows = np.ones(form.rows, np.uint8)
    columns = np.ones(form.columns, np.uint8)
    link = np.zeros(form.columns, np.uint8)
    if modes & _HAS_ZEROS:
        link = _linked(coder, _COLUMN_LINK, profiles, form.columns // form.taps, form.taps)
        if form.rows > 1:
            rows, columns = alive.any(1).astype(np.uint8), alive.any(0).astype(np.uint8)
            row_link = _linked(coder, _ROW_LINK, profiles, form.rows, 1)
            coder.flags(own, columns, form.width, link)
            coder.flags(own, rows, 1, row_link)
    cells = _new_cells(matrix, modes, rows, columns, link)
    coder.cells(own, cells)
    model.memory[:] = own.memory[: model.memory.size]
    return _profile(levels)


def _new_cells(matrix: Levels, modes: int, rows: NDArray[np.uint8], columns: NDArray[np.uint8], link: NDArray[np.uint8]) -> Cells:
    """Makes what `code_cells` takes, with nothing seen yet.

    Args:
        matrix: the levels.
        modes: bits, as in the file.
        rows: 1 where a row lives.
        columns: 1 where a column lives.
        link: of the columns, to an earlier tensor.
    """
    form = matrix.form
    geometry = np.zeros(layout.NUM_GEOMETRY, np.int64)
    geometry[layout.ROWS], geometry[layout.COLUMNS] = form.rows, form.columns
    geometry[layout.TAPS], geometry[layout.WIDTH] = form.taps, form.width
    geometry[layout.LOGARITHMIC] = matrix.logarithmic
    geometry[layout.HAS_ZEROS], geometry[layout.HAS_SIGNS] = modes & _HAS_ZEROS > 0, modes & _HAS_SIGNS > 0
    geometry[layout.MIXED], geometry[layout.REPEATS] = modes & _MIXED > 0, modes & _REPEATS > 0
    geometry[layout.EXTRA_BITS], geometry[layout.TOP_BIT] = matrix.extra_bits, matrix.top
    running = np.zeros(layout.NUM_RUNNING, np.int64)
    running[layout.ALL_MEAN] = 256
    running[layout.ABOVE] = -1
    running[layout.ROWS_LEFT] = rows.sum()
    running[layout.LIVE_COLUMNS] = columns.sum()
    channels = form.columns // form.taps
    return Cells(
        levels=matrix.levels,
        extra=matrix.extra,
        rows=rows,
        columns=columns,
        link=link,
        geometry=geometry,
        running=running,
        column_count=np.zeros(form.columns, np.int32),
        channel_mean=np.zeros(channels, np.int64),
        channel_seen=np.zeros(channels, np.int64),
        tap_mean=np.zeros(form.taps, np.int64),
        tap_seen=np.zeros(form.taps, np.int64),
        repeat=nothing_repeated(),
        table=np.full(1 << TABLE_BITS if modes & _REPEATS else 1, -1, np.int32),
    )


def _profile(levels: NDArray[np.int32]) -> Profile:
    counts = (levels != 0).sum(1) if levels.shape[0] > 1 else (levels[0] != 0).astype(np.int64)
    return np.minimum(np.frexp(counts.astype(np.float64))[1], 7).astype(np.uint8)


def _linked(coder: MessageCoder, context: int, profiles: list[Profile], lines: int, taps: int) -> NDArray[np.uint8]:
    """Codes which earlier profile lines are linked to, and stretches it: a channel's over its taps, a feature map's over its pixels."""
    fitting = [number for number, profile in enumerate(profiles) if 1 < profile.size <= lines and lines % profile.size == 0]
    chosen = 0
    if fitting and not coder.reading:
        # The latest of the largest: vectors among them say less than matrices.
        largest = max(profiles[number].size for number in fitting)
        chosen = 1 + min(
            (index for index, number in enumerate(reversed(fitting)) if profiles[number].size == largest),
            key=lambda index: (-int(profiles[fitting[-1 - index]].max() > 1), index),
        )
    if fitting:
        chosen = coder.number(context, chosen, below=len(fitting) + 1, what="a link between tensors")
    if not chosen:
        return np.zeros(lines * taps, np.uint8)
    profile = profiles[fitting[-chosen]]
    return np.repeat(profile, lines * taps // profile.size)
