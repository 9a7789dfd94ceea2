"""`ellzero pack` where it runs the network: calibration by data, by inputs made up, and folding of batch normalisation."""

import json
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import ellzero as lz
from ellzero.cli.main import main

MODULE = """
import torch
from torch import nn

import ellzero as lz


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 24, 3, padding=1, stride=2)
        self.last = nn.BatchNorm2d(24)
        self.head = nn.Linear(24, 5)

    def forward(self, images):
        features = torch.relu(self.norm(self.first(images)))
        features = torch.relu(self.last(self.second(features)))
        return self.head(features.mean((2, 3)))


def other():
    return nn.Linear(3, 2)


def wide():
    net = Net()
    net.first = nn.Conv2d(3, 17, 3, bias=False)
    return net


def more():
    net = Net()
    net.extra = nn.Parameter(torch.zeros(3))
    return net


def images():
    return torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def batches():
    return (piece for piece in images().split(16))


def problem():
    pairs = [(piece, torch.zeros(len(piece))) for piece in images().split(16)]
    return lz.Problem(train=pairs, test=lambda: 1 / 0, samples=40)


def nothing():
    return []


def number():
    return 3


def narrow():
    return torch.zeros(4, 2, 8, 8)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user: a module with an architecture and data, and a network of it that has seen training."""
    (tmp_path / "mine_to_pack.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine_to_pack", raising=False)
    torch.manual_seed(0)
    model = net().train()
    for _ in range(30):
        model(torch.randn(32, 3, 8, 8) + torch.tensor([0.5, 0.0, -0.5]).view(3, 1, 1))
    safetensors.torch.save_file(model.state_dict(), tmp_path / "net.safetensors")
    return tmp_path


def net() -> nn.Module:
    import mine_to_pack  # type: ignore[import-not-found]

    return mine_to_pack.Net().eval()


def answers(path: Path) -> Tensor:
    model = net()
    if path.suffix == ".l0":
        lz.load_model(model, path)
    else:
        model.load_state_dict(safetensors.torch.load_file(path))
    with torch.no_grad():
        return model(torch.randn(50, 3, 8, 8, generator=torch.Generator().manual_seed(9)))


def error(path: Path) -> float:
    """How far the answers of a packed network are from the original's, relatively."""
    original = answers(path.with_name("net.safetensors"))
    return float((answers(path) - original).norm() / original.std() / original.numel() ** 0.5)


