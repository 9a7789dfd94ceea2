"""Compiled code that does not compute what its source says is found before it codes a file."""

from pathlib import Path

import pytest

from ellzero.codec.bytes import known_answers
from ellzero.codec.bytes.block_coder import BlockCoder
from ellzero.codec.bytes.data_file import compress_bytes, decompress_bytes
from ellzero.codec.bytes.known_answers import ANSWERS, answer, check_coder, has_known_answer
from ellzero.codec.bytes.parameters import ByteModel
from ellzero.codec.bytes.presets import PRESETS, SECTIONED
from ellzero.files.errors import FileError


@pytest.fixture(autouse=True)
def untried():
    has_known_answer.cache_clear()
    yield
    has_known_answer.cache_clear()


def test_every_coder_has_an_answer():
    assert set(ANSWERS) == {(level, False) for level in PRESETS} | {(level, True) for level in SECTIONED}
    assert {key: answer(key[0], sections=key[1]) for key in ANSWERS} == ANSWERS
    for level in PRESETS:
        check_coder(ByteModel(level=level, wide=level == 5, table_bits=10, history_bits=10))


@pytest.mark.parametrize("level", [1, 5, 9])
def test_code_of_another_source_is_refused_though_it_decodes_what_it_encodes(level: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    archive = compress_bytes(b"some text", level=level)
    has_known_answer.cache_clear()
    code = BlockCoder.code

    def other(self: BlockCoder, block, coded, start, stop, *, decode):
        # Another model, the same in both directions.
        self._model.weights[:] += (start == 0) << 16
        return code(self, block, coded, start, stop, decode=decode)

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(BlockCoder, "code", other)
    assert answer(level, sections=level == 9) is not None
    for run in (lambda: compress_bytes(b"some text", level=level), lambda: decompress_bytes(archive)):
        with pytest.raises(FileError, match=f"does not compute what its source says: delete {tmp_path}"):
            run()


def test_without_a_compiler_there_is_nothing_to_try(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(known_answers, "disabled", lambda: True)
    monkeypatch.setattr(known_answers, "ANSWERS", {})
    assert decompress_bytes(compress_bytes(b"some text", level=1)) == b"some text"
