"""Decodes network files in Python without any library, written from docs/formats/network-model.md and format.md alone."""

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from math import exp, ldexp, prod
from types import SimpleNamespace

from decoder import NETWORK, Cell, Message, check, integer, sections

TYPES = "F32 F16 BF16 F64 I64 I32 I16 I8 U8 U16 U32 U64 BOOL F8_E4M3 F8_E5M2 C64 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ"
BITS = {"F32": 32, "F16": 16, "BF16": 16, "F64": 64, "I64": 64, "I32": 32, "I16": 16, "U16": 16, "U32": 32, "U64": 64, "C64": 32}
MANTISSA = {"F32": 23, "F16": 10, "BF16": 7, "F64": 52, "C64": 23, "F8_E4M3": 3, "F8_E5M2": 2, "F8_E4M3FNUZ": 3, "F8_E5M2FNUZ": 2}
NUMBERS = {  # by context, a digit each
    0: "25", 2: "00", 3: "0", 4: "0101", 7: "0", 8: "2121", 9: "0202", 10: "02", 14: "88", 15: "44", 16: "0", 20: "76", 21: "1", 22: "0",
}  # fmt: skip
NAMES = """layers.0.weight layers.0.bias layers.1.weight layers.1.bias conv1.weight conv1.bias conv2.weight fc1.weight fc1.bias fc.weight
fc.bias bn1.weight bn1.bias bn1.running_mean bn1.running_var bn1.num_batches_tracked layer1.0.conv1.weight layer1.0.bn1.weight
features.0.weight features.0.bias classifier.0.weight lstm.weight_ih_l0 lstm.weight_hh_l0 lstm.bias_ih_l0 embedding.weight
model.layers.0.self_attn.q_proj.weight model.layers.0.mlp.up_proj.weight norm.weight lm_head.weight"""
WEIGHTS = dict.fromkeys(range(2, 22), (0.0, 0.25, 0.15, 0.2, 0.15, 0.1, 0.15)) | {
    0: (-0.24, 0.48, 0.24, 0.32, 0.3), 22: (0.2, 0.35, 0.35, 0.0), 24: (0.1, 0.2, 0.2, 0.6),
    1: (-0.5, 0.0, 0.06, 0.06, 0.4, 0.13, -0.13, 0.06, 0.02, 0.03, -0.08, -0.07, 0.0, 0.06, 0.12),
    23: (-0.54, -0.3, 0.0, 0.17, 0.21, 0.24, -0.11, 0.26, 0.25, 0.08, 0.03, 0.07, 0.14, 0.16, 0.46),
}  # fmt: skip
UPPER = [min(round(65536 / (1 + exp(-x / 256))), 65535) for x in range(3072)]
SQUASH = [65536 - p for p in UPPER[:0:-1]] + UPPER


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def log(value: int) -> int:
    shift = (value + 4).bit_length() - 3
    return 4 * shift + (value + 4 >> shift) - 4


class Model:  # cells, made when they are first used, and sets of weights
    def __init__(self, group: "Group", weights: dict[int, tuple[float, ...]]) -> None:
        self.group, self.cells = group, {}
        self.weights = {number: [round(65536 * weight) for weight in row] for number, row in weights.items()}

    def alone(self, place: int, limit: int) -> int:
        return self.cells.setdefault(place, Cell(limit)).decide(self.group.message)

    def mixed(self, places: list[int], number: int, limit: int, rate: int = 14) -> int:
        cells, weights = [self.cells.setdefault(place, Cell(limit)) for place in places], self.weights[number]
        for cell in cells:
            cell.q = cell.q if cell.n else cells[0].q
        inputs = [bisect_left(SQUASH, cell.q >> 6, hi=6142) - 3071 for cell in cells]
        dot = 32768 + sum(weight * x for weight, x in zip(weights, inputs, strict=False)) >> 16
        p = SQUASH[3071 + clamp(dot, -3071, 3071)]
        decision = self.group.message.bit(p)
        for index, (cell, x) in enumerate(zip(cells, inputs, strict=True)):
            weights[index] += (x * ((decision << 16) - p) * rate + 2**19) >> 20
            cell.learn(decision << 22)
        return decision


