import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import ellzero as lz
from ellzero.cli.main import main

# Not an entry None in sys.modules: the parser of the command line takes that for a torch that is there.
NO_TORCH = """
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("no torch here", name=name)
sys.meta_path.insert(0, Absent())
"""


def in_child(*words: object, folder: Path, before: str = "", data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Runs the command in a process of its own, which gets nothing but its words and standard input."""
    script = f"import sys\n{before}\nfrom ellzero.cli.main import main\nsys.exit(main({[str(word) for word in words]!r}))"
    return subprocess.run([sys.executable, "-c", script], cwd=folder, input=data, capture_output=True, timeout=300)


@pytest.fixture
def tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(30, 64, generator=generator)
    return {
        "layer.weight": torch.where(torch.rand(30, 64, generator=generator) < 0.1, weight, 0.0),
        "layer.bias": torch.randn(30, generator=generator).bfloat16(),
        "other.weight": torch.randn(5, 30, generator=generator).half(),
        "again.weight": torch.ones(20, 10),
        "steps": torch.tensor(1234),
        "none": torch.zeros(0, 3),
    }


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    def bits(tensor: Tensor) -> object:
        return tensor.dtype, tensor.shape, tensor.contiguous().reshape(-1).view(torch.uint8).tolist()

    return {name: bits(t) for name, t in one.items()} == {name: bits(t) for name, t in other.items()}


def test_safetensors_come_back_from_a_process_that_gets_the_file_alone_and_has_no_torch(tensors: dict[str, Tensor], tmp_path: Path):
    safetensors.torch.save_file(tensors, tmp_path / "net.v2.safetensors")
    assert main(["pack", str(tmp_path / "net.v2.safetensors")]) == 0
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "net.v2.l0").rename(tmp_path / "elsewhere" / "net.v2.l0")
    done = in_child("unpack", "net.v2.l0", folder=tmp_path / "elsewhere", before=NO_TORCH)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    assert same(safetensors.torch.load_file(tmp_path / "elsewhere" / "net.v2.safetensors"), tensors)


def test_story_31_and_32_a_sparse_network_is_smaller_on_disk_and_the_command_says_by_how_much(
    tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    weight = {"w": torch.where(torch.rand(300, 784, generator=torch.Generator().manual_seed(1)) < 0.01, 0.5, 0.0)}
    safetensors.torch.save_file(weight, tmp_path / "net.safetensors")
    assert main(["pack", str(tmp_path / "net.safetensors"), "-o", str(tmp_path / "net.l0")]) == 0
    size = (tmp_path / "net.l0").stat().st_size
    assert size < (tmp_path / "net.safetensors").stat().st_size / 100
    assert f"{size:,} in the file" in capsys.readouterr().err


def test_a_checkpoint_of_torch_goes_both_ways_and_hides_no_code(
    tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    torch.save({"epoch": 3, "state_dict": tensors}, tmp_path / "net.pt")
    assert main(["pack", str(tmp_path / "net.pt"), "-q"]) == 0
    assert main(["unpack", str(tmp_path / "net.l0"), "-o", str(tmp_path / "back.pt"), "-q"]) == 0
    assert same(torch.load(tmp_path / "back.pt", weights_only=True), tensors)
    with open(tmp_path / "evil.pt", "wb") as file:
        pickle.dump(Evil(), file)
    assert main(["pack", str(tmp_path / "evil.pt"), "-q"]) == 1
    assert "no file of weights alone" in capsys.readouterr().err
    assert not (tmp_path / "evil.l0").exists()
    assert not Path("owned").exists()


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("owned",)


def test_story_34_tied_tensors_are_stored_once_and_load_into_their_model(tmp_path: Path):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, 16)
            self.head = nn.Linear(16, 50, bias=False)
            self.head.weight = self.embedding.weight

    torch.manual_seed(0)
    model = Tied()
    torch.save(model.state_dict(), tmp_path / "net.pth")
    assert main(["pack", str(tmp_path / "net.pth"), "-q"]) == 0
    assert (tmp_path / "net.l0").stat().st_size < 1.1 * 4 * 50 * 16
    assert main(["unpack", str(tmp_path / "net.l0"), "-q"]) == 0
    other = Tied()
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "net.safetensors"), strict=True)
    assert torch.equal(other.head.weight, model.head.weight)
    assert other.head.weight is other.embedding.weight


def test_story_33_a_folder_as_hugging_face_stores_it_with_shards(
    tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "model"
    folder.mkdir()
    names = list(tensors)
    shards = {f"model-0000{i}-of-00002.safetensors": names[i - 1 :: 2] for i in (1, 2)}
    for shard, held in shards.items():
        safetensors.torch.save_file({name: tensors[name] for name in held}, folder / shard)
    index = {"metadata": {}, "weight_map": {name: shard for shard, held in shards.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert main(["pack", str(folder), "-o", str(tmp_path / "net.l0"), "-q"]) == 0
    assert same(lz.load_file(tmp_path / "net.l0"), tensors)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert main(["pack", str(folder), "-o", str(tmp_path / "half.l0"), "-q"]) == 1
    assert "'model-00002-of-00002.safetensors', which is not beside it" in capsys.readouterr().err
    assert not (tmp_path / "half.l0").exists()
    index["weight_map"]["steps"] = "../outside.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert main(["pack", str(folder), "-o", str(tmp_path / "half.l0"), "-q"]) == 1
    assert "outside its folder" in capsys.readouterr().err


def test_a_grid_is_asked_for_and_never_assumed(tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = tmp_path / "net.safetensors"
    safetensors.torch.save_file(tensors, source)
    sizes = {}
    for words in (
        [],
        ["--lossless"],
        ["--quantise", "log"],
        ["--ratio", "1.6", "--quantise", "log"],
        ["--quantise", "uniform", "--error", "0.1"],
    ):
        assert main(["pack", *words, str(source), "-q", "-f"]) == 0
        sizes[" ".join(words)] = (tmp_path / "net.l0").stat().st_size
        zeros = tensors["layer.weight"] == 0
        assert (lz.load_file(tmp_path / "net.l0")["layer.weight"][zeros] == 0).all()
    assert sizes[""] == sizes["--lossless"] > sizes["--quantise log"] > sizes["--ratio 1.6 --quantise log"]
    assert main(["pack", str(source), "--lossless", "--quantise", "log", "-f"]) == 2
    assert "contradict" in capsys.readouterr().err


def test_inspect_shows_tensors_and_where_the_bytes_go(tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    lz.save_file({**tensors, "tied": tensors["again.weight"]}, tmp_path / "net.l0")
    assert main(["inspect", str(tmp_path / "net.l0"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    size = (tmp_path / "net.l0").stat().st_size
    assert shown["file_bytes"] == size == sum(shown["bytes"]["groups"]) + shown["bytes"]["frame"]
    assert shown["scalars"] == sum(tensor.numel() for tensor in tensors.values())
    assert shown["nonzeros"] == sum(int(torch.count_nonzero(tensor)) for tensor in tensors.values())
    by_name = {tensor["name"]: tensor for tensor in shown["tensors"]}
    assert by_name["layer.bias"]["dtype"] == "BF16"
    assert by_name["tied"]["tied_to"] == "again.weight"
    # Beside the numbers there are names and shapes.
    coded = sum(tensor["coded_bytes"] for tensor in shown["tensors"])
    assert 0.8 * size < coded < size
    assert by_name["other.weight"]["coded_bytes"] == pytest.approx(150 * 14 / 8, rel=0.2)
    assert by_name["tied"]["coded_bytes"] == 0
    long = "a.name.as.long.as.those.of.the.layers.of.a.transformer.that.others.have.made.weight"
    lz.save_file({long: tensors["layer.weight"]}, tmp_path / "long.l0")
    assert main(["inspect", str(tmp_path / "long.l0")]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(long))
    assert row.split()[1:6] == ["F32", "30", "x", "64", "1,920"]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "foreign", "empty", "appended", "newer"])
def test_a_damaged_file_is_one_line_and_leaves_nothing(
    damage: str, tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "net.l0"
    lz.save_file(tensors, path)
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    if damage == "newer":
        data[4] = 9
    bad = {"truncated": data[:-9], "foreign": b"PK\x03\x04" + data, "empty": b"", "appended": data + b"x"}.get(damage, data)
    path.write_bytes(bad)
    for words in (["unpack", str(path)], ["unpack", str(path), "-o", str(tmp_path / "out.pt")], ["inspect", str(path)]):
        assert main(words) == 1
        told = capsys.readouterr()
        assert told.err.startswith("ellzero: ")
        assert str(path) in told.err
        assert told.err.count("\n") == 1
        assert told.out == ""
    assert [file.name for file in tmp_path.iterdir()] == ["net.l0"]
    assert path.read_bytes() == bad


@pytest.mark.parametrize(
    "header",
    [b"", b"\xff" * 8, (1 << 40).to_bytes(8, "little") + b"{}", (2).to_bytes(8, "little") + b"[]"]
    + [
        len(text).to_bytes(8, "little") + text
        for text in (
            b'{"w":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,4]}}',
            b'{"w":{"dtype":"F32","shape":[-1,-1],"data_offsets":[0,4]}}',
            b'{"w":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}}',
            b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}}',
            b'{"w":5}',
        )
    ],
)
def test_a_hostile_safetensors_file_is_one_line(header: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "net.safetensors").write_bytes(header)
    assert main(["pack", str(tmp_path / "net.safetensors")]) == 1
    told = capsys.readouterr().err
    assert "is no safetensors file" in told
    assert told.count("\n") == 1
    assert not (tmp_path / "net.l0").exists()


def test_nothing_is_overwritten_unasked(tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    safetensors.torch.save_file(tensors, tmp_path / "net.safetensors")
    (tmp_path / "net.l0").write_text("mine")
    assert main(["pack", str(tmp_path / "net.safetensors")]) == 1
    assert "-f overwrites" in capsys.readouterr().err
    assert (tmp_path / "net.l0").read_text() == "mine"
    assert main(["pack", str(tmp_path / "net.safetensors"), "-o", str(tmp_path / "net.safetensors"), "-f"]) == 1
    assert "is the input" in capsys.readouterr().err
    assert main(["pack", str(tmp_path / "missing.safetensors")]) == 1
    assert "there is no such file" in capsys.readouterr().err


def test_standard_streams(tensors: dict[str, Tensor], tmp_path: Path):
    safetensors.torch.save_file(tensors, tmp_path / "net.safetensors")
    packed = in_child("pack", "net.safetensors", "-o", "-", folder=tmp_path)
    assert packed.returncode == 0, packed.stderr
    unpacked = in_child("unpack", "-", folder=tmp_path, data=packed.stdout)
    assert unpacked.returncode == 0, unpacked.stderr
    assert same(safetensors.torch.load(unpacked.stdout), tensors)


def test_standard_streams_and_pipes_are_read_where_they_can_be(tensors: dict[str, Tensor], tmp_path: Path):
    lz.save_file(tensors, tmp_path / "net.l0")
    packed = (tmp_path / "net.l0").read_bytes()
    safetensors.torch.save_file(tensors, tmp_path / "net.safetensors")
    for name in ("-", "/dev/stdin"):
        shown = in_child("inspect", "--json", name, folder=tmp_path, data=packed)
        assert shown.returncode == 0, shown.stderr
        found = json.loads(shown.stdout)
        assert found["file_bytes"] == len(packed) == sum(found["bytes"]["groups"]) + found["bytes"]["frame"]
        refused = in_child("pack", name, "-o", "out.l0", folder=tmp_path, data=(tmp_path / "net.safetensors").read_bytes())
        assert refused.returncode == 1
        assert refused.stderr.count(b"\n") == 1
        assert b"read from files" in refused.stderr
    assert not (tmp_path / "out.l0").exists()
    unpacked = in_child("unpack", "/dev/stdin", folder=tmp_path, data=packed)
    assert unpacked.returncode == 0, unpacked.stderr
    assert same(safetensors.torch.load(unpacked.stdout), tensors)
    assert in_child("test", "/dev/stdin", folder=tmp_path, data=packed).returncode == 0


def test_what_is_held_is_bounded_together_where_it_is_held_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    lz.save_file({f"{index}": torch.full((1 << 20,), float(index)) for index in range(8)}, tmp_path / "net.l0")
    assert (tmp_path / "net.l0").stat().st_size < 200
    for name, size, status in (("a.pt", "31M", 1), ("b.pt", "32MiB", 0), ("c.safetensors", "4M", 0), ("d.safetensors", "4194303", 1)):
        assert main(["unpack", str(tmp_path / "net.l0"), "-o", str(tmp_path / name), "--max-size", size]) == status
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        assert (tmp_path / name).exists() == (status == 0)
        if status:
            assert str(tmp_path / "net.l0") in told
            assert "limit" in told
            assert "--memory" not in told
    assert main(["inspect", str(tmp_path / "net.l0"), "--max-size", "4k"]) == 1
    assert str(tmp_path / "net.l0") in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "net.l0"), "--max-size", "4 apples"]) == 2


def test_a_folder_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for command in ("unpack", "inspect", "test"):
        assert main([command, "."]) == 1
        assert ". is a folder: name a file" in capsys.readouterr().err