@pytest.mark.parametrize(
    "words",
    [
        ["--data", "mine_to_pack:images"],
        ["--data", "mine_to_pack:batches"],
        ["--data", "mine_to_pack:problem", "--samples", "20"],
        ["--quantise", "calibrated", "--input", "3x8x8", "--samples", "16"],
    ],
    ids=["a batch", "batches", "a problem", "no data"],
)
def test_a_calibrated_network_is_smaller_and_answers_alike(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = folder / "net.l0"
    assert main(["pack", "net.safetensors", "-q", "-o", "lossless.l0"]) == 0
    price = ["--nats-per-kilobyte", "2e-6", "--answers", "logits"]
    assert main(["pack", "net.safetensors", "--model", "mine_to_pack:Net", "--fold-batchnorm", *price, *words]) == 0
    assert packed.stat().st_size < 0.4 * (folder / "lossless.l0").stat().st_size
    assert error(packed) < 0.15
    assert (lz.load_file(packed)["norm.running_mean"] == 0).all()
    assert main(["test", str(packed)]) == 0
    capsys.readouterr()
    assert main(["inspect", str(packed), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file_bytes"] == packed.stat().st_size


def test_a_lower_price_is_a_larger_file_that_is_closer(folder: Path) -> None:
    for price in ("1e-6", "1e-3"):
        words = ["--data", "mine_to_pack:images", "--answers", "logits", "--nats-per-kilobyte", price, "-o", f"{price}.l0"]
        assert main(["pack", "net.safetensors", "--model", "mine_to_pack:Net", "-q", *words]) == 0
    fine, coarse = folder / "1e-6.l0", folder / "1e-3.l0"
    assert fine.stat().st_size > coarse.stat().st_size
    assert error(fine) < error(coarse)
    # Without the option, normalisation stays what it was.
    assert torch.equal(lz.load_file(fine)["norm.running_var"], safetensors.torch.load_file(folder / "net.safetensors")["norm.running_var"])


def test_a_network_that_answers_differently_is_warned_of_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pack", "net.safetensors", "--model", "mine_to_pack:Net", "--data", "mine_to_pack:images", "-f"]
    assert main([*words, "--answers", "logits", "--nats-per-kilobyte", "1e-3"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3
    # The network of this folder has seen inputs of other means.
    assert said[0].startswith("ellzero: warning: the inputs are not like those that the network was trained on, by ")
    assert said[1].startswith("ellzero: warning: the quantised network answers differently, by ")
    assert main([*words, "--nats-per-kilobyte", "1e-3"]) == 1
    assert "answers of shape (35, 5)" in capsys.readouterr().err


def test_folding_alone_keeps_the_function_and_goes_before_a_grid(folder: Path) -> None:
    words = ["pack", "net.safetensors", "--model", "mine_to_pack:Net", "--fold-batchnorm", "--input", "3x8x8", "-q"]
    assert main(words) == 0
    torch.testing.assert_close(answers(folder / "net.l0"), answers(folder / "net.safetensors"))
    assert (lz.load_file(folder / "net.l0")["last.weight"] == 1).all()
    for grid in ("uniform", "log", "shared"):
        assert main([*words, "--quantise", grid, "-o", f"{grid}.l0"]) == 0
        assert (folder / f"{grid}.l0").stat().st_size < 0.6 * (folder / "net.l0").stat().st_size
        assert 0 < error(folder / f"{grid}.l0") < 0.3


def test_a_file_may_lack_what_its_modules_can_do_without_and_nothing_else(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = safetensors.torch.load_file(folder / "net.safetensors")
    del tensors["norm.num_batches_tracked"]
    safetensors.torch.save_file(tensors, folder / "older.safetensors")
    words = ["--model", "mine_to_pack:Net", "--fold-batchnorm", "--input", "3x8x8", "-q"]
    assert main(["pack", "older.safetensors", *words]) == 0
    torch.testing.assert_close(answers(folder / "older.l0"), answers(folder / "net.safetensors"))
    del tensors["norm.running_mean"]
    safetensors.torch.save_file(tensors, folder / "damaged.safetensors")
    assert main(["pack", "damaged.safetensors", *words]) == 1
    assert "lacks 'norm.running_mean'" in capsys.readouterr().err


def test_a_run_says_itself_what_it_is_and_a_data_sets_name_is_enough(folder: Path) -> None:
    run = folder / "run"
    run.mkdir()
    model = lz.models.DigitsMLP(seed=0)
    safetensors.torch.save_file(model.state_dict(), run / "network.safetensors")
    (run / "options.json").write_text(json.dumps({"model": "digits-mlp"}))
    assert main(["pack", str(run), "--data", "digits", "-q"]) == 0
    assert main(["pack", str(run), "-q", "-o", "lossless.l0"]) == 0
    assert (run / "network-calibrated.l0").stat().st_size < 0.4 * (folder / "lossless.l0").stat().st_size
    images = lz.data.load_digits(lz.data.Part.TEST)
    inputs = images.inputs / images.white
    with torch.no_grad():
        before = model(inputs)
        after = lz.load_model(lz.models.DigitsMLP(seed=1), run / "network-calibrated.l0")(inputs)
    assert float((after - before).norm() / before.norm()) < 0.2
    (run / "options.json").write_text("{}")
    assert main(["pack", str(run), "--data", "digits", "-q", "-f"]) == 1


@pytest.mark.parametrize("grid", ["log", "uniform", "shared"])
def test_a_run_keeps_its_own_files_beside_what_is_packed_of_it(grid: str, folder: Path) -> None:
    run = folder / "run"
    run.mkdir()
    safetensors.torch.save_file(lz.models.DigitsMLP(seed=0).state_dict(), run / "network.safetensors")
    for name in ("network.l0", "quantised.l0"):
        (run / name).write_text("of the run")
    assert main(["pack", str(run), "--quantise", grid, "-q"]) == 0
    assert main(["pack", str(run), "--quantise", grid, "-q", "-f"]) == 0
    assert (run / "network.l0").read_text() == (run / "quantised.l0").read_text() == "of the run"
    assert main(["test", str(run / f"network-{grid}.l0")]) == 0


@pytest.mark.parametrize("grid", ["log", "uniform", "shared"])
def test_with_its_architecture_a_network_keeps_its_statistics_on_every_grid(grid: str, folder: Path) -> None:
    original = safetensors.torch.load_file(folder / "net.safetensors")
    buffers = {name for name, _ in net().named_buffers()}
    assert main(["pack", "net.safetensors", "--quantise", grid, "-q", "-o", "alone.l0"]) == 0
    assert main(["pack", "net.safetensors", "--quantise", grid, "-q", "--model", "mine_to_pack:Net"]) == 0
    alone, known = lz.load_file(folder / "alone.l0"), lz.load_file(folder / "net.l0")
    assert {name for name, tensor in known.items() if torch.equal(tensor, original[name])} >= buffers
    assert not torch.equal(alone["norm.running_var"], original["norm.running_var"])
    assert torch.equal(alone["first.weight"], known["first.weight"])
    assert not torch.equal(known["first.weight"], original["first.weight"])


def test_a_lossless_file_is_checked_against_an_architecture_and_keeps_its_types(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in net().state_dict().items()}
    safetensors.torch.save_file(half, folder / "half.safetensors")
    assert main(["pack", "half.safetensors", "-q", "--model", "mine_to_pack:Net"]) == 0
    loaded = lz.load_file(folder / "half.l0")
    assert all(torch.equal(loaded[name], tensor) and loaded[name].dtype == tensor.dtype for name, tensor in half.items())
    assert main(["pack", "half.safetensors", "-q", "-f", "--model", "lenet-300-100"]) == 1
    assert "which lenet-300-100 lacks" in capsys.readouterr().err


def assert_refused(words: list[str], status: int, said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "net.safetensors", *words]) == status
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.startswith("ellzero: ")
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert not (folder / "net.l0").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "mine_to_pack:Net", "--quantise", "calibrated", "--input", "2x8x8"], "does not take inputs of the shape"),
        (["--model", "mine_to_pack:Net", "--fold-batchnorm", "--input", "2x8x8"], "does not run on these inputs"),
        (["--model", "mine_to_pack:Net", "--data", "mine_to_pack:narrow"], "does not run on these inputs"),
        (["--model", "mine_to_pack:Net", "--data", "mine_to_pack:nothing"], "returned no batch"),
        (["--model", "mine_to_pack:Net", "--data", "mine_to_pack:number"], "returned int, expected a batch"),
        (["--model", "mine_to_pack:other", "--data", "mine_to_pack:images"], "which mine_to_pack:other lacks"),
        (["--model", "mine_to_pack:none", "--data", "mine_to_pack:images"], "has no 'none'"),
        (["--model", "no-such", "--data", "mine_to_pack:images"], "no network is named 'no-such'"),
        (["--model", "mine_to_pack:Net", "--data", "missing"], "missing"),
        (["--model", "mine_to_pack:other", "--quantise", "uniform"], "which mine_to_pack:other lacks"),
        (["--model", "lenet-300-100", "--quantise", "log"], "which lenet-300-100 lacks"),
        (["--model", "mine_to_pack:wide"], "has the shape (16, 3, 3, 3)"),
        (["--model", "mine_to_pack:more", "--quantise", "shared"], "lacks 'extra'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_and_nothing_is_written(
    words: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(words, 1, said, folder, capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "mine_to_pack:images"], "say its architecture, --model"),
        (["--fold-batchnorm"], "say its architecture, --model"),
        (["--model", "mine_to_pack:Net", "--fold-batchnorm"], "or the shape of one, such as --input 3x32x32"),
        (["--model", "mine_to_pack:Net", "--quantise", "calibrated"], "say where they are, --data"),
        (["--model", "mine_to_pack:Net", "--quantise", "calibrated", "--input", "3,8,8"], "--input 3,8,8: expected the shape"),
        (["--model", "mine_to_pack:Net", "--data", "mine_to_pack:images", "--quantise", "log"], "--quantise calibrated, not log"),
        (["--model", "mine_to_pack:Net", "--data", "mine_to_pack:images", "--lossless"], "--lossless contradicts"),
        (["--model", "mine_to_pack:Net", "--data", "mine_to_pack:images", "--nats-per-kilobyte", "0"], "--nats-per-kilobyte 0"),
        (["--model", "mine_to_pack:Net", "--data", "mine_to_pack:images", "--samples", "0"], "--samples 0: expected at least 2"),
        (["--quantise", "log", "--ratio", "0.5"], "the ratio must be above 1"),
        (["--quantise", "uniform", "--error", "2"], "errors lie between 0 and 1"),
        (["--quantise", "shared", "--error", "0"], "errors lie between 0 and 1"),
        (["--quantise", "calibrated", "--input", "3x8x8"], "say its architecture, --model"),
        (["--lossless", "--quantise", "log"], "--lossless contradicts"),
        (["--quantise", "log", "--answers", "logits"], "--answers is for calibration"),
        (["--quantise", "log", "--input", "3x8x8"], "--input and --samples are for"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line_and_a_status_of_its_own(
    words: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(words, 2, said, folder, capsys)
