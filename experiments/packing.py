"""Networks as files: what each way of packing costs, measured from files that were read back.

    python -m experiments.packing run [lossless] [calibrated] [without-data] [weight-error]
    python -m experiments.packing run nncodec
    python -m experiments.packing table

A network and a way is one line of `results/packing.jsonl`. Networks, calibration and test images come from the folder ELLZERO_DATA names.
The defaults of `Calibrated` were chosen on training images, and so was the damping of 0.05 for inputs that are made up; the 1,000 test
images only measure, for every exchange rate of a fixed list.

The part `nncodec` measures another coder, NNCodec 2.1.3, on the same networks, images and errors: dependent quantisation by its own rule,
without data. It needs that package, which is no dependency of ours: `pip install --no-deps nncodec==2.1.3`.
"""

import contextlib
import copy
import importlib
import io
import json
import lzma
import os
import sys
import tempfile
import time
import unittest.mock
from collections.abc import Callable, Iterator, Mapping
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
                saved(lambda _, rate=rate: Calibrated(inputs=inputs, held_out=held_out, nats_per_kilobyte=rate)),
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
                saved(
                    lambda model, rate=rate: Calibrated(
                        inputs=synthesised(model), held_out=synthesised(model), nats_per_kilobyte=rate, damping=0.05
                    )
                ),
            )


def nncodec(folder: Path) -> Iterator[dict[str, Any]]:
    """Packs with NNCodec as its users call it, without data, for a fixed list of its quantisation parameters (`qp`, log2 of a step)."""
    import numpy as np
    import safetensors.torch
    import torch

    encode, decode = nncodec_functions()

    def coded(tensors: dict[str, Any], qp: int) -> tuple[int, dict[str, Any]]:
        with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
            code = encode({name: np.atleast_1d(tensor.numpy()) for name, tensor in tensors.items()}, {"qp": qp, "results": place})
            values = decode(code, {})
        return len(code), {name: torch.from_numpy(values[name]).reshape(tensor.shape) for name, tensor in tensors.items()}

    def network(model: Any, qp: int) -> tuple[int, Any]:
        # The number of batches seen says nothing to a network that is evaluated.
        state = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
        size, values = coded(state, qp)
        packed = copy.deepcopy(model)
        packed.load_state_dict(values, strict=False)
        return size, packed

    for depth in RESIDUAL:
        for qp in range(-36, -18, 2):
            yield residual(folder, depth, f"NNCodec, qp {qp}", lambda model, qp=qp: network(model, qp))
    source = folder / "networks" / "silero_vad_16k.safetensors"
    tensors = safetensors.torch.load_file(source)
    for qp in range(-28, -10, 2):
        started = time.process_time()
        size, values = coded(tensors, qp)
        yield of_weights(source, f"NNCodec, qp {qp}", size, tensors, values, time.process_time() - started)


def nncodec_functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Imports NNCodec's encoder and decoder; what it imports besides and does not use here is left out where it is missing."""
    for name in ("torchvision", "torchmetrics", "ptflops", "cv2", "pandas", "sklearn", "h5py", "tqdm", "PIL"):
        try:
            importlib.import_module(name)
        except ImportError:
            for module in (name, f"{name}.datasets", f"{name}.transforms", f"{name}.models", f"{name}.io", f"{name}.metrics"):
                sys.modules[module] = unittest.mock.MagicMock()
    try:
        module = importlib.import_module("nncodec.nn")
    except ImportError as error:
        refuse(f"{error}: the part nncodec needs that package, `pip install --no-deps nncodec==2.1.3`")
    return module.encode, module.decode


def weight_error(folder: Path) -> Iterator[dict[str, Any]]:
    """Packs a network with no data and no architecture, by the error of its weights alone."""
    import safetensors.torch

    from ellzero.archive.load import load_file
    from ellzero.archive.save import save_file
    from ellzero.archive.sources import tensors_of
    from ellzero.quantise.shared_step import SharedStep

    source = folder / "networks" / "silero_vad_16k.safetensors"
    tensors = safetensors.torch.load_file(source)
    for error in (0.02, 0.027, 0.04, 0.06):
        started = time.process_time()
        with tempfile.TemporaryDirectory() as place:
            report = save_file(tensors, Path(place) / "network.l0", quantise=SharedStep.at_error(tensors_of(source), error))
            packed = load_file(Path(place) / "network.l0")
        yield of_weights(source, f"shared step {error:g}", report.file_bytes, tensors, packed, time.process_time() - started)


