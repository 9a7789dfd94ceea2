"""The results of a finished run: figures on the test data, a record, pictures, and the table on the terminal."""

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from ellzero.archive.load import load_model
from ellzero.cli.options.sparsify import Sparsify
from ellzero.description import TensorCount, entropy_bits, nats_to_bits
from ellzero.distributed import canonical_names
from ellzero.files.errors import printable
from ellzero.params import aliases, count_nonzeros
from ellzero.plots import draw_network, plot_curves
from ellzero.records import Record, versions, write_json
from ellzero.training import Batches, SparsifyResult, classification_error, error_rate, mean_loss
from ellzero.training.batches import plain_batches
from ellzero.training.file_size import MAX_PACKING_POINTS, PackingCost
from ellzero.training.presets import Preset
from ellzero.training.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished run.

    Attributes:
        record: its figures, as written to record.json.
        sparse: the network and how it came about.
        pictures: the pictures drawn, by file.
    """

    record: Record
    sparse: SparsifyResult
    pictures: tuple[Path, ...]


def measure(
    options: Sparsify, preset: Preset, problem: Problem, sparse: SparsifyResult, dense: nn.Module, cost: PackingCost | None
) -> Outcome:
    """Measures a finished network on the test data, draws it, and writes the record.

    Args:
        options: of the command.
        preset: the settings of the run.
        problem: the data.
        sparse: the network.
        dense: a network of its architecture, which is overwritten.
        cost: what the quantised file loses on validation data.
    """
    folder = options.output
    test = list(problem.test())
    dense.load_state_dict(sparse.dense)
    wrong, dense_wrong = wrong_images(sparse.model, problem, test), wrong_images(dense, problem, test)
    tensors = {name: tensor.detach().numpy() for name, tensor in stored_tensors(sparse.model).items()}
    counts = [TensorCount(shape=tensor.shape, nonzeros=int(np.count_nonzero(tensor))) for tensor in tensors.values()]
    rough = load_model(copy.deepcopy(sparse.model), folder / "quantised.l0")
    record = Record(
        recipe=options.recipe.value,
        seed=options.seed,
        versions=versions(),
        parameters=sparse.parameters,
        nonzeros=sparse.nonzeros,
        stored_scalars=sum(count.nonzeros for count in counts),
        compression_rate=sparse.compression_rate,
        test_error_percent=error_percent(sparse.model, problem, test),
        dense_test_error_percent=error_percent(dense, problem, test),
        file_bytes=(folder / "network.l0").stat().st_size,
        model_bits=entropy_bits(counts),
        data_bits=nats_to_bits(mean_loss(sparse.model, problem.loss_fn, plain_batches(problem.train)) * problem.samples),
        seconds=round(sparse.seconds, 2),
        details={
            "options": dict(options.settings()),
            "settings": preset.settings(),
            "data": problem.name,
            # Kernels of other instructions round otherwise: records of one seed can be compared bit for bit where this is the same.
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "quantised_bytes": (folder / "quantised.l0").stat().st_size,
            "quantised_test_error_percent": error_percent(rough, problem, test),
            "quantised_valid_error_percent": None if cost is None else 100 * cost.packed_error,
            "safetensors_bytes": (folder / "network.safetensors").stat().st_size,
            "nonzero_weights": count_nonzeros(p for _, p in sparse.model.named_parameters() if p.ndim >= 2),
            "valid_error_percent": last_valid_error(sparse),
            "tries": [asdict(attempt) for attempt in sparse.tries],
            "reached": sparse.reached,
            "bracket_closed": sparse.bracket_closed,
            "wrong_images": None if wrong is None else torch.nonzero(wrong).flatten().tolist(),
            "dense_wrong_images": None if dense_wrong is None else torch.nonzero(dense_wrong).flatten().tolist(),
        },
    )
    pictures = draw(sparse, folder)
    write_json(folder / "record.json", record)
    return Outcome(record=record, sparse=sparse, pictures=pictures)


@torch.no_grad()
def wrong_images(model: nn.Module, problem: Problem, test: Batches) -> Tensor | None:
    """Lists which test samples are classified wrongly, in order; None where the problem is no plain classification."""
    if problem.error_fn is not classification_error:
        return None
    model.eval()
    return torch.cat([model(inputs).argmax(-1) != labels for inputs, labels in test])


def error_percent(model: nn.Module, problem: Problem, test: Batches) -> float | None:
    """Computes the test error in per cent; None where the problem has no error."""
    return None if problem.error_fn is None else 100.0 * error_rate(model, problem.error_fn, test)


def last_valid_error(sparse: SparsifyResult) -> float | None:
    """Looks up the last validation error, in per cent."""
    error = sparse.history[-1].valid_error if sparse.history else None
    return None if error is None else 100.0 * error


def stored_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Lists the tensors that a file must hold, tied ones once."""
    others = set(aliases(model))
    names = canonical_names(model)
    return {names[name]: tensor for name, tensor in model.state_dict().items() if names[name] not in others}


