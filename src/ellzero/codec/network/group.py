"""A group of tensors: one message, decoded from its beginning. Written down in docs/formats/format.md."""

import math
from collections.abc import Callable, Iterator
from typing import assert_never

import numpy as np

from ellzero.codec.errors import FormatError, LimitError
from ellzero.codec.network.dtypes import DType, Reading
from ellzero.codec.network.layout import first_model
from ellzero.codec.network.matrix import Form, Levels, Profile, code_levels, form_of
from ellzero.codec.network.message import MessageCoder
from ellzero.codec.network.mixing import MixingModel
from ellzero.codec.network.numbers import code_shape, code_single
from ellzero.codec.network.stored_grids import Logarithmic, Uniform, roundable, worth
from ellzero.codec.network.tensors import MAX_WIDTH, Description, Entry, ExactTensor, QuantisedTensor, Tied
from ellzero.codec.network.words import Split, find_split, join_words, split_words

MAX_MODELS = 16

# Kinds of entry; 0 ends the group.
_END, _TIED, _EXACT, _CONSTANT, _UNIFORM, _LOGARITHMIC = range(6)
# Contexts of numbers.
_KIND, _BACK, _DTYPE, _WIDTH, _MODEL, _TOP, _LOW_ZEROS, _STEPS, _NEW_RATIO = 0, 1, 2, 3, 4, 5, 6, 7, 16

Accept = Callable[[Description], None]


class Names:
    """The names of a network's tensors in their order, each of which is found at once among however many."""

    def __init__(self) -> None:
        self._order: list[str] = []
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def add(self, name: str) -> None:
        """Adds a name that is not there."""
        self._places[name] = len(self._order)
        self._order.append(name)

    def place(self, name: str) -> int:
        """Returns how many names came before a name."""
        return self._places[name]

    def latest(self, back: int) -> str:
        """Returns the name after which `back` others came."""
        return self._order[-1 - back]