def of_weights(source: Path, way: str, size: int, tensors: dict[str, Any], packed: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Makes the record of a network that is measured by the error of its weights alone: the norm of the change over that of the weights."""
    total = sum(float(tensor.double().square().sum()) for tensor in tensors.values())
    changed = sum(float((packed[name] - tensor).double().square().sum()) for name, tensor in tensors.items())
    return {
        "network": source.stem,
        "way": way,
        "source_bytes": source.stat().st_size,
        "file_bytes": size,
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


def saved(quantise: Callable[[Any], Any]) -> Callable[[Any], tuple[int, Any]]:
    """Makes a function that saves a residual network and reads it back: it returns the bytes of the file and the network from it."""
    from ellzero.archive.load import load_model
    from ellzero.archive.save import save_model

    def pack(model: Any) -> tuple[int, Any]:
        with tempfile.TemporaryDirectory() as place:
            report = save_model(model, Path(place) / "network.l0", quantise=quantise(model))
            return report.file_bytes, load_model(copy.deepcopy(model), Path(place) / "network.l0")

    return pack


def residual(folder: Path, depth: int, way: str, pack: Callable[[Any], tuple[int, Any]]) -> dict[str, Any]:
    """Packs a residual network, and measures what the file decodes to on the 1,000 test images.

    Args:
        folder: of the data.
        depth: of the network.
        way: what the record calls it.
        pack: network -> the bytes of its file, and the network that the file decodes to.
    """
    import torch

    from ellzero.data import Part, load_cifar10, standardised

    torch.set_num_threads(1)
    source, model = folder / "networks" / f"{RESIDUAL[depth]}.safetensors", dense(folder, depth)
    started = time.process_time()
    size, packed = pack(model)
    seconds = time.process_time() - started
    packed.eval()
    test = load_cifar10(folder, Part.TEST)
    images, labels = standardised(test.inputs), test.labels
    with torch.no_grad():
        before = torch.cat([model(piece) for piece in images.split(250)]).log_softmax(1)
        after = torch.cat([packed(piece) for piece in images.split(250)]).log_softmax(1)
    return {
        "network": source.stem,
        "way": way,
        "source_bytes": source.stat().st_size,
        "file_bytes": size,
        "kl": float((before.exp() * (before - after)).sum(1).mean()),
        "test_images": len(labels),
        "test_error_percent": 100 * float((after.argmax(1) != labels).float().mean()),
        "dense_test_error_percent": 100 * float((before.argmax(1) != labels).float().mean()),
        "seconds": round(seconds, 1),
    }


PARTS = {"lossless": lossless, "calibrated": calibrated, "without-data": without_data, "weight-error": weight_error}
OTHERS = {"nncodec": nncodec}
"""Parts that need what ellzero does not depend on: run where they are named."""


def run(parts: list[str]) -> None:
    """Runs the parts named, all by default; a network and way that are recorded already are measured again."""
    all_parts = PARTS | OTHERS
    check_names("part", parts, all_parts)
    place = os.environ.get("ELLZERO_DATA")
    if not place:
        refuse("ELLZERO_DATA is not set: it names the folder that holds cifar10/ and networks/")
    for part in parts or PARTS:
        for line in all_parts[part](Path(place)):
            record(line)
            print(line, flush=True)


def table() -> None:
    """Prints a Markdown table, by network and size."""
    print(
        "| network | way | bytes | of the file | xz | xz on byte planes | KL, nats | error on 1,000 images, % (before) |\n|" + " --- |" * 8
    )
    for line in sorted(records(RESULTS), key=lambda line: (line["network"], -line["file_bytes"])):
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
    line.add("run", lambda given: run(given.parts)).add_argument(
        "parts", nargs="*", help=f"{', '.join(PARTS)}, all by default; {', '.join(OTHERS)}"
    )
    line.run()


if __name__ == "__main__":
    main()