def to_safetensors(model: nn.Module) -> bytes:
    """Serialises a network in the safetensors format, tied tensors once; the metadata say which name stands for which."""
    tensors = {name: tensor.detach().contiguous() for name, tensor in stored_tensors(model).items()}
    return safetensors.torch.save(tensors, metadata={"format": "pt", **aliases(model)})


def draw(sparse: SparsifyResult, folder: Path) -> tuple[Path, ...]:
    """Draws loss and sparsity over the epochs and, for chains of linear layers, the network before and after random gradient pruning."""
    pictures = list(plot_curves([asdict(entry) for entry in sparse.history], folder / "curves"))
    before, after = layers_of(sparse.before_rgp, sparse.model), layers_of(sparse.after_rgp, sparse.model)
    if before:
        pictures += draw_network(before, after, folder / "network")
    return tuple(pictures)


def layers_of(state: Mapping[str, Tensor], model: nn.Module) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Lists weight and bias of each layer where the network is a chain of linear layers; an empty list where it is not."""
    layers: list[tuple[np.ndarray, np.ndarray | None]] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            weight, bias = state.get(f"{name}.weight"), state.get(f"{name}.bias")
            if weight is None:
                return []
            layers.append((weight.numpy(), None if bias is None else bias.numpy()))
        elif not list(module.children()) and list(module.parameters(recurse=False)):
            return []
    chained = all(upper[0].shape[1] == lower[0].shape[0] for lower, upper in pairwise(layers))
    return layers if chained else []


def show(outcome: Outcome, folder: Path) -> None:
    """Prints the figures of a run, and where its files are."""
    record = outcome.record
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    if record.test_error_percent is not None:
        table.add_row("test error", f"{record.test_error_percent:.2f} %")
        table.add_row("test error of the dense network", f"{record.dense_test_error_percent:.2f} %")
    table.add_row("non-zeros", f"{record.nonzeros:,} of {record.parameters:,}")
    table.add_row("compression rate", f"{record.compression_rate:.1f}")
    details = record.details
    table.add_row("network.safetensors, where zeros are stored too", f"{details['safetensors_bytes']:,} bytes")
    table.add_row("network.l0, lossless", f"{record.file_bytes:,} bytes")
    rough = details["quantised_test_error_percent"]
    table.add_row("quantised.l0, weights on a logarithmic grid", f"{details['quantised_bytes']:,} bytes")
    if rough is not None and record.test_error_percent is not None:
        worse = rough > record.test_error_percent + MAX_PACKING_POINTS
        table.add_row("its test error" + (", far above the network's" if worse else ""), f"{rough:.2f} %")
    if details["tries"]:
        table.add_row(
            "values of alpha tried", f"{len(details['tries'])}, bracket {'closed' if details['bracket_closed'] else 'still open'}"
        )
    table.add_row("time", f"{record.seconds:.0f} s")
    console = Console()
    console.print(table)
    console.print(
        f"network, log, record and pictures: {printable(str(folder))}", highlight=False, markup=False, emoji=False, soft_wrap=True
    )
    for picture in outcome.pictures:
        console.print(f"  {printable(str(picture))}", highlight=False, markup=False, emoji=False, soft_wrap=True)
