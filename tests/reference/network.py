"""Decodes the groups of a network: the chapter "Networks" of docs/format.md in code, written from it alone."""

import struct
from collections.abc import Iterator
from math import prod

from decoder import NETWORK, Message, check, sections

NAMES = "F32 F16 BF16 F64 I64 I32 I16 I8 U8 U16 U32 U64 BOOL F8_E4M3 F8_E5M2 C64 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ"
TYPES = NAMES.split()
MANTISSA = {"F32": 23, "F16": 10, "BF16": 7, "F64": 52, "C64": 23, "F8_E4M3": 3, "F8_E5M2": 2, "F8_E4M3FNUZ": 3, "F8_E5M2FNUZ": 2}
BITS = {t: int(t[1:]) for t in TYPES if t[1:].isdigit()} | {"BF16": 16, "C64": 32}
TYPICAL = (
    "layers.0.weight layers.0.bias layers.1.weight layers.1.bias conv1.weight conv1.bias conv2.weight fc1.weight fc1.bias fc.weight "
    "fc.bias bn1.weight bn1.bias bn1.running_mean bn1.running_var bn1.num_batches_tracked layer1.0.conv1.weight layer1.0.bn1.weight "
    "features.0.weight features.0.bias classifier.0.weight lstm.weight_ih_l0 lstm.weight_hh_l0 lstm.bias_ih_l0 embedding.weight "
    "model.layers.0.self_attn.q_proj.weight model.layers.0.mlp.up_proj.weight norm.weight lm_head.weight "
)
FIRST = {
    0: (2, 5), 2: (0, 0), 3: (0,), 4: (0, 1, 0, 1), 7: (0,), 8: (2, 1, 2, 1), 9: (0, 2, 0, 2), 10: (0, 2), 14: (8, 8), 15: (4, 4),
    16: (0,), 20: (7, 6), 21: (1,), 22: (0,),
}  # fmt: skip
WEIGHTS = {
    0: (-0.24, 0.48, 0.24, 0.32, 0.3),
    1: (-0.5, 0.0, 0.06, 0.06, 0.4, 0.13, -0.13, 0.06, 0.02, 0.03, -0.08, -0.07, 0.0, 0.06, 0.12),
    22: (0.2, 0.35, 0.35, 0.0),
    23: (-0.54, -0.3, 0.0, 0.17, 0.21, 0.24, -0.11, 0.26, 0.25, 0.08, 0.03, 0.07, 0.14, 0.16, 0.46),
    24: (0.1, 0.2, 0.2, 0.6),
}
WEIGHTS |= dict.fromkeys(range(2, 22), (0.0, 0.25, 0.15, 0.2, 0.15, 0.1, 0.15))


