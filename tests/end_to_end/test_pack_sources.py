"""What `ellzero pack` reads: all of a network or nothing, from shards, folders and checkpoints, and never over its own input."""

import json
import os
import pickle
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import ellzero as lz
from ellzero.cli.main import main


@pytest.fixture
def tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in (("a", (4, 6)), ("b", (6,)), ("c", (3, 2)), ("d", (5,)))}


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("owned",)


def write_shards(folder: Path, stem: str, ending: str, tensors: Mapping[str, Tensor]) -> Path:
    """Writes two shards and their index as Hugging Face does, and returns the index."""
    folder.mkdir(exist_ok=True)
    where: dict[str, str] = {}
    for number in (1, 2):
        shard = f"{stem}-0000{number}-of-00002.{ending}"
        held = dict(list(tensors.items())[number - 1 :: 2])
        if ending == "safetensors":
            safetensors.torch.save_file(held, folder / shard)
        else:
            torch.save(held, folder / shard)
        where.update(dict.fromkeys(held, shard))
    index = folder / f"{stem}.{ending}.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": where}))
    return index


def refused(words: Sequence[object], said: str, capsys: pytest.CaptureFixture[str], status: int = 1) -> None:
    """Runs a command and asserts that it fails in one line that holds some words."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == status
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.startswith("ellzero: ")
    assert told.err.count("\n") == 1
    assert told.out == ""


def same(path: Path, tensors: Mapping[str, Tensor]) -> bool:
    loaded = lz.load_file(path)
    return loaded.keys() == tensors.keys() and all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


SHARDED = [
    ("model", "safetensors"),
    ("diffusion_pytorch_model", "safetensors"),
    ("model.fp16", "safetensors"),
    ("pytorch_model", "bin"),
    ("diffusion_pytorch_model", "bin"),
]


@pytest.mark.parametrize(("stem", "ending"), SHARDED)
@pytest.mark.parametrize("given", ["folder", "index"])
def test_all_shards_are_packed_of_every_kind(stem: str, ending: str, given: str, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    index = write_shards(tmp_path / "model", stem, ending, tensors)
    assert main(["pack", str(index if given == "index" else index.parent), "-o", str(tmp_path / "net.l0"), "-q"]) == 0
    assert same(tmp_path / "net.l0", tensors)


@pytest.mark.parametrize("name", ["model.safetensors", "diffusion_pytorch_model.safetensors", "any.safetensors"])
def test_a_folder_with_one_file_is_that_file(name: str, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    safetensors.torch.save_file(tensors, tmp_path / name)
    assert main(["pack", str(tmp_path), "-q"]) == 0
    assert same(tmp_path / "network.l0", tensors)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "diffusion_pytorch_model.bin"])
def test_a_folder_with_one_checkpoint_is_that_checkpoint(name: str, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(tensors, tmp_path / name)
    assert main(["pack", str(tmp_path), "-q"]) == 0
    assert same(tmp_path / "network.l0", tensors)


def test_a_shard_alone_is_no_network(tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = write_shards(tmp_path / "model", "model", "safetensors", tensors)
    index.unlink()
    (tmp_path / "model" / "model-00002-of-00002.safetensors").unlink()
    refused(["pack", tmp_path / "model"], "holds no network", capsys)


@pytest.mark.parametrize("ending", ["safetensors", "bin"])
def test_a_tensor_that_its_shard_lacks_is_missed(
    ending: str, tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = write_shards(tmp_path / "model", "model", ending, tensors)
    table = json.loads(index.read_text())
    table["weight_map"]["lost"] = table["weight_map"]["a"]
    index.write_text(json.dumps(table))
    refused(["pack", index, "-o", tmp_path / "net.l0"], "'lost'", capsys)
    assert not (tmp_path / "net.l0").exists()


def test_a_shard_hides_no_code(
    tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    index = write_shards(tmp_path / "model", "pytorch_model", "bin", tensors)
    with open(tmp_path / "model" / "pytorch_model-00002-of-00002.bin", "wb") as file:
        pickle.dump(Evil(), file)
    refused(["pack", index], "no file of weights alone", capsys)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("ending", ["safetensors", "bin"])
def test_no_file_that_is_read_is_overwritten(
    ending: str, tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = write_shards(tmp_path / "model", "model", ending, tensors)
    inside = sorted(index.parent.iterdir())
    before = {file: file.read_bytes() for file in inside}
    assert len(inside) == 3
    for source in (index, index.parent) if ending == "safetensors" else (index,):
        for output in inside:
            refused(["pack", source, "-o", output, "-f"], "is the input", capsys)
    (tmp_path / "link").symlink_to(inside[0])
    refused(["pack", index, "-o", tmp_path / "link", "-f"], "is the same file as", capsys)
    assert {file: file.read_bytes() for file in sorted(index.parent.iterdir())} == before


def test_a_folder_is_not_packed_over_its_own_file(tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    safetensors.torch.save_file(tensors, tmp_path / "network.safetensors")
    (tmp_path / "options.json").write_text('{"model": "digits-mlp"}')
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    for file in before:
        refused(["pack", tmp_path, "-o", file, "-f"], "is the input", capsys)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"nested": {"w": torch.ones(3)}}, "'nested' is dict"),
        ({"_extra": [torch.ones(3)]}, "'_extra' is list"),
        ({"epoch": 3}, "'epoch' is int"),
        ({7: torch.ones(3)}, "7 is int"),
        ({"model": {"x": torch.ones(3)}}, "beside"),
        ({"model": {"x": torch.ones(3)}, "state_dict": {"x": torch.zeros(3)}}, "beside"),
        ({"empty": torch.empty(3, device="meta")}, "'empty'"),
        ({"sparse": torch.eye(3).to_sparse()}, "'sparse'"),
    ],
)
def test_what_no_network_file_holds_is_refused_by_name(
    more: dict[Any, Any], said: str, tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({**tensors, **more}, tmp_path / "net.pt")
    refused(["pack", tmp_path / "net.pt"], said, capsys)
    assert not (tmp_path / "net.l0").exists()


def test_two_networks_in_a_checkpoint_are_not_one(tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"model": tensors, "state_dict": {"a": torch.ones(3)}}, tmp_path / "net.pt")
    refused(["pack", tmp_path / "net.pt"], "'model'", capsys)


def test_of_a_training_checkpoint_its_network_is_packed(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    state = {"epoch": 3, "model_state_dict": tensors, "optimizer": {"state": {}}, "scheduler": [1, 2]}
    torch.save(state, tmp_path / "net.pt")
    assert main(["pack", str(tmp_path / "net.pt"), "-q"]) == 0
    assert same(tmp_path / "net.l0", tensors)


def test_what_stands_beside_a_network_is_said_and_left_out(
    tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = {
        "epoch": 3,
        "arch": "net\x1b[2J",
        "best_acc1": torch.tensor(76.25),
        "rng_state": torch.get_rng_state(),
        "score": np.float64(0.5),
    }
    state = {**beside, "args": Namespace(lr=0.1), "state_dict_ema": {name: tensor + 1 for name, tensor in tensors.items()}}
    torch.save({**state, "optimizer": {"state": {}}, "state_dict": tensors}, tmp_path / "net.pt")
    assert main(["pack", str(tmp_path / "net.pt")]) == 0
    said = capsys.readouterr().err
    assert "'state_dict' is packed; left out: 'epoch' (3), 'arch' ('net\\x1b[2J'), 'best_acc1' (76.25), 'rng_state' (a tensor" in said
    assert "'score' (0.5), 'args' (Namespace), 'state_dict_ema' (another network of 4 tensors: save it as a file of its own" in said
    assert "'optimizer' (dict)" in said
    assert same(tmp_path / "net.l0", tensors)
    assert main(["pack", str(tmp_path / "net.pt"), "-q", "-f"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("names", [("params", "params_ema"), ("student", "ema"), ("weights_g", "model_avg"), ("only", "swa_model")])
def test_a_running_average_is_not_the_network(names: tuple[str, str], tensors: dict[str, Tensor], tmp_path: Path) -> None:
    average = {name: tensor + 1 for name, tensor in tensors.items()}
    torch.save({names[1]: average, names[0]: tensors}, tmp_path / "net.pt")
    assert main(["pack", str(tmp_path / "net.pt"), "-q"]) == 0
    assert same(tmp_path / "net.l0", tensors)
    torch.save({names[1]: average, "step": 5}, tmp_path / "average.pt")
    assert main(["pack", str(tmp_path / "average.pt"), "-q"]) == 0
    assert same(tmp_path / "average.l0", average)


def test_of_two_networks_none_is_guessed(tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"generator": tensors, "discriminator": tensors}, tmp_path / "net.pt")
    refused(["pack", tmp_path / "net.pt"], "'generator' and 'discriminator' beside it", capsys)


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("net.pth.tar", "net.l0"),
        ("net.pt.bin", "net.l0"),
        ("net", "net.l0"),
        ("net-1.5", "net-1.5.l0"),
        ("net.pt", "net.l0"),
        ("net.safetensors", "net.l0"),
        ("net.model", "net.model.l0"),
    ],
)
@pytest.mark.parametrize("kind", ["archive", "pickle", "safetensors"])
def test_files_are_known_by_what_is_in_them(name: str, output: str, kind: str, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    if kind == "safetensors":
        safetensors.torch.save_file(tensors, tmp_path / name)
    else:
        torch.save(tensors, tmp_path / name, _use_new_zipfile_serialization=kind == "archive")
    assert main(["pack", str(tmp_path / name), "-q"]) == 0
    assert same(tmp_path / output, tensors)


def test_a_checkpoint_is_unpacked_where_its_name_says_so(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    lz.save_file(tensors, tmp_path / "net.l0")
    for name in ("back.pth.tar", "back.pt"):
        assert main(["unpack", str(tmp_path / "net.l0"), "-o", str(tmp_path / name), "-q"]) == 0
        assert torch.load(tmp_path / name, weights_only=True).keys() == tensors.keys()


@pytest.mark.parametrize("ending", ["safetensors", "bin"])
def test_an_index_says_which_shard_holds_what(
    ending: str, tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = write_shards(tmp_path / "model", "model", ending, tensors)
    second = index.parent / f"model-00002-of-00002.{ending}"
    held = {"b": tensors["b"], "d": tensors["d"], "a": torch.zeros(4, 6), "old": torch.zeros(2)}
    if ending == "safetensors":
        safetensors.torch.save_file(held, second)
    else:
        torch.save(held, second)
    assert main(["pack", str(index), "-o", str(tmp_path / "net.l0")]) == 0
    assert f"left out: 'old', which {index.name} does not list" in capsys.readouterr().err
    assert same(tmp_path / "net.l0", tensors)


def test_metadata_of_safetensors_are_said_to_be_left_out(
    tensors: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    safetensors.torch.save_file(tensors, tmp_path / "net.safetensors", metadata={"format": "pt", "ss\x1b": "1", "licence": "x"})
    assert main(["pack", str(tmp_path / "net.safetensors")]) == 0
    assert "left out: metadata 'licence' and 1 more" in capsys.readouterr().err


class TiedNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight


@pytest.mark.parametrize("words", [[], ["--model", "tied:make"]])
def test_tied_weights_absent_from_safetensors_load(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("tied")
    module.__dict__["make"] = TiedNetwork
    monkeypatch.setitem(sys.modules, "tied", module)
    torch.manual_seed(0)
    model = TiedNetwork()
    safetensors.torch.save_model(model, str(tmp_path / "net.safetensors"))
    assert len(safetensors.torch.load_file(tmp_path / "net.safetensors")) == 1
    assert main(["pack", str(tmp_path / "net.safetensors"), *words, "-q"]) == 0
    other = lz.load_model(TiedNetwork(), tmp_path / "net.l0")
    assert torch.equal(other.head.weight, model.head.weight)
    assert other.head.weight is other.embedding.weight


HOSTILE = "a\x1b[31m[bold]\u202eb:smile:\n\x9bc"
ESCAPED = r"a\x1b[31m[bold]\u202eb:smile:\n\x9bc"


def test_control_characters_in_names_are_escaped_wherever_they_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name could move the cursor, colour a terminal, or look like another one."""

    def said() -> str:
        told = capsys.readouterr()
        text = told.out + told.err
        assert not {character for character in text.replace("\n", "") if not character.isprintable()}
        return text

    lz.save_file({HOSTILE: torch.ones(3, 2), "again": torch.ones(3), "nan": torch.full((2,), torch.nan)}, tmp_path / "net.l0")
    assert main(["inspect", str(tmp_path / "net.l0")]) == 0
    assert ESCAPED in said()
    assert main(["inspect", str(tmp_path / "net.l0"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tensors"][0]["name"] == HOSTILE
    torch.save({HOSTILE: torch.ones(3), "epoch": 3}, tmp_path / "net.pt")
    assert main(["pack", str(tmp_path / "net.pt"), "-f"]) == 1
    said()
    torch.save({"state_dict": {"a": torch.ones(3)}, HOSTILE: HOSTILE}, tmp_path / "net.pt")
    assert main(["pack", str(tmp_path / "net.pt"), "-f"]) == 0
    assert ESCAPED in said()
    torch.save({HOSTILE: torch.full((80,), torch.nan)}, tmp_path / "net.pt")
    assert main(["pack", str(tmp_path / "net.pt"), "-f", "--quantise", "log"]) == 1
    assert ESCAPED in said()
    header = json.dumps({HOSTILE: {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}).encode()
    (tmp_path / "net.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"x")
    assert main(["pack", str(tmp_path / "net.safetensors"), "-f"]) == 1
    assert ESCAPED in said()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": HOSTILE}}))
    assert main(["pack", str(folder)]) == 1
    assert ESCAPED in said()


def test_control_characters_in_the_names_of_files_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{HOSTILE.replace(chr(10), '')}.l0"
    lz.save_file({"a": torch.ones(3)}, path)
    for words in (["list"], ["test"], ["unpack"], ["unpack"]):
        main([*words, str(path)])
        told = capsys.readouterr()
        assert all(character.isprintable() for character in (told.out + told.err).replace("\n", ""))
        assert words == ["test"] or ESCAPED.replace(r"\n", "") in told.out + told.err
