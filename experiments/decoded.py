"""Decodes files of networks by the command, in another process, and counts errors over all test images.

    python -m experiments.lenet5 run --configurations bytes-1500 --seeds 0 1 2 --keep runs
    python -m experiments.decoded lenet-5-caffe runs/bytes-1500-*/quantised.l0

Prints one line per file: bytes, non-zeros, wrong test images, test error. The process that measures reads nothing but what `ellzero unpack`
wrote.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

from ellzero.cli.jobs.by_name import dataset_for, image_problem, network, wants_channels
from ellzero.params import count_nonzeros
from experiments.commands import check_names, refuse

MODELS = ("lenet-300-100", "lenet-5-caffe")


def main() -> None:
    """Parses the command line and measures every file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help=" or ".join(MODELS))
    parser.add_argument("files", nargs="+", type=Path, help="files of such networks")
    arguments = parser.parse_args()
    check_names("network", [arguments.model], MODELS)
    if missing := [str(file) for file in arguments.files if not file.is_file()]:
        refuse(f"there is no file {', '.join(missing)}")
    torch.set_num_threads(1)
    dataset, folder = dataset_for(arguments.model, None)
    model = network(arguments.model, 0)
    options = {"seed": 0, "batch_size": 1000, "train_size": None, "validation": 5000, "augment": None, "copies": None}
    problem = image_problem(dataset, folder, channels=wants_channels(model), **options)
    test = list(problem.test())
    with tempfile.TemporaryDirectory() as scratch:
        for file in arguments.files:
            decoded = Path(scratch) / "decoded.safetensors"
            subprocess.run([sys.executable, "-m", "ellzero", "unpack", "-q", "-f", str(file), "-o", str(decoded)], check=True)
            model.load_state_dict(load_file(decoded))
            model.eval()
            with torch.no_grad():
                wrong = sum(int((model(inputs).argmax(1) != labels).sum()) for inputs, labels in test)
            images = sum(len(labels) for _, labels in test)
            error = 100 * wrong / images
            print(f"{file}: {file.stat().st_size:,} bytes, {count_nonzeros(model):,} non-zeros, {wrong} of {images:,} wrong, {error:.2f} %")


if __name__ == "__main__":
    main()