def tables() -> tuple[list[int], list[int]]:
    one, upper = 1 << 96, []
    term = step = power = one
    for k in range(1, 20):
        term //= 256 * k
        step += term
    for _ in range(3072):
        upper.append(min((65536 * power + (one + power) // 2) // (one + power), 65535))
        power = power * step >> 96
    squash = [65536 - v for v in upper[:0:-1]] + upper
    stretch, x = [], 0
    for p in range(65536):
        while x < 6142 and squash[x] < p:
            x += 1
        stretch.append(x - 3071)
    return squash, stretch


SQUASH, STRETCH = tables()


class Model:
    """Cells, made when they are first used, and weights."""

    def __init__(self, message: Message, weights: dict[int, tuple[float, ...]]) -> None:
        self.message, self.cells = message, {}
        self.weights = {mixer: [round(w * 65536) for w in row] for mixer, row in weights.items()}

    def learn(self, cell: int, bit: int, limit: int) -> None:
        q, n = self.cells.get(cell, (1 << 21, 0))
        self.cells[cell] = (q + (((bit << 22) - q) * (131072 // (2 * n + 3)) >> 16), min(n + 1, limit))

    def alone(self, cell: int, limit: int, known: int | None = None) -> int:
        bit = self.message.bit(max(self.cells.get(cell, (1 << 21, 0))[0] >> 6, 1)) if known is None else known
        self.learn(cell, bit, limit)
        return bit

    def mixed(self, contexts: list[int], mixer: int, limit: int, known: int | None = None, rate: int = 14) -> int:
        first = self.cells.get(contexts[0], (1 << 21, 0))[0]
        for cell in contexts:
            if self.cells.get(cell, (0, 0))[1] == 0:
                self.cells[cell] = (first, 0)
        said = [STRETCH[self.cells[cell][0] >> 6] for cell in contexts]
        weights = self.weights[mixer]
        dot = 32768 + sum(w * x for w, x in zip(weights, said, strict=False)) >> 16
        p = SQUASH[min(max(dot, -3071), 3071) + 3071]
        bit = self.message.bit(p) if known is None else known
        for index, (cell, x) in enumerate(zip(contexts, said, strict=True)):
            weights[index] += (x * ((bit << 16) - p) * rate + (1 << 19)) >> 20
            self.learn(cell, bit, limit)
        return bit

    def integer(self, base: int, known: int | None = None) -> int:
        size, number = 0, None if known is None else known + 1
        while size < 39 and self.alone(base + size, 127, number and int(number >> size + 1 > 0)):
            size += 1
        node, left = 1, size
        while left and node < 4:
            left -= 1
            node = 2 * node + self.alone(base + 40 + 3 * size + node - 1, 127, number and number >> left & 1)
        if number:
            return number - 1
        return (node << left | self.message.raw(left)) - 1


def log(value: int) -> int:
    shift = (value + 4).bit_length() - 3
    return 4 * shift + (value + 4 >> shift) - 4


def clip(value: int, limit: int) -> int:
    return min(max(value, 0), limit - 1)


def steps(left: int) -> int:
    return min((left - 1).bit_length() + 1, 7) if left > 1 else 1


def ternary(level: int) -> int:
    return 1 + (level > 0) - (level < 0)


def code_flags(model: Model, link: list[int], width: int) -> list[int]:
    flags: list[int] = []
    for at, linked in enumerate(link):
        image = at >= width > 1
        left, second = flags[at - 1] if at else 0, flags[at - 2] if at > 1 else 0
        up, right = (flags[at - width], flags[at - width + 1]) if image else (0, 0)
        corner = flags[at - width - 1] if image and at > width else 0
        linked = min(linked, 3)
        around = 21 + 6 * linked + left + second + up + right + corner
        row, column = divmod(at, width)
        border = min(row, (len(link) - 1) // width - row, column, width - 1 - column, 14) + 1 if width > 1 else 0
        flags.append(model.mixed([0, 1 + left + 2 * up + 4 * right + 8 * corner, 17 + linked, around, 45 + border], 0, 255))
    return flags


class Mean:
    def __init__(self) -> None:
        self.value, self.seen = 256, 0

    def add(self, size: int) -> None:
        self.value += ((size << 8) - self.value) * (131072 // (2 * min(self.seen, 255) + 3)) >> 16
        self.seen += 1


class Repeats:
    def __init__(self) -> None:
        self.place = self.step = self.length = 0
        self.last = self.before = -1
        self.table: dict[int, int] = {}

    def find(self, model: Model, words: list[tuple[int, int]], at: int) -> tuple[int, int] | None:
        for attempt in range(4):
            if self.length == 0:
                if attempt < 2 and self.before < 0:
                    continue
                self.step = 1 if attempt == 0 else -1
                self.place = self.before + self.step if attempt < 2 else self.last - (attempt == 2)
            asked = 0 <= self.place < at and words[self.place][0]
            if asked and model.alone(5984 + 16 * attempt + min(self.length, 15), 255):
                self.place, self.length = self.place + self.step, self.length + 1
                return words[self.place - self.step]
            self.length = 0
        return None

    def remember(self, words: list[tuple[int, int]], at: int) -> None:
        word = (words[at][0] ^ words[at][1] << 5) % 2**64
        key = (word ^ word >> 32) % 2**32 * 0x1E3779B1 % 2**32 >> 16
        before = self.table.get(key, -1)
        self.before = before if before >= 0 and words[before] == words[at] else -1
        self.last = self.table[key] = at


def code_levels(model: Model, numbers: Model, form: tuple[int, int, int, int], kind: tuple[int, int, bool], profiles: list[list[int]]):
    """Decodes a matrix: the levels, the bits that follow them; adds its profile."""
    (rows, columns, taps, width), (extra_bits, top, logarithmic) = form, kind
    modes = numbers.integer(20 * 160)
    check(modes < 16, "mode")
    zeros, signs, mixes, repeats = modes & 1, modes >> 1 & 1, modes >> 2 & 1, Repeats() if modes & 8 else None
    for cell in [cell for cell in model.cells if cell >= 6400]:
        del model.cells[cell]
    row_flags, column_flags, link = [1] * rows, [1] * columns, [0] * columns
    if zeros:
        link = linked(numbers, 21, profiles, columns // taps, taps)
        if rows > 1:
            row_link = linked(numbers, 22, profiles, rows, 1)
            column_flags, row_flags = code_flags(model, link, max(width, 1)), code_flags(model, row_link, 1)
    levels, words, counts = [], [], [0] * columns
    all_mean, channel_means, tap_means = Mean(), [Mean() for _ in range(columns // taps)], [Mean() for _ in range(taps)]
    count, above, rows_left, recent, inputs, row_count = 0, -1, sum(row_flags), 0, 7 if mixes else 3, 0
    picture, before, lines = taps == 1 and width > 1, 0, 3 if width > 1 else 0
    window = [(down * width + right, right, max(down, abs(right))) for down in range(lines + 1) for right in range(-3, 4)]
    window = [(back, right, away) for back, right, away in window if back > 0]
    for at in range(rows * columns):
        row, column = divmod(at, columns)
        if column == 0:
            if row and row_flags[row - 1]:
                above, rows_left, before = row - 1, rows_left - 1, row_count
            row_mean, row_count, row_cells, half = Mean(), 0, 0, (count >> 1) // columns
            row_mean.value = all_mean.value
        if at % 16384 == 0:
            half, recent = (count >> 1) // columns, 0
        levels.append(0)
        words.append((0, 0))
        if not row_flags[row] or not column_flags[column]:
            continue

        def seen(back: int, when: bool = True, at: int = at, column: int = column) -> int:
            return levels[at - back] if when and column >= back else 0

        left, up, block = seen(1), seen(width, width > 1), seen(taps, taps > 1)
        over = levels[above * columns + column] if above >= 0 else 0
        nonzero, tap, channel = 1, tap_means[column % taps], channel_means[column // taps]
        if zeros and not mixes:
            context = (left != 0) + 2 * (over != 0) + 4 * sum(counts[column] > m * half for m in (1, 2, 4))
            context += 16 * (recent & 1) + 32 * (recent & 62 != 0) + 64 * (recent >> 6 != 0)
            nonzero = model.alone(384 + context, 1023)
            recent = (recent << 1 | nonzero) % 2**32
        if nonzero or mixes:
            channel.value = channel.value if channel.seen else all_mean.value
            tap.value = tap.value if tap.seen else all_mean.value
            means, around = (row_mean.value, channel.value, tap.value), abs(left) + abs(up) + abs(block) + abs(over)
            if logarithmic:
                expected, near = clip(sum(means) - 2 * all_mean.value >> 6, 48), clip(around, 48)
                lines = 8 * clip(means[0] >> 8, 8) + clip(means[1] >> 8, 8)
            else:
                expected = clip(sum(log(mean >> 4) for mean in means) - 2 * log(all_mean.value >> 4), 48)
                near, lines = clip(log(4 * around), 48), 8 * clip(log(means[0] >> 4) >> 2, 8) + clip(log(means[1] >> 4) >> 2, 8)
            if zeros and mixes:
                live = sum(column_flags) - row_cells
                a, b, c = left != 0, up != 0, column >= width > 1 and levels[at - width + 1] != 0
                d = column > width > 1 and levels[at - width - 1] != 0
                touching = a + b + c + d + (seen(2) != 0) + (seen(2 * width, width > 1) != 0)
                offsets = [0, 0, 0, 1 + a + 2 * b + 4 * c + 8 * d, 17 + 4 * link[column] + min(row_count, 3)]
                offsets += [49 + 6 * min(touching, 5) + min(counts[column], 5), 85 + (0 if counts[column] else steps(rows_left))]
                offsets += [93 + (0 if row_count else steps(live)), 101 + min(row_count, 15)]
                sizes = [min(abs(level), 2) for level in (left, over, up, block)]
                offsets += [117 + expected, 165 + near, 213 + sizes[0] + 3 * sizes[1] + 9 * sizes[2] + 27 * sizes[3]]
                contexts = [64 + offset for offset in offsets]
                contexts[1:3] = 6432 + row, 6432 + rows + column
                due = before - row_count
                share = (STRETCH[min((max(4 * due, 1) << 14) // live, 65535)] + 3071) // 103 if above >= 0 else 60
                due = min(max(due, -2), 24) + 3 if above >= 0 else 0
                contexts += [6048 + 8 * due + min(live.bit_length() - 1, 7), 6272 + share]
                contexts.append(
                    6336 + min(sum((6, 3, 1)[away - 1] for level, away in near_by(levels, at, column, width, window) if level), 31)
                )
                nonzero = model.mixed(contexts, 23 if picture else 1, 1023, rate=6)
            size = 0
            if nonzero:
                word = repeats.find(model, words, at) if repeats else None
                if word is None:
                    size = 1
                    pair, place = min(abs(left), 7) + 8 * min(abs(over), 7), min(column % taps, 30)
                    while size <= 20:
                        base = 512 + 256 * (size - 1)
                        contexts = [base, base + 1 + expected, base + 49 + near, 6400 + size, base + 97 + pair, base + 161 + place]
                        if not model.mixed([*contexts, base + 192 + lines][:inputs], 1 + size, 255):
                            break
                        size += 1
                    if size > 20:
                        more = 0
                        while more < 29 and model.alone(5696 + more, 255):
                            more += 1
                        size = 20 + (1 << more | model.message.raw(more))
                    following = extra_bits if extra_bits >= 0 else max(top - size, 0)
                    node, rest, base = 1, following, 5728 + 8 * min(size - 1, 31)
                    while rest and node < 8:
                        rest -= 1
                        node = 2 * node + model.alone(base + node, 1023)
                    word = (size, (node << rest | model.message.raw(rest)) - (1 << following))
                size, words[at] = word[0], word
                negative = 0
                if signs:
                    total = sum((2, 1, 0)[away - 1] * (ternary(level) - 1) for level, away in near_by(levels, at, column, width, window))
                    contexts = [5632, 5633 + 3 * ternary(left) + ternary(up), 5642 + 3 * ternary(block) + ternary(over)]
                    negative = model.mixed([*contexts, 6383 + min(max(total, -15), 15)], 24 if picture else 22, 255)
                levels[at] = -size if negative else size
                if repeats:
                    repeats.remember(words, at)
                count, row_count, counts[column] = count + 1, row_count + 1, counts[column] + 1
            for mean in (all_mean, row_mean, channel, tap):
                mean.add(size)
        row_cells += 1
    lines_of = [levels[r * columns : (r + 1) * columns] for r in range(rows)] if rows > 1 else [[level] for level in levels]
    profiles.append([min(sum(level != 0 for level in line).bit_length(), 7) for line in lines_of])
    return levels, [word[1] for word in words]


def near_by(levels: list[int], at: int, column: int, width: int, window: list[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    place, end = (column % width, width) if width > 1 else (column, column + 1)
    return ((levels[at - back], away) for back, right, away in window if back <= column and 0 <= place - right < end)


def linked(numbers: Model, context: int, profiles: list[list[int]], lines: int, taps: int) -> list[int]:
    fitting = [profile for profile in profiles if 1 < len(profile) <= lines and lines % len(profile) == 0]
    chosen = numbers.integer(context * 160) if fitting else 0
    check(chosen <= len(fitting), "link")
    profile = fitting[-chosen] if chosen else [0]
    return [profile[i * len(profile) // (lines * taps)] for i in range(lines * taps)]


class Names:
    def __init__(self, message: Message) -> None:
        self.model = Model(message, dict.fromkeys(range(3), (0.3,) * 6))
        self.history, self.place, self.length = bytearray(2), 0, 0
        for name in TYPICAL.split():
            self.next(name.encode() + b"\0")

    def next(self, known: bytes | None = None) -> str:
        start = at = len(self.history)
        while at == start or self.history[-1]:
            check(at - start < 4096, "a name too long")
            h = self.history
            if self.length == 0:
                for back in range(1, min(at - 1, 1024)):
                    if h[at - back - 2 : at - back] == h[at - 2 :]:
                        self.place, self.length = at - back, 1
                        break
            guess, node = h[self.place] | 256 if self.length else 0, 1
            for shift in range(7, -1, -1):
                contexts, context, agrees = [node], 0, guess and guess >> shift + 1 == node
                for order in range(1, 5):
                    if at >= order:
                        context = (context * 257 + h[at - order] + 1) % 2**32
                    hashed = (context * 8 + order) % 2**32 * 0x1E3779B1 + node * 0x3D4D51CB
                    contexts.append(hashed % 2**32 * 0x1E3779B1 % 2**32 >> 16)
                length = min(self.length, 7)
                contexts.append(256 + (2 * length + (guess >> shift & 1) if agrees else 0))
                bit = None if known is None else known[at - start] >> shift & 1
                node = 2 * node + self.model.mixed(contexts, 0 if not agrees else 1 if length < 3 else 2, 127, bit)
            hit = self.length and h[self.place] == node - 256
            self.place, self.length = (self.place + 1, self.length + 1) if hit else (self.place, 0)
            h.append(node - 256)
            at += 1
        return self.history[start:-1].decode()


def zigzag(value: int) -> int:
    return -(value + 1) // 2 if value & 1 else value // 2


def single(numbers: Model) -> float:
    exponent = zigzag(numbers.integer(14 * 160)) + 120
    check(1 <= exponent <= 254, "exponent")
    count = numbers.integer(15 * 160)
    check(count < 24, "bits")
    mantissa = (numbers.message.raw(count - 1) << 1 | 1) << 23 - count if count else 0
    return struct.unpack("<f", struct.pack("<I", exponent << 23 | mantissa))[0]


def pack(value: float, dtype: str) -> int:
    if dtype == "BF16":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        return bits + 0x7FFF + (bits >> 16 & 1) >> 16
    form = {"F32": "<f", "F16": "<e", "F64": "<d"}[dtype]
    return int.from_bytes(struct.pack(form, value), "little")


def decode_group(payload: bytes, names: list[str]) -> Iterator[tuple[str, tuple[str, tuple[int, ...], list[int]] | str]]:
    """Decodes tensors: type, shape and words, or the name of the tensor that it is tied to."""
    message = Message(payload)
    numbers, text = Model(message, {}), Names(message)
    for context, values in FIRST.items():
        for value in values:
            numbers.integer(context * 160, value)
    models: dict[int, Model] = {}
    tops: dict[int, int] = {}
    remembered: list[int] = []
    profiles: list[list[int]] = []
    ratio = 0.0
    while kind := numbers.integer(0):
        check(kind < 6, "kind")
        name = text.next()
        if kind == 1:
            names.append(name)
            yield name, names[-2 - numbers.integer(160)]
            continue
        dtype, shape = TYPES[numbers.integer(2 * 160)], []
        for index in range(numbers.integer(8 * 160)):
            place = numbers.integer((9 + min(index, 3)) * 160)
            shape.append(remembered.pop(place - 1) if place else numbers.integer(13 * 160))
            remembered = [shape[-1], *remembered][:8]
        width = numbers.integer(3 * 160) if len(shape) == 2 else shape[-1] * (1 + (dtype == "C64")) if len(shape) > 3 else 0
        each, size = 1 + (dtype == "C64"), prod(shape) * (1 + (dtype == "C64"))
        form = (1, size, 1, 0) if len(shape) < 2 else (shape[0], size // max(shape[0], 1), max(prod(shape[2:]) * each, 1), width)
        number = numbers.integer(4 * 160)
        model = models.setdefault(number, Model(message, WEIGHTS))
        total, step, mantissa = BITS.get(dtype, 8), [], MANTISSA.get(dtype)
        if kind < 4:
            top = tops[number] = tops.get(number, 128) + zigzag(numbers.integer(5 * 160))
            low = numbers.integer(6 * 160) if mantissa is not None else 0
            bits = -1 if mantissa is None else mantissa - low
            form = (1, 1, 1, 0) if kind == 3 else form
            levels, extra = code_levels(model, numbers, form, (bits, top, True), profiles) if size else ([], [])
            words = []
            for level, more in zip(levels, extra, strict=True):
                if mantissa is None:
                    word = ((1 << min(max(top - abs(level), 0), 63)) + more) * (1 if level > 0 else -1) % 2**total
                else:
                    word = (top + 1 - abs(level)) % 2 ** (total - 1 - mantissa) << mantissa | more << low | (level < 0) << total - 1
                words.append(word if level else 0)
            words *= size if kind == 3 else 1
        else:
            count = 1 if kind == 5 or not numbers.integer(7 * 160) else form[0]
            step = [single(numbers) for _ in range(count)]
            if kind == 5 and (ratio == 0 or numbers.integer(16 * 160)):
                ratio = single(numbers)
            levels = code_levels(model, numbers, form, (0, 0, kind == 5), profiles)[0] if size else []
            if kind == 5:
                worth = [0.0, step[0]]
                while len(worth) <= max(map(abs, levels), default=0):
                    worth.append(worth[-1] * ratio)
                values = [worth[level] if level >= 0 else -worth[-level] for level in levels]
            else:
                values = [level * step[at // form[1] if count > 1 else 0] for at, level in enumerate(levels)]
            words = [pack(value, dtype) for value in values]
        names.append(name)
        yield name, (dtype, tuple(shape), words)


def decode(file: bytes) -> dict[str, tuple[str, tuple[int, ...], list[int]] | str]:
    """Decodes a network file."""
    holds, groups, trailer = sections(file)
    check(holds == NETWORK and trailer == b"" and all(kind == 1 for kind, _ in groups), "no network")
    names: list[str] = []
    return {name: tensor for _, payload in groups for name, tensor in decode_group(payload, names)}
