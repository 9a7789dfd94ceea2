"""Layerwise pruning of trained networks without training or labels, beside pruning by magnitude.

    python -m experiments.layerwise run --network resnet20 --zeros 0.5
    python -m experiments.layerwise table

A variant is one line of `results/layerwise.jsonl`; variants that are recorded already are not run again. Calibration: the first
500 images of CIFAR-10's file 1, without labels. KL: mean over the first 1,000 test images, in nats, from the dense network.
"""

import copy
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ellzero.records import append_line, versions
from experiments.commands import FOLDER, CommandLine, records, refuse

RESULTS = FOLDER / "results" / "layerwise.jsonl"
NETWORKS = {
    "resnet20": (20, "cifar10-resnet20-12fca82f"),
    "resnet32": (32, "cifar10-resnet32-d509ac18"),
    "resnet56": (56, "cifar10-resnet56-4bfd9763"),
}
CALIBRATION_IMAGES = 500


def variants(zeros: float, calibration: Any) -> dict[str, Callable[[Any], None]]:
    """Lists the ways to prune a model in place; imports torch."""
    from ellzero.params import apply_masks_, select_parameters
    from ellzero.pruning import Allocation, layerwise_prune_, magnitude_masks

    def keep(tensors: Any) -> int:
        total = sum(tensor.numel() for tensor in tensors.values())
        return total - round(zeros * total)

    def magnitude(model: Any) -> None:
        params = select_parameters(model)
        apply_masks_(params, magnitude_masks(params, keep=keep(params)))

    def magnitude_evenly(model: Any) -> None:
        for name, tensor in select_parameters(model).items():
            apply_masks_({name: tensor}, magnitude_masks({name: tensor}, keep=keep({name: tensor})))

    def layerwise(allocate: Allocation) -> Callable[[Any], None]:
        def prune_(model: Any) -> None:
            layerwise_prune_(model, calibration, zeros=zeros, allocate=allocate)

        return prune_

    return {
        "magnitude, one threshold": magnitude,
        "magnitude, the same fraction of each layer": magnitude_evenly,
        "layerwise, the same fraction of each layer": layerwise(Allocation.EVENLY),
        "layerwise, cheapest anywhere": layerwise(Allocation.TOGETHER),
    }


def run(network: str, zeros: float, directory: str | None) -> None:
    """Runs what is not recorded yet for a network and a fraction of zeros."""
    if directory is None:
        refuse("set ELLZERO_DATA or pass --data: the folder that holds cifar10/ and networks/")
    import safetensors.torch
    import torch
    from torch.nn import functional

    from ellzero.data import Part, load_cifar10, standardised
    from ellzero.models import ResNet
    from ellzero.params import select_parameters

    torch.set_num_threads(1)
    depth, file = NETWORKS[network]
    dense = ResNet(depth).eval()
    dense.load_state_dict(safetensors.torch.load_file(Path(directory) / "networks" / f"{file}.safetensors"))
    calibration = list(standardised(load_cifar10(directory, batches=(1,)).inputs[:CALIBRATION_IMAGES]).split(250))
    images = load_cifar10(directory, Part.TEST)
    test, labels = images.inputs[:1000], images.labels[:1000]

    @torch.no_grad()
    def log_probabilities(model: torch.nn.Module) -> torch.Tensor:
        return torch.cat([functional.log_softmax(model(standardised(part)), 1) for part in test.split(250)])

    reference = log_probabilities(dense)
    done = {(line["network"], line["zeros_asked"], line["variant"]) for line in records(RESULTS)}
    for variant, prune_ in variants(zeros, calibration).items():
        if (network, zeros, variant) in done:
            continue
        model = copy.deepcopy(dense)
        started = time.process_time()
        prune_(model)
        seconds = time.process_time() - started
        pruned = log_probabilities(model)
        params = select_parameters(model)
        line = {
            "network": network,
            "zeros_asked": zeros,
            "variant": variant,
            "weights": sum(tensor.numel() for tensor in params.values()),
            "zeros": sum(int((tensor == 0).sum()) for tensor in params.values()),
            "kl_nats": float((reference.exp() * (reference - pruned)).sum(1).mean()),
            "test_error_percent": 100 * float((pruned.argmax(1) != labels).float().mean()),
            "dense_test_error_percent": 100 * float((reference.argmax(1) != labels).float().mean()),
            "cpu_seconds": round(seconds, 1),
            "calibration_images": CALIBRATION_IMAGES,
            "versions": versions(),
        }
        append_line(RESULTS, line)
        print(f"{network} {zeros}: {variant}: KL {line['kl_nats']:.4f}, error {line['test_error_percent']:.1f} %", flush=True)


def table() -> None:
    """Prints a Markdown table."""
    print("| network | zeros | variant | KL, nats | error, % | dense | CPU s |\n| --- | --- | --- | --- | --- | --- | --- |")
    for line in sorted(records(RESULTS), key=lambda record: (record["network"], record["zeros_asked"])):
        errors = f"{line['test_error_percent']:.1f} | {line['dense_test_error_percent']:.1f}"
        zeros = f"{100 * line['zeros'] / line['weights']:.1f} %"
        print(f"| {line['network']} | {zeros} | {line['variant']} | {line['kl_nats']:.4f} | {errors} | {line['cpu_seconds']:.0f} |")


def main() -> None:
    """Parses the command line."""
    line = CommandLine(__doc__, table=table)
    runs = line.add("run", lambda given: run(given.network, given.zeros, given.data))
    runs.add_argument("--network", choices=NETWORKS, default="resnet20")
    runs.add_argument("--zeros", type=float, default=0.5)
    runs.add_argument("--data", default=os.environ.get("ELLZERO_DATA"), help="the folder that holds cifar10/ and networks/")
    line.run()


if __name__ == "__main__":
    main()
