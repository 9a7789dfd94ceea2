"""The file commands as people use them; the stories are those of docs/guides/stories.md."""

import io
import itertools
import json
import lzma
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import ellzero.cli.jobs.compress
from child_processes import environment
from ellzero.archive._compress import compress, decompress
from ellzero.cli.jobs.progress import pace
from ellzero.cli.main import l0, main
from ellzero.cli.options.arguments import UsageError, arrange, as_command, num_bytes
from ellzero.cli.options.compress import Compress
from ellzero.codec.container import MAGIC

ROOT = Path(__file__).parents[2]
TEXT = b"".join(b"line %d of a text that repeats itself, number %d\n" % (line, line * line) for line in range(40))
OTHER = b"something else altogether, and shorter"
posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files or signals")


def run(*words: object) -> int:
    """Runs a command in this process; returns its exit status."""
    try:
        return main([str(word) for word in words])
    except SystemExit as end:
        return int(end.code or 0)


def start(*words: object, **options) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ellzero.cli", *map(str, words)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the files a and b."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_bytes(TEXT)
    (tmp_path / "b").write_bytes(OTHER)
    return tmp_path


def test_files_there_and_back_with_their_modes_and_times(folder: Path, capsysbinary: pytest.CaptureFixture[bytes]):
    os.chmod("a", 0o640)
    os.utime("a", ns=(1_000_000_000_000_000_000, 1_100_000_000_000_000_000))
    assert run("compress", "a", "-1k", "b") == 0
    assert names(folder) == ["a", "a.l0", "b", "b.l0"]  # inputs are kept
    assert decompress(Path("a.l0").read_bytes()) == TEXT
    os.unlink("a")
    assert run("decompress", "b.l0", "a.l0", "-f") == 0
    assert (Path("a").read_bytes(), Path("b").read_bytes()) == (TEXT, OTHER)
    for name in ("a", "a.l0"):
        status = os.stat(name)
        assert status.st_mtime_ns == 1_100_000_000_000_000_000
        if sys.platform != "win32":
            assert stat.S_IMODE(status.st_mode) == 0o640
    assert capsysbinary.readouterr() == (b"", b"")  # nothing is said, and no bar drawn, where nobody looks


def test_files_story_18_the_decoder_needs_no_option_again(folder: Path, capsysbinary: pytest.CaptureFixture[bytes]):
    assert run("compress", "-3", "--memory", "20M", "-o", "packed.l0", "a") == 0
    assert run("decompress", "packed.l0", "-c") == 0
    assert capsysbinary.readouterr().out == TEXT
    assert run("decompress", "-opart", "packed.l0", "-v") == 0
    assert Path("part").read_bytes() == TEXT
    assert b"packed.l0 -> part" in capsysbinary.readouterr().err


def test_cat_joins_what_it_decodes(folder: Path, capsysbinary: pytest.CaptureFixture[bytes]):
    assert run("compress", "-1", "a", "b", "--rm") == 0
    assert names(folder) == ["a.l0", "b.l0"]
    assert run("cat", "a.l0", "b.l0", "a.l0") == 0
    assert capsysbinary.readouterr().out == TEXT + OTHER + TEXT


def test_files_story_01_the_input_is_never_the_output(folder: Path, capsys: pytest.CaptureFixture[str]):
    Path("hard").hardlink_to("a")
    for output in ("a", "./a", "hard"):
        assert run("compress", "-1f", "a", "-o", output) == 1
    assert Path("a").read_bytes() == TEXT
    assert "name another" in capsys.readouterr().err


def test_files_story_03_inputs_are_removed_only_for_a_finished_file(folder: Path, capsys: pytest.CaptureFixture[str]):
    for words in (("-c", "a"), ("-o", "-", "a"), ("-o", "x", "a", "b"), ("-k", "a")):
        assert run("compress", "-1", "--rm", *words) == 2
    assert names(folder) == ["a", "b"]
    Path("a.l0").write_bytes(b"in the way")
    assert run("compress", "-1", "--rm", "a") == 1
    assert names(folder) == ["a", "a.l0", "b"]
    assert "a.l0 exists" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["replaced", "appended"])
