"""Networks as files: what each way of packing costs, measured from files that were read back.

    python -m experiments.packing run [lossless] [calibrated] [without-data] [weight-error]
    python -m experiments.packing table

A network and a way is one line of `results/packing.jsonl`. Networks, calibration and test images come from the folder ELLZERO_DATA names.
The defaults of `Calibrated` were chosen on training images, and so was the damping of 0.05 for inputs that are made up; the 1,000 test
images only measure, for every exchange rate of a fixed list.
"""

import json
import lzma
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from experiments.commands import FOLDER, CommandLine, check_names, records, refuse

RESULTS = FOLDER / "results" / "packing.jsonl"
CALIBRATION_IMAGES = 128
RESIDUAL = {20: "cifar10-resnet20-12fca82f", 32: "cifar10-resnet32-d509ac18", 56: "cifar10-resnet56-4bfd9763"}


def lossless(folder: Path) -> Iterator[dict[str, Any]]:
    """Packs every network there is without loss, and compares with xz on the whole file and on byte planes."""
    import numpy as np
    import safetensors.numpy

    from ellzero.archive.load import load_file
    from ellzero.archive.pack import pack
    from ellzero.files.whole import replacing

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
    """Packs the residual networks with 128 unlabelled training images."""
    from ellzero.data import load_cifar10, standardised
    from ellzero.quantise.calibrate import Calibrated

    images = standardised(load_cifar10(folder, batches=(1,)).inputs[: 2 * CALIBRATION_IMAGES])
    inputs, held_out = images.split(CALIBRATION_IMAGES)
    for depth, rates in ((20, (0.8e-4, 1.6e-4, 2.4e-4)), (32, (0.8e-4, 1.6e-4, 2.4e-4)), (56, (1.6e-4,))):
        for rate in rates:
            yield residual(
                folder,
                depth,
                f"calibrated {rate:g}",
                lambda _, rate=rate: Calibrated(inputs=inputs, held_out=held_out, nats_per_kilobyte=rate),
            )


def without_data(folder: Path) -> Iterator[dict[str, Any]]:
    """Packs residual networks with no data at all: on inputs synthesised from their batch normalisation."""
    from ellzero.quantise.calibrate import Calibrated
    from ellzero.quantise.synthesise import synthetic_inputs

    synthesised = cache(lambda model: synthetic_inputs(model, (3, 32, 32)))
    for depth, rates in ((20, (1e-4, 2e-4, 4e-4, 8e-4)), (56, (0.5e-4, 1e-4, 2e-4))):
        for rate in rates:
            yield residual(
                folder,
                depth,
                f"no data {rate:g}",
                lambda model, rate=rate: Calibrated(
                    inputs=synthesised(model), held_out=synthesised(model), nats_per_kilobyte=rate, damping=0.05
                ),
            )


def weight_error(folder: Path) -> Iterator[dict[str, Any]]:
    """Packs a network with no data and no architecture, by the error of its weights alone."""
    import safetensors.torch

    from ellzero.archive.load import load_file
    from ellzero.archive.save import save_file
    from ellzero.archive.sources import tensors_of
    from ellzero.quantise.shared_step import SharedStep

    source = folder / "networks" / "silero_vad_16k.safetensors"
    tensors = safetensors.torch.load_file(source)
    total = sum(float(tensor.double().square().sum()) for tensor in tensors.values())
    for error in (0.02, 0.027, 0.04, 0.06):
        started = time.process_time()
        with tempfile.TemporaryDirectory() as place:
            report = save_file(tensors, Path(place) / "network.l0", quantise=SharedStep.at_error(tensors_of(source), error))
            packed = load_file(Path(place) / "network.l0")
        seconds = time.process_time() - started
        changed = sum(float((packed[name] - tensor).double().square().sum()) for name, tensor in tensors.items())
        yield {
            "network": source.stem,
            "way": f"shared step {error:g}",
            "source_bytes": source.stat().st_size,
            "file_bytes": report.file_bytes,
            "weight_error": (changed / total) ** 0.5,
            "seconds": round(seconds, 1),
        }


