import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

import ellzero as lz
from ellzero.cli.main import main

NAMES = {
    "recipe",
    "seed",
    "versions",
    "parameters",
    "nonzeros",
    "stored_scalars",
    "compression_rate",
    "test_error_percent",
    "dense_test_error_percent",
    "file_bytes",
    "model_bits",
    "data_bits",
    "seconds",
}


def ellzero(*words: object, folder: Path, data: str | None = None, **more) -> subprocess.CompletedProcess[str]:
    """Runs the command as a user does, in a folder of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "ELLZERO_DATA"}
    if data is not None:
        environment["ELLZERO_DATA"] = data
    command = [sys.executable, "-m", "ellzero.cli", *map(str, words)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, **more)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """One finished run on the digits."""
    folder = tmp_path_factory.mktemp("digits")
    done = ellzero("sparsify", "digits-mlp", "--seed", 3, "-o", "run", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run", done


def test_a_run_leaves_network_log_record_and_pictures(digits):
    run, done = digits
    files = {file.name for file in run.iterdir()}
    assert {"network.safetensors", "network.l0", "quantised.l0", "log.jsonl", "record.json", "options.json"} <= files
    assert {"curves.png", "curves.svg", "network.png", "network.svg"} <= files
    assert "checkpoint.pt" not in files
    assert not [name for name in files if name.endswith(".tmp")]
    assert done.stderr == ""  # no progress bar where nobody looks
    for word in ("test error", "non-zeros", "compression rate", "bytes", "network.png"):
        assert word in done.stdout


def test_a_size_of_the_file_is_a_target(tmp_path):
    done = ellzero("sparsify", "digits-mlp", "--file-bytes", 900, "-o", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert 800 < (tmp_path / "run" / "quantised.l0").stat().st_size <= 900
    exact, coded = lz.load_file(tmp_path / "run" / "network.l0"), lz.load_file(tmp_path / "run" / "quantised.l0")
    assert all(torch.equal(exact[name], coded[name]) for name in exact)


def test_the_record_tells_the_truth_about_the_network(digits):
    run, _ = digits
    record = json.loads((run / "record.json").read_text())
    assert record.keys() >= NAMES
    tensors = safetensors.torch.load_file(run / "network.safetensors")
    nonzeros = sum(int(torch.count_nonzero(tensor)) for tensor in tensors.values())
    assert record["parameters"] == sum(tensor.numel() for tensor in tensors.values()) == 12_060
    assert record["nonzeros"] == record["stored_scalars"] == nonzeros
    assert record["compression_rate"] == pytest.approx(12_060 / nonzeros)
    assert record["file_bytes"] == (run / "network.l0").stat().st_size < (run / "network.safetensors").stat().st_size // 3
    packed = lz.load_file(run / "network.l0")
    assert set(packed) == set(tensors)
    # Bit for bit: also the signs of zeros.
    assert all(torch.equal(packed[name].view(torch.int32), tensors[name].view(torch.int32)) for name in tensors)
    assert not any((tensor.view(torch.int32) == -(2**31)).any() for tensor in tensors.values()), "a pruned weight is a negative zero"
    assert record["details"]["quantised_bytes"] == (run / "quantised.l0").stat().st_size < record["file_bytes"]
    assert record["seed"] == 3
    assert record["recipe"] == "fast"

    from ellzero.data import Part, load_digits
    from ellzero.models import DigitsMLP

    model = DigitsMLP()
    model.load_state_dict(tensors, strict=True)
    test = load_digits(Part.TEST)
    wrong = model(test.inputs.float() / test.white).argmax(-1) != test.labels
    assert record["test_error_percent"] == pytest.approx(100 * float(wrong.double().mean()))
    assert record["details"]["wrong_images"] == torch.nonzero(wrong).flatten().tolist()


def test_the_log_has_a_line_an_epoch(digits):
    run, _ = digits
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["nonzeros"] == json.loads((run / "record.json").read_text())["nonzeros"]
    assert {"train_loss", "valid_loss", "valid_error", "alpha", "lr", "phase", "stage"} <= lines[0].keys()


def test_options_come_in_any_order_and_the_same_seed_gives_the_same_bytes(digits, tmp_path):
    run, _ = digits
    done = ellzero("sparsify", "-o", "other", "--seed", 3, "--quiet", "digits-mlp", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""
    assert (tmp_path / "other/network.safetensors").read_bytes() == (run / "network.safetensors").read_bytes()


def test_a_folder_in_use_is_not_touched(digits):
    run, _ = digits
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    done = ellzero("sparsify", "digits-mlp", "-o", run, folder=run.parent)
    assert done.returncode == 1
    assert "exists already" in done.stderr
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before


def test_a_finished_run_is_not_resumed(digits):
    run, _ = digits
    done = ellzero("sparsify", "digits-mlp", "--seed", 3, "-o", run, "--resume", folder=run.parent)
    assert done.returncode == 1
    assert "finished" in done.stderr


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["sparsify", "lenet-300-100"], 1, "ELLZERO_DATA"),
        (["sparsify", "lenet-300-100", "--data", "nowhere"], 1, "nowhere"),
        (["sparsify", "no-such-network"], 1, "no-such-network"),
        (["sparsify", "no_such_module:factory", "--data", "mnist"], 1, "no_such_module"),
        (["sparsify", "json:nothing", "--data", "mnist"], 1, "nothing"),
        (["sparsify", "torch.nn:Identity"], 1, "--data"),
        (["sparsify", "digits-mlp", "--nonzeros", "5", "--error-increase", "0.1"], 1, "2 targets"),
        (["sparsify", "digits-mlp", "--nonzeros", "5", "--file-bytes", "900"], 1, "--file-bytes are 2 targets"),
        (["sparsify", "digits-mlp", "--file-bytes", "0"], 1, "Bytes(0)"),
        (["sparsify", "digits-mlp", "--file-bytes", "30"], 1, "without any weight it takes"),
        (["sparsify", "digits-mlp", "--nonzeros", "0"], 1, "NonZeros(0)"),
        (["sparsify", "digits-mlp", "--nonzeros", "99999"], 1, "99999"),
        (["sparsify", "digits-mlp", "--method", "rl1", "--beta", "3"], 2, "--beta"),
        (["sparsify", "digits-mlp", "--alpha", "-1"], 1, "-1"),
        (["sparsify", "digits-mlp", "--resume"], 1, "no run to resume"),
        (["sparsify", "digits-mlp", "--method", "magic"], 2, "magic"),
        (["sparsify", "digits-mlp", "--seed", "x"], 2, "seed"),
        (["sparsify"], 2, "MODEL"),
        (["unknown"], 2, "unknown"),
        ([], 2, "sparsify"),
    ],
)
def test_mistakes_get_one_line_a_status_and_leave_nothing(tmp_path, words, status, says):
    output = ["-o", "run"] if words[:1] == ["sparsify"] else []
    done = ellzero(*words, *output, folder=tmp_path)
    assert done.returncode == status
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    if status == 1:
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_help_and_wrong_usage_import_no_torch(tmp_path):
    script = """