@pytest.mark.parametrize("direction", ["compress", "decompress"])
def test_files_story_03_an_input_that_changes_meanwhile_is_kept(
    direction: str, change: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    jobs = ellzero.cli.jobs.compress
    source, made = Path("doc") if direction == "compress" else Path("doc.l0"), "doc.l0" if direction == "compress" else "doc"
    old = TEXT if direction == "compress" else compress(TEXT, level=1)
    source.write_bytes(old)
    # Compression: the input has been read when its output is verified. Decompression: when the last block has been decoded.
    name = "_verify" if direction == "compress" else "_decode"
    real = getattr(jobs, name)

    def meanwhile(*words: object, **options: object) -> object:
        result = real(*words, **options)
        if change == "replaced":
            Path("new").write_bytes(b"a new edition")
            os.replace("new", source)
        else:
            with source.open("ab") as file:
                file.write(b"one more line\n")
        return result

    monkeypatch.setattr(jobs, name, meanwhile)
    assert run(direction, "--rm", source, *(["-1"] if direction == "compress" else [])) == 1
    assert source.read_bytes() == (b"a new edition" if change == "replaced" else old + b"one more line\n")
    said = capsys.readouterr().err
    assert said == f"ellzero: {source} is kept: it has changed since it was read, and {made} holds what it was before\n"
    assert (decompress(Path(made).read_bytes()) if direction == "compress" else Path(made).read_bytes()) == TEXT


@posix
def test_only_regular_files_are_removed(folder: Path, capsys: pytest.CaptureFixture[str]):
    os.mkfifo("pipe")
    assert run("compress", "--rm", "pipe", "-1", "-o", "x") == 1
    assert run("decompress", "--rm", "-", "-o", "x") == 1
    assert capsys.readouterr().err.count("leave --rm out") == 2
    assert names(folder) == ["a", "b", "pipe"]


@posix
@pytest.mark.parametrize("direction", ["compress", "decompress"])
def test_one_of_several_links_is_removed_on_request_only(direction: str, folder: Path, capsys: pytest.CaptureFixture[str]):
    source, made = ("c", "c.l0") if direction == "compress" else ("c.l0", "c")
    Path(source).write_bytes(TEXT if direction == "compress" else compress(TEXT, level=1))
    os.link(source, "other")
    assert run(direction, "--rm", source) == 1
    said = capsys.readouterr().err
    assert said == f"ellzero: {source} has 1 other hard link, which would keep its bytes: leave --rm out, or -f removes this name\n"
    assert names(folder) == sorted(["a", "b", source, "other"])
    assert run(direction, "--rm", "-f", source, *(["-1"] if direction == "compress" else [])) == 0
    assert names(folder) == sorted(["a", "b", made, "other"])


def test_files_story_04_test_changes_nothing(folder: Path):
    assert run("compress", "-1", "a") == 0
    before = {name: (os.stat(name).st_mtime_ns, Path(name).read_bytes()) for name in names(folder)}
    assert run("test", "a.l0") == 0
    assert run("test", "--rm", "a.l0") == 2  # there is no such option
    assert before == {name: (os.stat(name).st_mtime_ns, Path(name).read_bytes()) for name in names(folder)}


def test_files_story_05_existing_files_are_overwritten_on_request_only(folder: Path):
    Path("a.l0").write_bytes(b"precious")
    assert run("compress", "-1", "a") == 1
    assert Path("a.l0").read_bytes() == b"precious"
    assert run("compress", "-1", "-f", "a") == 0
    assert run("decompress", "a.l0") == 1
    assert run("decompress", "a.l0", "--force") == 0


def test_files_stories_06_and_07_damage_is_an_error_and_leaves_no_output(folder: Path, capsys: pytest.CaptureFixture[str]):
    blob = bytearray(compress(TEXT, level=1))
    blob[len(blob) // 2] ^= 4
    Path("bad.l0").write_bytes(blob)
    Path("good.l0").write_bytes(compress(OTHER, level=1))
    # The bad one does not stop the good one.
    assert run("decompress", "--rm", "bad.l0", "good.l0") == 1
    assert names(folder) == ["a", "b", "bad.l0", "good"]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("ellzero: bad.l0: ")
    assert run("test", "-q", "bad.l0") == 1


def test_files_story_13_the_place_of_the_damage_is_said(folder: Path, capsys: pytest.CaptureFixture[str]):
    blob = bytearray(compress(TEXT, level=1))
    blob[40] ^= 4
    Path("bad.l0").write_bytes(blob)
    assert run("test", "bad.l0") == 1
    assert "section from byte 15 to" in capsys.readouterr().err


def test_files_story_08_test_says_name_and_ok_to_stderr(folder: Path, capsys: pytest.CaptureFixture[str]):
    safetensors.numpy.save_file({"w": __import__("numpy").zeros((3, 4), "float32")}, "net.safetensors")
    assert run("pack", "net.safetensors", "-q") == 0
    assert run("compress", "-1", "a") == 0
    assert run("test", "a.l0", "net.l0") == 0
    assert capsys.readouterr() == ("", "a.l0: OK\nnet.l0: OK\n")
    assert run("test", "-v", "a.l0", "net.l0") == 0
    assert capsys.readouterr().err == f"a.l0: OK, {len(TEXT):,} bytes\nnet.l0: OK, a network of 1 tensors\n"
    assert run("decompress", "net.l0") == 1
    assert "ellzero unpack" in capsys.readouterr().err
    assert run("list", "--json", "net.l0", "a.l0") == 0
    network, data = json.loads(capsys.readouterr().out)
    assert (network["kind"], network["tensors"], network["scalars"], network["original_bytes"]) == ("network", 1, 12, 48)
    assert data["kind"] == "data"


@pytest.mark.parametrize(
    ("blob", "said"),
    [
        (b"", "it is empty"),
        (b"no archive at all", "not an ellzero file"),
        (lzma.compress(b"x"), "it is xz"),
        (compress(b"x", level=1)[:-1], "truncated"),
        (compress(b"x", level=1) + b"\n", "follow the end"),
        (MAGIC + b"\x63" + compress(b"x", level=1)[5:], "upgrade ellzero"),
        (compress(b"x", level=1).replace(b"\n", b"\r\n"), "line ends rewritten"),
    ],
    ids=["empty", "text", "xz", "cut", "appended", "newer", "transferred"],
)
@pytest.mark.parametrize("command", ["test", "decompress", "cat", "list"])
def test_files_stories_09_and_10_and_17_what_is_no_archive_is_refused(
    blob: bytes, said: str, command: str, folder: Path, capsys: pytest.CaptureFixture[str]
):
    Path("x.l0").write_bytes(blob)
    assert run(command, "x.l0") == 1
    out, err = capsys.readouterr()
    assert (said in err, "Traceback" in err) == (True, False)
    assert out == "" or command == "cat"  # what came before the damage has gone through the pipe
    assert names(folder) == ["a", "b", "x.l0"]


def test_files_story_12_what_was_written_is_decoded_again(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    real = ellzero.cli.jobs.compress.decode_blocks
    monkeypatch.setattr(ellzero.cli.jobs.compress, "decode_blocks", lambda file, **_: [block[::-1] for block in real(file)])
    assert run("compress", "-1", "--rm", "a") == 1
    assert names(folder) == ["a", "b"]
    assert "does not decode" in capsys.readouterr().err
    assert run("compress", "-1", "--no-verify", "a") == 0


def test_files_stories_22_and_23_limits_name_need_and_option(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("compress", "-1", "a") == 0
    assert run("list", "--json", "a.l0") == 0
    need = json.loads(capsys.readouterr().out)[0]["memory_bytes"]
    assert run("test", "--memory", need, "--max-size", len(TEXT), "a.l0") == 0
    assert run("test", f"--memory={need - 1}", "a.l0") == 1
    said = capsys.readouterr().err
    assert f"needs {need} bytes" in said
    assert "(--memory)" in said
    assert run("decompress", "-f", "--max-size", len(TEXT) - 1, "-o", "x", "a.l0") == 1
    assert "(--max-size)" in capsys.readouterr().err
    assert not Path("x").exists()
    assert run("decompress", "--memory", "much", "a.l0") == 2


@pytest.mark.parametrize("data", [b"", bytes(range(256)) * 64, os.urandom(20_000)], ids=["empty", "cycle", "noise"])
def test_files_stories_24_and_28_empty_and_incompressible_files(data: bytes, folder: Path):
    Path("x").write_bytes(data)
    assert run("compress", "-1", "x", "--rm") == 0
    assert os.stat("x.l0").st_size <= len(data) + len(data) // 1000 + 64
    assert run("decompress", "x.l0") == 0
    assert Path("x").read_bytes() == data


def test_files_story_25_list_says_what_a_file_holds(folder: Path, capsys: pytest.CaptureFixture[str]):
    import hashlib

    assert run("compress", "-2", "a") == 0
    assert run("list", "--json", "a.l0") == 0
    (entry,) = json.loads(capsys.readouterr().out)
    size = os.stat("a.l0").st_size
    assert entry["sha256"] == hashlib.sha256(TEXT).hexdigest()
    assert (entry["original_bytes"], entry["compressed_bytes"], entry["level"], entry["blocks"]) == (len(TEXT), size, 2, 1)
    assert entry["ratio"] == pytest.approx(size / len(TEXT))
    assert (entry["version"], entry["stored_blocks"]) == (0, 0)
    assert entry["memory_bytes"] > 1 << 20
    assert run("list", "a.l0", "missing.l0") == 1
    out, err = capsys.readouterr()
    assert f"{size:,}" in out
    assert "missing.l0" in err
    assert run("list") == 2


LIMITED = """
import resource, sys
from ellzero.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))  # the next byte is refused, as by a full disk
sys.exit(main(sys.argv[1:]))
"""


@posix
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["compress", "-1", "noise"], "noise.l0"),
        (["compress", "-1", "noise", "--no-verify", "-o", "x"], "x"),
        (["decompress", "packed.l0"], "packed"),
        (["pack", "net.safetensors"], "net.l0"),
        (["unpack", "net2.l0", "-o", "y.safetensors"], "a temporary file in TMPDIR (TMPDIR names another folder)"),
        (["unpack", "net2.l0", "-o", "y.pt"], "y.pt"),
    ],
    ids=" ".join,
)
def test_a_full_disk_names_the_output(words: list[str], named: str, folder: Path):
    noise = os.urandom(20_000)
    Path("noise").write_bytes(noise)
    Path("packed.l0").write_bytes(compress(noise, level=1))
    safetensors.numpy.save_file({"w": np.frombuffer(noise, np.int32)}, "net.safetensors")
    assert run("pack", "net.safetensors", "-q", "-o", "net2.l0") == 0
    before = names(folder)
    known = environment() | {"TMPDIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", LIMITED, *words], env=known, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"ellzero: {named.replace('in TMPDIR', f'in {folder}')} cannot be written: file too large\n"
    assert names(folder) == before


@posix
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_standard_output_is_said_once(unbuffered: str, folder: Path):
    Path("packed.l0").write_bytes(compress(os.urandom(20_000), level=1))
    known = environment() | {"PYTHONUNBUFFERED": unbuffered}
    for words in (["decompress", "-c", "packed.l0"], ["list", *["packed.l0"] * 99]):
        line = [sys.executable, "-c", LIMITED, *words]
        with open("out", "wb") as out:
            done = subprocess.run(line, env=known, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (1, "ellzero: standard output cannot be written: file too large\n")


@posix
def test_what_is_not_verified_is_not_kept_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch):
    Path("noise").write_bytes(noise := os.urandom(20_000))
    line = [sys.executable, "-c", LIMITED, "compress", "-1", "-c", "noise"]
    known = environment() | {"TMPDIR": str(folder)}
    done = subprocess.run(line, env=known, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"ellzero: a temporary file in {folder} (TMPDIR names another folder, --no-verify needs none) cannot be written: file too large\n"
    )
    done = subprocess.run([*line, "--no-verify"], env=known, capture_output=True, check=True)
    assert decompress(done.stdout) == noise


@pytest.mark.parametrize(
    "words",
    [
        ("compress", ""),
        ("compress", "a", "-o", ""),
        ("compress", "a", "--output="),
        ("decompress", ""),
        ("test", ""),
        ("list", "a", ""),
        ("bench", ""),
        ("pack", ""),
        ("unpack", "a", "-o", ""),
        ("sparsify", "digits-mlp", "-o", ""),
    ],
    ids=" ".join,
)
def test_an_empty_name_is_said(words: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run(*words) == 2
    said = "ellzero: an argument is empty, where a name or a value was expected: a variable of the shell may not be set\n"
    assert capsys.readouterr() == ("", said)
    assert names(folder) == ["a", "b"]


@pytest.mark.parametrize(
    "words",
    [
        ("compress", "-c", "a", "b"),
        ("compress", "-c", "-o", "x", "a"),
        ("compress", "-0", "a"),
        ("decompress", "-o", "x", "a", "b"),
        ("bench",),
        ("bench", "-"),
    ],
)
def test_wrong_usage_has_the_status_2(words: tuple[str, ...], folder: Path):
    assert run(*words) == 2
    assert names(folder) == ["a", "b"]


def test_names_without_and_with_the_ending(folder: Path, capsys: pytest.CaptureFixture[str]):
    Path("x").write_bytes(compress(OTHER, level=1))
    assert run("decompress", "x") == 1
    assert "does not end in .l0" in capsys.readouterr().err
    Path("x.l0").write_bytes(compress(OTHER, level=1))
    assert run("compress", "x.l0") == 1
    assert "already" in capsys.readouterr().err
    assert run("compress", "-1f", "x.l0") == 0
    assert decompress(decompress(Path("x.l0.l0").read_bytes())) == OTHER
    assert run("compress", "folder") == 1


def test_options_are_typed_as_those_of_xz():
    assert arrange(["a", "-9kf", "b", "-oout"], Compress) == ["-k", "-f", "-o", "out", "--level", "9", "--", "a", "b"]
    assert arrange(["-fo", "out", "-1", "-2", "--memory", "3M"], Compress) == ["-f", "-o", "out", "--memory", "3M", "--level", "2"]
    assert arrange(["-v", "--", "-x", "-1"], Compress) == ["-v", "--", "-x", "-1"]
    assert arrange(["-", "--level=3"], Compress) == ["--level=3", "--", "-"]
    assert as_command(["-dc", "a"]) == ["decompress", "-c", "a"]
    assert as_command(["-od", "-9"]) == ["compress", "-o", "d", "-9"]
    assert as_command(["--test", "--", "-d"]) == ["test", "--", "-d"]
    assert as_command([]) == ["compress"]


def test_options_of_xz_and_gzip_that_change_nothing():
    assert arrange(["-9e", "a", "-T", "4", "-nT0"], Compress) == ["--level", "9", "--", "a"]
    assert arrange(["--threads=2", "--extreme", "--no-name", "--threads", "3", "--best", "a"], Compress) == ["--level", "9", "--", "a"]
    assert arrange(["--fast", "-rS", ".x", "-S.y", "a"], Compress) == ["-r", "-S", ".x", "-S", ".y", "--level", "1", "--", "a"]
    for words in (["-T", "a"], ["-T"], ["-Ta"], ["--threads", "a"], ["--threads="]):
        with pytest.raises(UsageError, match="expected a number of threads"):
            arrange(words, Compress)


@pytest.mark.parametrize(("command", "letters"), [("decompress", "dk"), ("test", "dt"), ("list", "dtl"), ("list", "zl"), ("test", "tz")])
def test_the_order_of_options_does_not_matter(command: str, letters: str):
    for order in itertools.permutations(letters):
        rest = ["-k"] if "k" in letters else []
        assert as_command(["-" + "".join(order), "a"]) == [command, *rest, "a"]
        assert sorted(as_command([f"-{letter}" for letter in order])) == sorted([command, *rest])


@pytest.mark.parametrize("words", [["-td"], ["-dt"], ["-t", "-k"], ["-tcf9e"], ["-d", "--test"], ["-T0", "-t", "--keep", "--no-verify"]])
def test_l0_takes_every_option_in_every_mode(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]):
    Path("x.l0").write_bytes(compress(TEXT, level=1))
    assert l0([*words, "x.l0"]) == 0
    assert capsys.readouterr() == ("", "x.l0: OK\n")
    assert names(folder) == ["a", "b", "x.l0"]


def test_what_stands_behind_two_dashes_is_no_option(folder: Path, capsys: pytest.CaptureFixture[str]):
    Path("-h").write_bytes(OTHER)
    assert l0(["-1", "--", "-h"]) == 0
    assert decompress(Path("-h.l0").read_bytes()) == OTHER


def test_levels_by_name(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert l0(["--fast", "a"]) == 0
    assert run("list", "--json", "a.l0") == 0
    assert json.loads(capsys.readouterr().out)[0]["level"] == 1


def test_files_in_folders_there_and_back(folder: Path, capsys: pytest.CaptureFixture[str]):
    Path("in/deep").mkdir(parents=True)
    Path("in/a").write_bytes(TEXT)
    Path("in/deep/b").write_bytes(OTHER)
    Path("in/deep/old.l0").write_bytes(compress(OTHER, level=1))
    if sys.platform != "win32":
        Path("in/link").symlink_to("a")
        os.mkfifo("in/pipe")
    others = {"in/deep", "in/deep/old.l0"} | ({"in/link", "in/pipe"} if sys.platform != "win32" else set())

    def inside() -> set[str]:
        return {path.as_posix() for path in Path("in").rglob("*")} - others

    assert run("compress", "-1r", "in", "b", "--rm") == 0
    assert inside() == {"in/a.l0", "in/deep/b.l0"}
    assert names(folder) == ["a", "b.l0", "in"]
    assert run("test", "-r", "in") == 0
    assert capsys.readouterr().err == "in/a.l0: OK\nin/deep/b.l0: OK\nin/deep/old.l0: OK\n".replace("/", os.sep)
    assert run("list", "-r", "in", "--json") == 0
    assert [entry["file"] for entry in json.loads(capsys.readouterr().out)] == [
        str(Path(name)) for name in ("in/a.l0", "in/deep/b.l0", "in/deep/old.l0")
    ]
    assert run("decompress", "-r", "in", "--rm") == 0
    assert inside() == {"in/a", "in/deep/b", "in/deep/old"} - {"in/deep/old.l0"}
    assert (Path("in/a").read_bytes(), Path("in/deep/b").read_bytes()) == (TEXT, OTHER)
    # Without a file in them, folders are nothing to do, and standard input is not read.
    Path("empty").mkdir()
    for words in (["compress", "-r", "empty"], ["decompress", "-r", "empty"], ["test", "-r", "empty"], ["list", "-r", "empty"]):
        assert run(*words) == 0
    assert run("compress", "-r", "in", "-o", "x") == 2
    assert run("compress", "-rc", "in") == 2
    assert run("compress", "in") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="file systems of other systems count otherwise")
def test_zeros_become_holes_in_files_alone(folder: Path):
    data = b"begin" + bytes(1 << 17) + b"middle" + bytes(1 << 17)
    Path("image.l0").write_bytes(compress(data, level=1))

    def room(name: str) -> int:
        assert Path(name).read_bytes() == data
        return os.stat(name).st_blocks * 512

    assert run("decompress", "image.l0") == 0
    assert room("image") < 1 << 16
    assert run("decompress", "image.l0", "-f", "--no-sparse") == 0
    assert room("image") >= len(data)
    assert run("decompress", "image.l0", "-f", "--sparse", "--no-sparse", "-o", "other") == 0
    assert room("other") >= len(data)
    command = [sys.executable, "-m", "ellzero.cli", "decompress", "-c", "image.l0"]
    for more in ([], ["--sparse"]):
        with open("out", "wb") as out:
            subprocess.run([*command, *more], env=environment(), stdout=out, check=True)
        assert (room("out") < 1 << 16) == bool(more)
        with open("out", "ab") as out:
            out.truncate(0)
            subprocess.run([*command, *more], env=environment(), stdout=out, check=True)
        assert room("out") >= len(data)
        assert subprocess.run([*command, *more], env=environment(), stdout=subprocess.PIPE, check=True).stdout == data
    with open("out", "wb") as out:
        subprocess.run([*command, "--sparse", "image.l0"], env=environment(), stdout=out, check=True)
    assert Path("out").read_bytes() == data + data


def test_another_suffix(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("compress", "-1", "-S", ".small", "a") == 0
    assert names(folder) == ["a", "a.small", "b"]
    assert run("compress", "-1", "-S.small", "a.small") == 1
    assert "ends in .small already" in capsys.readouterr().err
    os.unlink("a")
    assert run("decompress", "a.small") == 1
    assert run("decompress", "--suffix=.small", "a.small", "--rm") == 0
    assert Path("a").read_bytes() == TEXT
    Path("x.l0").write_bytes(compress(OTHER, level=1))
    assert run("decompress", "-S", ".small", "x.l0") == 0  # .l0 is always known
    for wrong in ("a/b", "/"):
        assert run("compress", "-S", wrong, "a") == 2
    assert names(folder) == ["a", "b", "x", "x.l0"]


def test_options_from_the_environment(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ELLZERO_OPT", "-2 -q --memory 500M --no-verify -T 4")
    assert run("compress", "a") == 0
    assert l0(["-1", "b"]) == 0  # the command line has the last word
    assert run("list", "--json", "a.l0", "b.l0") == 0
    assert [entry["level"] for entry in json.loads(capsys.readouterr().out)] == [2, 1]
    assert l0(["-t", "a.l0"]) == 0
    assert capsys.readouterr() == ("", "")
    assert l0(["-dfv", "a.l0"]) == 0
    monkeypatch.setenv("ELLZERO_OPT", "-2 a")
    assert run("compress", "b", "-f") == 2
    assert capsys.readouterr().err == "ellzero: ELLZERO_OPT=-2 a: it holds options only, and no names of files\n"
    monkeypatch.setenv("ELLZERO_OPT", "")
    assert run("test", "a.l0") == 0


def test_sizes_are_read_as_people_write_them():
    assert [num_bytes(text) for text in ("5", "2k", "3M", "1GiB", "4 MB".replace(" ", ""))] == [5, 2048, 3 << 20, 1 << 30, 4 << 20]
    for wrong in ("", "k", "1.5G", "-1", "3X"):
        with pytest.raises(UsageError):
            num_bytes(wrong)


def test_a_start_imports_no_more_than_it_needs(folder: Path):
    # Each of these takes a tenth of a second or more. What numba does without for the command is there again afterwards.
    heavy = "{'torch', 'scipy.linalg', 'numpy.f2py', 'matplotlib', 'rich', 'safetensors'}"
    script = "import sys; from ellzero.cli.main import main; assert main(['compress', '-1', 'a', '-o', 'x']) == 0; "
    script += f"print({heavy} & set(sys.modules)); import scipy.linalg"
    out = subprocess.run([sys.executable, "-c", script], env=environment(), stdout=subprocess.PIPE, text=True, check=True).stdout
    assert out == "set()\n"
    assert decompress(Path("x").read_bytes()) == TEXT


def test_files_story_27_speed_and_time_left():
    assert pace(0, 2_000_000, 0.0, 20.0) == "about 50 kB/s, 0:40 left"
    assert pace(1_000_000, 7_500_000, 10.0, 20.0) == "100 kB/s, 1:05 left"
    assert pace(1_000_000, None, 10.0, 20.0) == "100 kB/s"


def test_files_story_20_pipes(folder: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch):
    data = bytes(range(256)) + b"\r\n\x1a" + TEXT
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert l0(["-1"]) == 0
    packed, said = capsysbinary.readouterr()
    assert said == b""
    assert decompress(packed) == data
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
    assert l0(["-dc"]) == 0
    assert capsysbinary.readouterr() == (data, b"")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
    assert l0(["-t", "-"]) == 0
    assert capsysbinary.readouterr() == (b"", b"standard input: OK\n")


@posix
def test_files_story_21_progress_on_a_terminal_only(folder: Path):
    import pty  # Windows has none

    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "ellzero.cli", "compress", "-1", "a"]
    subprocess.run(command, env=environment() | {"TERM": "xterm"}, stdout=subprocess.DEVNULL, stderr=follower, check=True)
    os.close(follower)
    shown = b""
    try:
        while piece := os.read(leader, 1 << 16):
            shown += piece
    except OSError:
        pass  # Linux's way to say that the terminal was closed.
    os.close(leader)
    assert b"kB/s" in shown
    assert b"verifying" in shown
    assert b"a -> a.l0" in shown


def temporary(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Waits until the process has begun to write."""
    while not any(name.endswith(".tmp") for name in names(folder)):
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.005)


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_files_story_02_a_signal_leaves_nothing_half_written(number: signal.Signals, folder: Path):
    with start("compress", "-", "-o", "x.l0", stdin=subprocess.PIPE) as process:
        temporary(folder, process)
        process.send_signal(number)
        assert process.wait() == 130
        assert names(folder) == ["a", "b"]


@posix
@pytest.mark.parametrize("direction", ["compress", "decompress"])
def test_a_kill_in_either_direction_loses_nothing(direction: str, folder: Path):
    source = Path("big" if direction == "compress" else "big.l0")
    text = TEXT * 150
    source.write_bytes(text if direction == "compress" else compress(text, level=1))
    before = source.read_bytes()
    with start(direction, "--rm", *(["-1"] if direction == "compress" else []), source) as process:
        temporary(folder, process)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert source.read_bytes() == before
    assert not Path("big.l0" if direction == "compress" else "big").exists()


@posix
@pytest.mark.skipif(shutil.which("tar") is None, reason="tar is not installed")
def test_tar_finds_l0(folder: Path):
    Path("a").write_bytes(bytes(range(256)) + b"\r\n\x1a" + TEXT)
    known = with_l0(folder)
    packed = subprocess.run(["tar", "-I", "l0", "-cf", "both.tar.l0", "a", "b"], env=known, capture_output=True, text=True, check=False)
    if "invalid option" in packed.stderr or "illegal option" in packed.stderr:
        pytest.skip("this tar has no -I")
    assert (packed.returncode, packed.stderr) == (0, "")
    assert Path("both.tar.l0").read_bytes().startswith(MAGIC)
    Path("out").mkdir()
    subprocess.run(["tar", "-I", "l0", "-xf", "both.tar.l0", "-C", "out"], env=known, check=True)
    assert (Path("out/a").read_bytes(), Path("out/b").read_bytes()) == (Path("a").read_bytes(), OTHER)
    # What tar pads archives with it does not read to the end: l0 ends as a broken pipe ends others, and tar says nothing.
    subprocess.run(["tar", "-cf", "padded.tar", "a", "b"], check=True)
    with open("padded.tar", "ab") as file:
        file.write(bytes(1 << 20))
    assert run("compress", "-1", "padded.tar") == 0
    Path("again").mkdir()
    words = ["tar", "-I", "l0", "-xf", "padded.tar.l0", "-C", "again"]
    done = subprocess.run(words, env=known, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert Path("again/b").read_bytes() == OTHER


def with_l0(folder: Path) -> dict[str, str]:
    """Returns an environment in which `l0` is a program, as it is where the package is installed."""
    script = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["l0"]
    module, function = script.split(":")
    Path("bin").mkdir()
    Path("bin/l0").write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    os.chmod("bin/l0", 0o755)
    return environment() | {"PATH": os.pathsep.join((str(folder / "bin"), os.environ["PATH"]))}


@pytest.mark.slow
def test_the_text_of_the_demo_is_smaller_than_xz_makes_it(capsys: pytest.CaptureFixture[str]):
    from ellzero.cli.jobs.demo import compress_demo

    compress_demo()
    said = capsys.readouterr().out
    assert "restored bit for bit" in said
    xz, ours = (int(line.split()[2].replace(",", "")) for line in said.splitlines() if "bits per byte" in line)
    assert ours < 0.85 * xz
