"""Networks as files: what each way of packing costs, measured from files that were read back.

    python -m experiments.packing run
    python -m experiments.packing table

Each network and way is one line of `results/packing.jsonl`. Networks, calibration and test images come from the folder ELLZERO_DATA names.
The defaults of `Calibrated` were chosen on training images; the 1,000 test images only measure.
"""

import argparse
import json
import lzma
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results" / "packing.jsonl"
CALIBRATION_IMAGES = 128
DEPTHS = {"cifar10-resnet20-12fca82f": 20, "cifar10-resnet32-d509ac18": 32, "cifar10-resnet56-4bfd9763": 56}


def lossless(folder: Path) -> Iterator[dict[str, Any]]:
    """Packs every network there is without loss, and compares with xz on the whole file and on byte planes."""
    import numpy as np
    import safetensors.numpy

    from ellzero.archive.load import load_file
    from ellzero.archive.pack import pack
    from ellzero.files import replacing

    for source in sorted((folder / "networks").glob("*.safetensors")):
        with tempfile.TemporaryDirectory() as place:
            output = Path(place) / "network.l0"
            started = time.process_time()
            with replacing(output) as file:
                report = pack(source, file)
            seconds = time.process_time() - started
            loaded = load_file(output)
        tensors = safetensors.numpy.load_file(source)
        assert all(loaded[name].numpy().tobytes() == tensor.tobytes() for name, tensor in tensors.items())
        data = source.read_bytes()
        planes = b"".join(np.ascontiguousarray(t.reshape(-1).view(np.uint8).reshape(-1, t.itemsize).T).tobytes() for t in tensors.values())
        preset = 9 | lzma.PRESET_EXTREME
        yield {
            "network": source.stem,
            "way": "lossless",
            "source_bytes": len(data),
            "file_bytes": report.file_bytes,
            "xz_bytes": len(lzma.compress(data, preset=preset)),
            "xz_planes_bytes": len(lzma.compress(planes, preset=preset)),
            "seconds": round(seconds, 1),
        }


def calibrated(folder: Path) -> Iterator[dict[str, Any]]:
    """Packs the residual networks with 128 unlabelled training images, and measures what the files decode to on the test images."""
    import safetensors.torch
    import torch

    from ellzero.archive.calibrate import Calibrated
    from ellzero.archive.load import load_model
    from ellzero.archive.save import save_model
    from ellzero.data import Half, load_cifar10, standardised
    from ellzero.models import ResNet

    torch.set_num_threads(1)
    inputs = standardised(load_cifar10(folder, batches=(1,)).inputs[:CALIBRATION_IMAGES])
    test = load_cifar10(folder, Half.TEST)
    images, labels = standardised(test.inputs), test.labels
    for stem, depth in DEPTHS.items():
        source = folder / "networks" / f"{stem}.safetensors"
        dense = ResNet(depth).eval()
        dense.load_state_dict(safetensors.torch.load_file(source))
        for rate in (0.8e-4, 1.6e-4, 2.4e-4) if depth != 56 else (1.6e-4,):
            started = time.process_time()
            with tempfile.TemporaryDirectory() as place:
                report = save_model(dense, Path(place) / "network.l0", quantise=Calibrated(inputs=inputs, nats_per_kilobyte=rate))
                packed = load_model(ResNet(depth), Path(place) / "network.l0").eval()
            seconds = time.process_time() - started
            with torch.no_grad():
                before = torch.cat([dense(piece) for piece in images.split(250)]).log_softmax(1)
                after = torch.cat([packed(piece) for piece in images.split(250)]).log_softmax(1)
            yield {
                "network": stem,
                "way": f"calibrated {rate:g}",
                "source_bytes": source.stat().st_size,
                "file_bytes": report.file_bytes,
                "kl": float((before.exp() * (before - after)).sum(1).mean()),
                "test_error_percent": 100 * float((after.argmax(1) != labels).float().mean()),
                "dense_test_error_percent": 100 * float((before.argmax(1) != labels).float().mean()),
                "seconds": round(seconds, 1),
            }


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table"])
    if parser.parse_args().command == "run":
        folder = Path(os.environ["ELLZERO_DATA"])
        for measured in (lossless, calibrated):
            for line in measured(folder):
                with open(RESULTS, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(line, flush=True)
        return
    print("| network | way | bytes | of the file | xz | xz on byte planes | KL, nats | error, % (before) |\n|" + " --- |" * 8)
    for text in RESULTS.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        share = line["file_bytes"] / line["source_bytes"]
        cells = [line["network"], line["way"], f"{line['file_bytes']:,}", f"{share:.3f}"]
        cells += [f"{line[name]:,}" if name in line else "" for name in ("xz_bytes", "xz_planes_bytes")]
        cells.append(f"{line['kl']:.4f}" if "kl" in line else "")
        cells.append(f"{line['test_error_percent']:.1f} ({line['dense_test_error_percent']:.1f})" if "kl" in line else "")
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