import sys
from ellzero.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    assert "torch" not in sys.modules
    sys.exit(stop.code)
"""
    for words, status in ((["--help"], 0), (["sparsify", "--help"], 0), (["sparsify", "--seed", "x"], 2)):
        done = subprocess.run([sys.executable, "-c", script, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == status, done.stderr


def test_ctrl_c_keeps_a_checkpoint_and_resume_ends_with_the_same_bytes(digits, tmp_path):
    run, _ = digits
    command = [sys.executable, "-m", "ellzero.cli", "sparsify", "digits-mlp", "--seed", "3", "-o", "run"]
    environment = {name: value for name, value in os.environ.items() if name != "ELLZERO_DATA"}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "run/log.jsonl"
    for _ in range(3000):
        if log.exists() and len(log.read_text().splitlines()) >= 9:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert len(errors.splitlines()) == 1
    assert (tmp_path / "run/checkpoint.pt").exists()
    assert not (tmp_path / "run/record.json").exists()
    other = ellzero("sparsify", "digits-mlp", "--seed", 4, "-o", "run", "--resume", folder=tmp_path)
    assert other.returncode == 1
    assert "seed 3 -> 4" in other.stderr
    done = ellzero("sparsify", "digits-mlp", "--seed", 3, "-o", "run", "--resume", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/network.safetensors").read_bytes() == (run / "network.safetensors").read_bytes()
    epochs = [json.loads(line)["epoch"] for line in log.read_text().splitlines()]
    assert epochs == list(range(1, len(epochs) + 1))


OWN = """
    import torch
    from torch import nn
    import ellzero as lz

    TEST = float("{test}")

    def factory():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))

    def problem():
        images = lz.data.load_digits()
        train = lz.data.Resident(images.inputs[:1000], images.labels[:1000], batch_size=50, seed=0, white=16)
        valid = [(images.inputs[1000:].float() / 16, images.labels[1000:])]
        test = lambda: [(images.inputs[:50].float() * TEST, images.labels[:50])]
        return lz.Problem(train=train, valid=valid, test=test, samples=1000, name="own digits")

    def not_a_problem():
        return 3