class Group:
    """Codes the tensors of a group one after the other.

    Args:
        coder: written or read.
        names: of all tensors of the network before this group; grows.
    """

    def __init__(self, coder: MessageCoder, names: Names) -> None:
        self._coder = coder
        self._names = names
        self._models: dict[int, tuple[MixingModel, int]] = {}
        self._model_numbers: dict[tuple[str, ...], int] = {}
        self._sizes: list[int] = []
        self._profiles: list[Profile] = []
        self._ratio: float | None = None

    def encode(self, entry: Entry) -> None:
        """Encodes a tensor."""
        coder = self._coder
        if isinstance(entry, Tied):
            coder.number(_KIND, _TIED)
            coder.name(entry.name)
            coder.number(_BACK, len(self._names) - 1 - self._names.place(entry.of))
            self._names.add(entry.name)
            return
        constant = isinstance(entry, ExactTensor) and entry.words.size > 1 and bool((entry.words == entry.words[0]).all())
        kind = (_CONSTANT if constant else _EXACT) if isinstance(entry, ExactTensor) else _UNIFORM
        if isinstance(entry, QuantisedTensor) and isinstance(entry.grid, Logarithmic):
            kind = _LOGARITHMIC
        coder.number(_KIND, kind)
        coder.name(entry.name)
        coder.number(_DTYPE, entry.dtype.number)
        code_shape(coder, self._sizes, entry.shape)
        form = form_of(entry.shape, entry.dtype.words, entry.image_width)
        if len(entry.shape) == 2:
            coder.number(_WIDTH, form.width)
        model = self._code_model(self._model_number(entry, form))
        if isinstance(entry, ExactTensor):
            words = entry.words[:1] if constant else entry.words
            split = find_split(words, entry.dtype)
            self._code_split(model, entry.dtype, split)
            levels, extra = split_words(words, entry.dtype, split)
            self._code_exact(model, entry.dtype, split, form, levels, extra, constant)
        else:
            self._encode_grid(entry)
            self._code_quantised(model, form, entry.levels.reshape(-1).astype(np.int32), isinstance(entry.grid, Logarithmic))
        self._names.add(entry.name)

    def end(self) -> None:
        """Ends the group."""
        self._coder.number(_KIND, _END)

    def decode(self, max_bytes: int, accept: Accept) -> Iterator[ExactTensor | Tied]:
        """Decodes all tensors; arguments as in `decode_network`."""
        coder = self._coder
        while kind := coder.number(_KIND, below=_LOGARITHMIC + 1, what="the kind of a tensor"):
            name = coder.name()
            if name in self._names:
                raise FormatError(f"two tensors are called {name!r}: the file is damaged")
            if kind == _TIED:
                back = coder.number(_BACK, below=len(self._names), what="the tensor that another is tied to")
                of = self._names.latest(back)
                self._names.add(name)
                yield Tied(name=name, of=of)
                continue
            dtype = tuple(DType)[coder.number(_DTYPE, below=len(DType), what="a data type")]
            shape = code_shape(coder, self._sizes)
            size = math.prod(shape) * dtype.num_bytes
            if size > max_bytes:
                raise LimitError(
                    f"the tensor {name!r} of shape {shape} takes {size} bytes, more than the limit of {max_bytes}: raise the limit"
                )
            accept(Description(name=name, dtype=dtype, shape=shape))
            before = coder.position
            width = coder.number(_WIDTH, below=MAX_WIDTH, what="the width of an image") if len(shape) == 2 else 0
            form = form_of(shape, dtype.words, width)
            model = self._code_model(0)
            count = form.rows * form.columns
            constant = kind == _CONSTANT
            if kind in (_EXACT, _CONSTANT):
                split = self._code_split(model, dtype, Split(top=0, low_zeros=0))
                cells = 1 if constant else count
                levels, extra = np.zeros(cells, np.int32), np.zeros(cells, np.uint64)
                self._code_exact(model, dtype, split, form, levels, extra, constant)
                words = join_words(levels, extra, dtype, split)
                words = np.repeat(words, count) if constant else words
            else:
                if not roundable(dtype):
                    raise FormatError(f"the tensor {name!r} of {dtype.value} claims to be quantised: the file is damaged")
                grid = self._decode_grid(kind, form.rows)
                levels = np.zeros(count, np.int32)
                self._code_quantised(model, form, levels, kind == _LOGARITHMIC)
                try:
                    words = worth(levels, grid, dtype, form.rows)
                except ValueError as error:
                    raise FormatError(f"the tensor {name!r}: {error}") from error
            self._names.add(name)
            yield ExactTensor(name=name, dtype=dtype, shape=shape, words=words, coded_bytes=coder.position - before)

    def _model_number(self, entry: ExactTensor | QuantisedTensor, form: Form) -> int:
        """Chooses which tensors share what they teach: those of a kind; vectors only with those of the same last name."""
        kind = type(entry.grid).__name__ if isinstance(entry, QuantisedTensor) else f"exact {entry.dtype.value}"
        last = entry.name.rpartition(".")[2] if form.rows == 1 else ""
        number = self._model_numbers.setdefault((kind, last), len(self._model_numbers))
        return min(number, MAX_MODELS - 1)

    def _code_model(self, number: int) -> int:
        number = self._coder.number(_MODEL, number, below=MAX_MODELS, what="the model of a tensor")
        if number not in self._models:
            self._models[number] = (first_model(), 128)
        return number

    def _code_split(self, model: int, dtype: DType, split: Split) -> Split:
        memory, last = self._models[model]
        difference = split.top - last
        coded = self._coder.number(_TOP, difference * 2 if difference >= 0 else -difference * 2 - 1, below=1 << 13, what="an exponent")
        top = last + (coded >> 1 if coded & 1 == 0 else -(coded + 1 >> 1))
        highest = (1 << dtype.exponent_bits) - 1 if dtype.reading is Reading.FLOAT else 64
        if not 0 <= top <= highest:
            raise FormatError(f"an exponent is {top}, which must lie in 0..{highest}: the file is damaged")
        self._models[model] = (memory, top)
        zeros = split.low_zeros
        if dtype.reading is Reading.FLOAT:
            zeros = self._coder.number(_LOW_ZEROS, zeros, below=dtype.mantissa_bits + 1, what="a number of bits")
        return Split(top=top, low_zeros=zeros)

    def _code_exact(
        self, model: int, dtype: DType, split: Split, form: Form, levels: np.ndarray, extra: np.ndarray, constant: bool
    ) -> None:
        if levels.size == 0:
            return
        if constant:
            form = Form(rows=1, columns=1, taps=1, width=0)
        bits = split.extra_bits(dtype)
        matrix = Levels(form=form, levels=levels, extra=extra, extra_bits=bits, top=split.top, logarithmic=True)
        self._code(model, matrix)

    def _code_quantised(self, model: int, form: Form, levels: np.ndarray, logarithmic: bool) -> None:
        if levels.size:
            extra = np.zeros(1, np.uint64)
            self._code(model, Levels(form=form, levels=levels, extra=extra, extra_bits=0, top=0, logarithmic=logarithmic))

    def _code(self, model: int, matrix: Levels) -> None:
        self._profiles.append(code_levels(self._coder, self._models[model][0], matrix, self._profiles))

    def _encode_grid(self, entry: QuantisedTensor) -> None:
        match entry.grid:
            case Uniform(steps=steps):
                self._coder.number(_STEPS, int(len(steps) > 1))
                for step in steps:
                    code_single(self._coder, step)
            case Logarithmic(smallest=smallest, ratio=ratio):
                code_single(self._coder, smallest)
                self._code_ratio(ratio)
            case _ as never:
                assert_never(never)

    def _decode_grid(self, kind: int, rows: int) -> Uniform | Logarithmic:
        if kind == _LOGARITHMIC:
            smallest = code_single(self._coder)
            return Logarithmic(smallest=smallest, ratio=self._code_ratio())
        count = rows if self._coder.number(_STEPS, below=2, what="a flag") else 1
        return Uniform(steps=tuple(code_single(self._coder) for _ in range(count)))

    def _code_ratio(self, ratio: float = 1.0) -> float:
        """Codes the ratio of a logarithmic grid: as a rule that of the last one."""
        if self._ratio is None or self._coder.number(_NEW_RATIO, int(ratio != self._ratio), below=2, what="a flag"):
            self._ratio = code_single(self._coder, ratio)
        return self._ratio