@cache
def dense(folder: Path, depth: int) -> Any:
    """Loads a residual network."""
    import safetensors.torch

    from ellzero.models import ResNet

    model = ResNet(depth).eval()
    model.load_state_dict(safetensors.torch.load_file(folder / "networks" / f"{RESIDUAL[depth]}.safetensors"))
    return model


def residual(folder: Path, depth: int, way: str, quantise: Callable[[Any], Any]) -> dict[str, Any]:
    """Packs a residual network, and measures what the file decodes to on the 1,000 test images.

    Args:
        folder: of the data.
        depth: of the network.
        way: what the record calls it.
        quantise: makes the quantiser for the network.
    """
    import torch

    from ellzero.archive.load import load_model
    from ellzero.archive.save import save_model
    from ellzero.data import Part, load_cifar10, standardised
    from ellzero.models import ResNet

    torch.set_num_threads(1)
    source, model = folder / "networks" / f"{RESIDUAL[depth]}.safetensors", dense(folder, depth)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        report = save_model(model, Path(place) / "network.l0", quantise=quantise(model))
        packed = load_model(ResNet(depth), Path(place) / "network.l0").eval()
    seconds = time.process_time() - started
    test = load_cifar10(folder, Part.TEST)
    images, labels = standardised(test.inputs), test.labels
    with torch.no_grad():
        before = torch.cat([model(piece) for piece in images.split(250)]).log_softmax(1)
        after = torch.cat([packed(piece) for piece in images.split(250)]).log_softmax(1)
    return {
        "network": source.stem,
        "way": way,
        "source_bytes": source.stat().st_size,
        "file_bytes": report.file_bytes,
        "kl": float((before.exp() * (before - after)).sum(1).mean()),
        "test_error_percent": 100 * float((after.argmax(1) != labels).float().mean()),
        "dense_test_error_percent": 100 * float((before.argmax(1) != labels).float().mean()),
        "seconds": round(seconds, 1),
    }


PARTS = {"lossless": lossless, "calibrated": calibrated, "without-data": without_data, "weight-error": weight_error}


def run(parts: list[str]) -> None:
    """Runs the parts named, all by default; a network and way that are recorded already are measured again."""
    check_names("part", parts, PARTS)
    place = os.environ.get("ELLZERO_DATA")
    if not place:
        refuse("ELLZERO_DATA is not set: it names the folder that holds cifar10/ and networks/")
    for part in parts or PARTS:
        for line in PARTS[part](Path(place)):
            record(line)
            print(line, flush=True)


def table() -> None:
    """Prints a Markdown table."""
    print("| network | way | bytes | of the file | xz | xz on byte planes | KL, nats | error, % (before) |\n|" + " --- |" * 8)
    for line in records(RESULTS):
        share = line["file_bytes"] / line["source_bytes"]
        cells = [line["network"], line["way"], f"{line['file_bytes']:,}", f"{share:.3f}"]
        cells += [f"{line[name]:,}" if name in line else "" for name in ("xz_bytes", "xz_planes_bytes")]
        cells.append(f"{line['kl']:.4f}" if "kl" in line else f"weights {line['weight_error']:.4f}" if "weight_error" in line else "")
        cells.append(f"{line['test_error_percent']:.1f} ({line['dense_test_error_percent']:.1f})" if "kl" in line else "")
        print("| " + " | ".join(cells) + " |")


def record(line: dict[str, Any]) -> None:
    """Writes a line of the results, in place of an earlier line of the same network and way."""
    lines = [old for old in records(RESULTS) if (old["network"], old["way"]) != (line["network"], line["way"])]
    RESULTS.write_text("".join(json.dumps(entry) + "\n" for entry in [*lines, line]), encoding="utf-8")


def main() -> None:
    """Parses the command line."""
    line = CommandLine(__doc__, table=table)
    line.add("run", lambda given: run(given.parts)).add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; all by default")
    line.run()


if __name__ == "__main__":
    main()
