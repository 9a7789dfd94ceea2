"""`ellzero bench`, with each coder that is installed and with stand-ins for those that are not."""

import bz2
import json
import lzma
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ellzero.archive._compress import compress
from ellzero.cli.jobs import bench_coders, bench_run
from ellzero.cli.jobs.bench_coders import OTHERS, Coder, Other, coder, missing
from ellzero.cli.main import main

TEXT = b"".join(b"line %d of a text that repeats itself, number %d\n" % (line, line * line) for line in range(40))


def run(*words: object) -> int:
    try:
        return main([str(word) for word in words])
    except SystemExit as end:
        return int(end.code or 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_bytes(TEXT)
    (tmp_path / "b").write_bytes(b"something else altogether, and shorter")
    return tmp_path


def absent(name: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    """Lets a coder be as if its package were not installed."""
    monkeypatch.setitem(OTHERS, name, Other(package="no_such_package", load=OTHERS[name].load, **more))


def test_files_story_26_bench_measures_and_names_what_is_missing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    absent("brotli -11", monkeypatch)
    assert run("bench", "a", "-1", "--only", "xz -9e,brotli -11", "--json", "--plot", "picture.png") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["missing"] == ["brotli -11"]
    ours, xz = said["results"]
    assert (ours["coder"], xz["coder"]) == ("ellzero -1", "xz -9e")
    assert ours["compressed_bytes"] == len(compress(TEXT, level=1))
    assert xz["compressed_bytes"] == len(lzma.compress(TEXT, preset=9 | lzma.PRESET_EXTREME))
    assert {"picture.png", "picture.svg"} <= {path.name for path in folder.iterdir()}
    assert run("bench", "missing", "--only", "none") == 1
    assert run("bench", "a", "--only", "nothing") == 2


def test_files_story_29_only_files_that_were_decoded_are_reported(folder: Path, monkeypatch: pytest.MonkeyPatch):
    real = bench_run.coder("xz -9e")
    monkeypatch.setattr(bench_run, "coder", lambda _: Coder(compress=lambda data: real.compress(data)[:10], decompress=lambda _: b"x"))
    with pytest.raises(ValueError, match="other bytes came back"):
        bench_run._measure_here("xz -9e", "a")
    monkeypatch.setattr(bench_run, "coder", lambda _: real)
    assert bench_run._measure_here("xz -9e", "a")["compressed_bytes"] == len(real.compress(TEXT))


def test_files_story_32_who_is_better_stands_above(folder: Path, capsys: pytest.CaptureFixture[str]):
    Path("a").write_bytes(b"\n".join(b"%032x" % (n * n) for n in range(3)))
    assert run("bench", "a", "-1", "--only", "bzip2 -9,xz -9e", "-q") == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    sizes = [int(row[12:].split()[0].replace(",", "")) for row in rows]
    assert (len(rows), sizes) == (3, sorted(sizes))


def test_a_missing_file_takes_nothing_away_from_the_others(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("bench", "a", "missing", "b", "-1", "--only", "bzip2 -9", "--plot", "picture") == 1
    out, err = capsys.readouterr()
    assert "ellzero: missing cannot be read: there is no such file\n" in err
    assert out.startswith(f"2 files, {len(TEXT) + os.path.getsize('b'):,} bytes\n")
    assert f"{sum(len(bz2.compress(Path(name).read_bytes())) for name in 'ab'):,}" in out
    assert Path("picture.png").exists()
    assert run("bench", "missing", "-1", "--only", "none", "--json", "--plot", "none") == 1
    assert json.loads(capsys.readouterr().out) == {"results": [], "missing": []}


def test_a_coder_that_fails_on_one_file_is_not_compared_with_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    from ellzero.cli.jobs import bench

    real = bench.measure

    def measure(name: str, file: Path) -> Any:
        if (name, file) == ("xz -9e", Path("b")):
            raise ValueError("xz -9e failed on b")
        return real(name, file)

    monkeypatch.setattr(bench, "measure", measure)
    assert run("bench", "a", "b", "-1", "--only", "xz -9e,bzip2 -9") == 1
    out, err = capsys.readouterr()
    assert ("bzip2 -9" in out, "xz -9e" in out) == (True, False)
    assert "compared with no other, because not every file was measured: xz -9e\n" in err


@pytest.mark.parametrize("name", OTHERS)
def test_every_coder_that_is_installed_gives_back_its_input(name: str):
    if missing(name):
        assert name not in {"xz -9e", "bzip2 -9"}
        pytest.skip(f"{name} is not installed: pip install 'ellzero[bench]'")
    chosen = coder(name)
    for data in (TEXT, TEXT[:38], b"x"):
        packed = chosen.compress(data)
        assert chosen.decompress(packed) == data
        assert data != TEXT or len(packed) < len(data) / 2


@pytest.mark.parametrize("name", ["zstd -22"])
def test_a_program_stands_in_for_a_package(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    absent(name, monkeypatch, program=OTHERS[name].program)
    if missing(name):
        pytest.skip(f"the program of {name} is not installed")
    chosen = coder(name)
    assert chosen.is_program
    for data in (TEXT, b"", bytes(3_000_000)):
        packed = chosen.compress(data)
        assert chosen.decompress(packed) == data
        assert len(packed) <= len(data) // 2 + 20
    monkeypatch.setenv("PATH", str(folder))
    assert missing(name)


def stand_in(calls: list[tuple[str, dict[str, Any]]]) -> SimpleNamespace:
    def call(direction: str) -> Any:
        def recorded(data: bytes, *words: Any, **options: Any) -> bytes:
            calls.append((direction, options | {str(place): word for place, word in enumerate(words)}))
            return data[::-1]

        return recorded

    return SimpleNamespace(compress=call("compress"), decompress=call("decompress"))


@pytest.mark.parametrize(
    ("name", "package", "settings"),
    [
        ("brotli -11", "brotli", {"quality": 11, "lgwin": 24}),
        ("bzip3", "bz3", {"0": 66_560}),
        ("PPMd", "pyppmd", {"max_order": 16, "mem_size": 1 << 28, "variant": "I"}),
        ("zpaq", "zpaq", {"level": 5, "threads": 1}),
    ],
)
def test_coders_are_called_at_their_smallest_setting(name: str, package: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    # Zpaq has no wheel for Linux, bzip3 none for macOS: there nothing but these stand-ins is called.
    calls: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setitem(sys.modules, package, stand_in(calls))
    assert OTHERS[name].package == package
    chosen = OTHERS[name].load()
    assert chosen.decompress(chosen.compress(TEXT)) == TEXT
    assert [direction for direction, _ in calls] == ["compress", "decompress"]
    assert calls[0][1] == settings
    # PPMd alone has to be told again.
    assert calls[1][1] == (settings if name == "PPMd" else {})


def test_zstd_is_called_with_the_whole_file_as_its_window(monkeypatch: pytest.MonkeyPatch):
    asked: dict[str, Any] = {}

    class Compressor:
        def __init__(self, **options: Any) -> None:
            asked.update(options)

        def compress(self, data: bytes) -> bytes:
            return data[::-1]

    class Decompressor:
        def __init__(self, **options: Any) -> None:
            asked.update(options)

        def decompress(self, data: bytes) -> bytes:
            return data[::-1]

    parameters = SimpleNamespace(from_level=lambda level, **more: (level, more))
    module = SimpleNamespace(ZstdCompressionParameters=parameters, ZstdCompressor=Compressor, ZstdDecompressor=Decompressor)
    monkeypatch.setattr(bench_coders, "_module", {"zstandard": module}.__getitem__)
    chosen = OTHERS["zstd -22"].load()
    assert chosen.decompress(chosen.compress(TEXT)) == TEXT
    assert asked == {"compression_params": (22, {"window_log": 27, "enable_ldm": True}), "max_window_size": 1 << 27}