"""


def test_the_users_own_network_and_data(tmp_path):
    (tmp_path / "mine.py").write_text(textwrap.dedent(OWN.format(test=1 / 16)))
    done = ellzero("sparsify", "mine:factory", "--data", "mine:problem", "-o", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["details"]["data"] == "own digits"
    wrong = ellzero("sparsify", "mine:factory", "--data", "mine:not_a_problem", "-o", "other", folder=tmp_path)
    assert wrong.returncode == 1
    assert "expected ellzero.Problem" in wrong.stderr


def test_the_test_set_chooses_nothing(tmp_path):
    networks = []
    for name, test in (("real", 1 / 16), ("nan", "nan")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "mine.py").write_text(textwrap.dedent(OWN.format(test=test)))
        for recipe in ("fast", "smallest"):
            words = ("--nonzeros", 200) if recipe == "smallest" else ()
            done = ellzero("sparsify", "mine:factory", "--data", "mine:problem", "--recipe", recipe, *words, "-o", recipe, folder=folder)
            assert done.returncode == 0, done.stderr
        networks.append([(folder / recipe / "network.safetensors").read_bytes() for recipe in ("fast", "smallest")])
    assert networks[0] == networks[1]


def test_a_truncated_file_is_named(tmp_path, data_directory):
    for file in (data_directory / "mnist").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    broken = tmp_path / "train-images-idx3-ubyte.gz"
    broken.write_bytes(broken.read_bytes()[:100_000])
    done = ellzero("sparsify", "lenet-300-100", "--data", tmp_path, "-o", "run", folder=tmp_path)
    assert done.returncode == 1
    assert "train-images-idx3-ubyte.gz" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_the_demo_runs_without_data_and_again(tmp_path):
    for _ in range(2):
        done = ellzero("demo", folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "smoke test" in done.stdout
    assert "network.png" in done.stdout
    assert "restored bit for bit" in done.stdout
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious.txt").write_text("mine")
    refused = ellzero("demo", "-o", "other", folder=tmp_path)
    assert refused.returncode == 1
    assert (other / "precious.txt").read_text() == "mine"


def test_help_lists_every_option(tmp_path):
    done = ellzero("sparsify", "--help", folder=tmp_path)
    assert done.returncode == 0
    for word in ("--recipe", "--data", "--seed", "--method", "--alpha", "--nonzeros", "--error-increase", "--resume", "-o"):
        assert word in done.stdout


def test_a_killed_run_resumes_without_logging_an_epoch_twice(tmp_path):
    command = [sys.executable, "-m", "ellzero.cli", "sparsify", "digits-mlp", "--nonzeros", "900", "-o", "run"]
    environment = {name: value for name, value in os.environ.items() if name != "ELLZERO_DATA"}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = tmp_path / "run/log.jsonl"
    for _ in range(6000):
        if log.exists() and len(log.read_text().splitlines()) >= 5:
            break
        time.sleep(0.01)
    process.kill()  # the first checkpoint would have come after a minute: the run starts anew
    process.wait(timeout=60)
    done = ellzero("sparsify", "digits-mlp", "--nonzeros", 900, "-o", "run", "--resume", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    epochs = [json.loads(line)["epoch"] for line in log.read_text().splitlines()]
    assert epochs == list(range(1, len(epochs) + 1))


def test_the_version_is_told_and_the_package_is_a_command(tmp_path):
    command = [sys.executable, "-m", "ellzero", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, f"ellzero {lz.__version__}")


def test_a_quantised_file_that_is_far_worse_than_its_network_is_warned_of(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ellzero.cli.jobs.sparsify.LogGrid", lambda: lz.LogGrid(30.0))
    monkeypatch.setattr("ellzero.cli.jobs.outcome.draw", lambda *anything: ())  # pictures have tests of their own
    assert main(["sparsify", "digits-mlp", "-o", "run"]) == 0
    said = capsys.readouterr()
    details = json.loads((tmp_path / "run/record.json").read_text())["details"]
    assert details["quantised_valid_error_percent"] > details["valid_error_percent"] + 2
    assert "its test error, far above the network's" in said.out
    points = details["quantised_valid_error_percent"] - details["valid_error_percent"]
    assert f"ellzero: warning: quantised.l0 is worse than the network by {points:.2f} points of validation error (" in said.err
    assert "more than 0.5 points): a finer grid is good enough, ellzero pack run --quantise log --ratio 1.15; or use network.l0" in said.err
    assert main(["pack", "run", "--quantise", "log", "--ratio", "1.15"]) == 0