def neighbours(line: Counter[int], at: int, width: int) -> list[int]:
    """What lies one and two before, above, right and left of that, and two above."""
    return [line[at - 1], line[at - 2], *(line[at - back] if at >= width else 0 for back in (width, width - 1, width + 1, 2 * width))]


class Matrix:
    """Decodes `levels`, each with the extra bits behind it, of which there are `extra(magnitude)`."""

    def __init__(self, model: Model, form: tuple[int, int, int, int], extra: Callable[[int], int], uniform: bool) -> None:
        self.model, self.extra, self.uniform, group = model, extra, uniform, model.group
        self.rows, self.columns, self.taps, width = form
        self.image, self.width = width > 1, width if width > 1 else self.columns
        self.link, self.counts, self.block, self.recent = [0] * self.columns, Counter(), 0, 0
        self.mean, self.means = Cell(255, 256), {}
        self.words, self.places, self.length, self.last, self.before = {}, {}, 0, -2, -2
        model.cells = {place: cell for place, cell in model.cells.items() if place < 6400}
        modes, rows, columns = group.number(20), range(self.rows), range(self.columns)
        self.zeros, self.signs, self.mixing, self.repeats = (modes & mode for mode in (1, 2, 4, 8))
        if self.zeros:
            self.link = group.link(21, self.columns // self.taps, self.columns)
        if self.zeros and self.rows > 1:
            row_link = group.link(22, self.rows, self.rows)
            columns, rows = self.live(self.link, self.width, self.image), self.live(row_link, self.rows, False)
        lines, self.above = [Counter() for _ in range(self.rows)], None
        for self.rows_left, row in zip(range(len(rows), 0, -1), rows, strict=True):
            self.line, self.means["row"], self.half = lines[row], Cell(255, self.mean.q), (self.counts.total() >> 1) // self.columns
            for self.columns_left, column in zip(range(len(columns), 0, -1), columns, strict=True):
                self.cell(row, column)
            self.above = self.line
        cells = [(line, column) for line in lines for column in range(self.columns)]
        counts = map(len, lines) if self.rows > 1 else [int(column in line) for line, column in cells]
        group.profiles.append([min(7, count.bit_length()) for count in counts])
        self.levels = [(line[column], self.words.get(at, (0, 0))[1]) for at, (line, column) in enumerate(cells)]

    def live(self, link: list[int], width: int, image: bool) -> list[int]:
        flags = Counter()
        for at, k in enumerate(min(entry, 3) for entry in link):
            left, second, up, right, corner, _ = neighbours(flags, at, width)
            border = 1 + min(14, at // width, (len(link) - 1) // width - at // width, at % width, width - 1 - at % width) if image else 0
            places = [0, 1 + left + 2 * up + 4 * right + 8 * corner, 17 + k, 21 + 6 * k + left + second + up + right + corner]
            flags[at] = self.model.mixed([*places, 45 + border], 0, 255)
        return [at for at in range(len(link)) if flags[at]]

    def cell(self, row: int, column: int) -> None:
        at, line, size, nonzero = row * self.columns + column, self.line, 0, 1
        if at // 16384 != self.block:
            self.block, self.recent, self.half = at // 16384, 0, (self.counts.total() >> 1) // self.columns
        left, second, up, right, corner, top = neighbours(line, column, self.width)
        over, back = self.above[column] if self.above is not None else 0, line[column - self.taps] if self.taps > 1 else 0
        self.near, self.touching = (left, over, up, back), [level != 0 for level in (left, up, right, corner, second, top)]
        if self.zeros and not self.mixing:
            context = (left != 0) + 2 * (over != 0) + 4 * sum(self.counts[column] > m * self.half for m in (1, 2, 4))
            context += 16 * (self.recent & 1) + 32 * (self.recent & 62 != 0) + 64 * (self.recent >> 6 != 0)
            nonzero = self.model.alone(384 + context, 1023)
            self.recent = (2 * self.recent + nonzero) % 2**32
        if nonzero or self.mixing:
            places = "row", ("channel", column // self.taps), ("tap", column % self.taps)
            means = [*(self.means.setdefault(place, Cell(255, self.mean.q)) for place in places), self.mean]
            r, c, t, whole = (log(mean.q >> 4) if self.uniform else mean.q for mean in means)
            around, shift, line_shift = sum(map(abs, self.near)), *((0, 2) if self.uniform else (6, 8))
            self.sizes = clamp(log(4 * around) if self.uniform else around, 0, 47)
            self.expected = clamp(r + c + t - 2 * whole >> shift, 0, 47)
            self.lines = 8 * clamp(r >> line_shift, 0, 7) + clamp(c >> line_shift, 0, 7)
            if not (self.zeros and self.mixing) or self.nonzero(row, column):
                word = (self.repeats and self.repeat()) or self.word(column)
                size, w = word[0], (word[0] ^ 32 * word[1]) % 2**64
                key = (w ^ w >> 32) % 2**32 * 0x1E3779B1 % 2**32 >> 16
                self.before = self.places[key] if self.words.get(self.places.get(key)) == word else -2
                self.words[at], self.places[key], self.last = word, at, at
                line[column] = -size if self.signs and self.negative(column) else size
                self.counts[column] += 1
            for mean in means:
                mean.learn(256 * size)

    def window(self, column: int, weights: tuple[int, ...], worth: Callable[[int], int]) -> int:
        """Adds up what the levels around are worth, times a weight by how far they are away."""
        places = [(y, x) for y in range(4) for x in range(-3, 4 if y else 0) if 0 <= column % self.width + x < self.width]
        return sum(weights[max(y, abs(x)) - 1] * worth(self.line[column - y * self.width + x]) for y, x in places)

    def nonzero(self, row: int, column: int) -> int:
        count, in_row, n, due, share = self.counts[column], len(self.line), self.columns_left, 0, 60
        if self.above is not None:
            missing = len(self.above) - in_row
            due, share = clamp(missing, -2, 24) + 3, bisect_left(SQUASH, min((max(4 * missing, 1) << 14) // n, 65535), hi=6142) // 103
        rows_left, columns_left = (min(7, 1 + (left - 1).bit_length()) for left in (self.rows_left, n))
        pattern = sum(touches << place for place, touches in enumerate(self.touching[:4]))
        ternary = sum(3**place * min(abs(level), 2) for place, level in enumerate(self.near))
        # The page's 64 is added to the numbers already.
        places = [64, 6432 + row, 6432 + self.rows + column, 65 + pattern, 81 + 4 * self.link[column] + min(in_row, 3)]
        places += [113 + 6 * min(sum(self.touching), 5) + min(count, 5), 149 + (0 if count else rows_left)]
        places += [157 + (0 if in_row else columns_left), 165 + min(in_row, 15), 181 + self.expected, 229 + self.sizes, 277 + ternary]
        places += [6048 + 8 * due + min(n.bit_length(), 8) - 1, 6272 + share, 6336 + min(31, self.window(column, (6, 3, 1), bool))]
        return self.model.mixed(places, 23 if self.image and self.taps == 1 else 1, 1023, rate=6)

    def repeat(self) -> tuple[int, int] | None:
        starts = (self.before + 1, 1), (self.before - 1, -1), (self.last - 1, -1), (self.last, -1)
        for attempt, start in enumerate(starts):
            self.place, self.step = (self.place, self.step) if self.length else start
            if self.place in self.words and self.model.alone(5984 + 16 * attempt + min(self.length, 15), 255):
                self.place, self.length = self.place + self.step, self.length + 1
                return self.words[self.place - self.step]
            self.length = 0
        return None

    def word(self, column: int) -> tuple[int, int]:
        beside, tap = min(abs(self.near[0]), 7) + 8 * min(abs(self.near[1]), 7), min(column % self.taps, 30)
        for size in range(1, 22):
            b = 512 + 256 * (size - 1)
            places = [b, b + 1 + self.expected, b + 49 + self.sizes, 6400 + size, b + 97 + beside, b + 161 + tap, b + 192 + self.lines]
            if size > 20 or not self.model.mixed(places if self.mixing else places[:3], 1 + size, 255):
                break
        if size > 20:
            k = next(k for k in range(30) if k == 29 or not self.model.alone(5696 + k, 255))
            size = 20 + (1 << k | self.model.group.message.raw(k))
        extra, node = self.extra(size), 1
        for _ in range(min(extra, 3)):
            node = 2 * node + self.model.alone(5728 + 8 * min(size - 1, 31) + node, 1023)
        rest = max(extra - 3, 0)
        return size, (node << rest | self.model.group.message.raw(rest)) - (1 << extra)

    def negative(self, column: int) -> int:
        around = self.window(column, (2, 1, 0), lambda level: clamp(level, -1, 1))
        left, over, up, back = (1 + clamp(level, -1, 1) for level in self.near)
        places = [5632, 5633 + 3 * left + up, 5642 + 3 * back + over, 6383 + clamp(around, -15, 15)]
        return self.model.mixed(places, 24 if self.image and self.taps == 1 else 22, 255)


class Group:
    def __init__(self, payload: bytes) -> None:
        self.cells, self.naming = [[Cell(127) for _ in range(160)] for _ in range(23)], Model(self, dict.fromkeys(range(3), (0.3,) * 6))
        self.history, self.place, self.length = bytearray(2), 0, 0
        self.models, self.tops, self.sizes, self.profiles, self.ratio = {}, {}, [], [], None
        # What is learnt before the message: both as if they had been coded.
        numbers = [(context, f"{int(value) + 1:b}"[1:]) for context, values in NUMBERS.items() for value in values]
        names = "\0".join(NAMES.split()).encode() + b"\0"
        bits = ["1" * len(digits) + "0" + digits[:2] for _, digits in numbers] + [f"{byte:08b}" for byte in names]
        decisions = map(int, "".join(bits))
        self.message = SimpleNamespace(bit=lambda _: next(decisions), raw=lambda _: 0)
        for context, _ in numbers:
            self.number(context)
        for _ in names:
            self.byte()
        self.message = Message(payload)

    def number(self, context: int) -> int:
        return integer(self.message, self.cells[context])

    def zigzag(self, context: int) -> int:
        value = self.number(context)
        return -(value + 1) // 2 if value & 1 else value // 2

    def single(self) -> float:
        exponent, count = self.zigzag(14) - 7, self.number(15)
        significand = 1 << count | 2 * self.message.raw(count - 1) + 1 if count else 1
        return ldexp(significand, exponent - count)

    def link(self, context: int, lines: int, size: int) -> list[int]:
        fitting = [profile for profile in self.profiles if len(profile) > 1 and lines % len(profile) == 0]
        chosen = self.number(context) if fitting else 0
        profile = fitting[-chosen] if chosen else [0]
        return [profile[at * len(profile) // size] for at in range(size)]

    def byte(self) -> int:
        history, at, node, c, hashes = self.history, len(self.history), 1, 0, []
        if self.length == 0:
            self.place = history.rfind(history[-2:], max(0, at - 1025), at - 1) + 2
            self.length = int(self.place > 1)
        guess = history[self.place] | 256 if self.length else 0
        for order in range(1, 5):
            c = (257 * c + history[-order] + 1) % 2**32 if order <= at else c
            hashes.append((8 * c + order) % 2**32 * 0x1E3779B1)
        for shift in reversed(range(8)):
            agrees = guess >> shift + 1 == node
            places = [node, *((h + node * 0x3D4D51CB) % 2**32 * 0x1E3779B1 % 2**32 >> 16 for h in hashes)]
            places.append(256 + (2 * min(self.length, 7) + (guess >> shift & 1) if agrees else 0))
            node = 2 * node + self.naming.mixed(places, 0 if not agrees else 1 if self.length < 3 else 2, 127)
        history.append(node - 256)
        self.place, self.length = self.place + 1, self.length + 1 if guess == node else 0
        return node - 256

    def tensor(self, kind: int) -> tuple[str, tuple[int, ...], list[int]]:
        dtype, shape = TYPES.split()[self.number(2)], []
        for dimension in range(self.number(8)):
            place = self.number(min(9 + dimension, 12))
            shape.append(self.sizes.pop(place - 1) if place else self.number(13))
            self.sizes = [shape[-1], *self.sizes][:8]
        each, mantissa = 2 if dtype == "C64" else 1, MANTISSA.get(dtype)
        width = self.number(3) if len(shape) == 2 else shape[-1] * each if len(shape) > 3 else 0
        size, rows, taps = prod(shape) * each, *((shape[0], prod(shape[2:]) * each) if len(shape) > 1 else (1, 1))
        number, low, extra = self.number(4), 0, lambda _: 0
        if kind < 4:
            top = self.tops[number] = self.tops.get(number, 128) + self.zigzag(5)
            low = self.number(6) if mantissa else 0
            extra = (lambda _: mantissa - low) if mantissa else (lambda size: max(top - size, 0))
        else:
            worth = [self.single() for _ in range(rows if kind == 4 and self.number(7) else 1)]
            if kind == 5 and (self.ratio is None or self.number(16)):
                self.ratio = self.single()
        model = self.models.setdefault(number, Model(self, WEIGHTS))
        form = (1, 1, 1, 0) if kind == 3 else (rows, size // max(rows, 1), taps, width)
        levels = Matrix(model, form, extra, kind == 4).levels if size else []
        if kind < 4:
            words = [exact(level, more << low, top, dtype) for level, more in levels]
        elif kind == 4:
            words = [rounded(level * worth[at * len(worth) // size], dtype) for at, (level, _) in enumerate(levels)]
        else:
            for _ in range(max((abs(level) for level, _ in levels), default=0)):
                worth.append(worth[-1] * self.ratio)
            words = [rounded(clamp(level, -1, 1) * worth[abs(level) - 1], dtype) for level, _ in levels]
        return dtype, tuple(shape), words * size if kind == 3 else words


def exact(level: int, more: int, top: int, dtype: str) -> int:
    bits, mantissa = BITS.get(dtype, 8), MANTISSA.get(dtype)
    if mantissa is None or level == 0:
        return clamp(level, -1, 1) * (1 << max(top - abs(level), 0) | more) % 2**bits
    return (level < 0) << bits - 1 | (top + 1 - abs(level)) % 2 ** (bits - 1 - mantissa) << mantissa | more


def rounded(value: float, dtype: str) -> int:
    bits = int.from_bytes(struct.pack({"F32": "<f", "F16": "<e", "F64": "<d", "BF16": "<f"}[dtype], value), "little")
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16 if dtype == "BF16" else bits


def decode(file: bytes) -> dict[str, object]:
    """Decodes a network file: type, shape and words of each tensor, or the name of the one that it is tied to."""
    holds, groups, trailer = sections(file)
    check(holds == NETWORK and trailer == b"" and all(kind == 1 for kind, _ in groups), "no network")
    tensors: dict[str, object] = {}
    for group in (Group(payload) for _, payload in groups):
        while kind := group.number(0):
            name = bytes(iter(group.byte, 0)).decode()
            tensors[name] = list(tensors)[-1 - group.number(1)] if kind == 1 else group.tensor(kind)
    return tensors
