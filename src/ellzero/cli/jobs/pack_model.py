"""What `ellzero pack` does where it needs the network itself, and torch: calibration, and folding of batch normalisation."""

import json
import re
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ellzero.archive.entries import SaveReport, write_entries
from ellzero.archive.save import write_model
from ellzero.archive.sources import tensors_of
from ellzero.archive.torch_checkpoints import Say, say_nothing
from ellzero.archive.torch_tensors import from_torch, to_torch
from ellzero.cli.jobs.by_name import dataset_for, imported, network, resident, wants_channels
from ellzero.cli.jobs.grids import chosen_grid, notes
from ellzero.cli.options.arguments import UsageError
from ellzero.cli.options.pack import Pack
from ellzero.codec.container import Sink
from ellzero.codec.network.tensors import Entry, QuantisedTensor, Tied
from ellzero.data import Dataset, load_images
from ellzero.params import kept_exact, without_own_memory
from ellzero.quantise.answers import Answers
from ellzero.quantise.calibrate import Calibrated
from ellzero.quantise.fold_batchnorm import fold_batchnorm_, normalisations
from ellzero.quantise.grids import UniformGrid
from ellzero.quantise.synthesise import synthetic_inputs
from ellzero.surgery.calls import call_model, evaluating
from ellzero.training.batches import plain_batches
from ellzero.training.problem import Problem

SAMPLES, MADE_UP, HELD_OUT = 128, 64, 16
# Synthetic inputs are trusted less. Chosen on training images.
DAMPING, MADE_UP_DAMPING = 0.01, 0.05


def pack_model(options: Pack, file: Sink, *, calibrate: bool) -> SaveReport:
    """Packs a network whose architecture is known.

    Args:
        options: the options of the command.
        file: the file to write to.
        calibrate: whether weights are quantised by inputs; otherwise by `options.quantise`, once batch normalisation is folded.

    Raises:
        ValueError: no architecture, or one that does not fit the network, the data or the shape of an input.
        OSError: a file is missing.
    """
    name = options.model if options.model is not None else architecture_of_run(options.network)
    model = load_tensors(network(name, 0), options.network, name, notes(options))
    if calibrate:
        damping = DAMPING if options.data is not None else MADE_UP_DAMPING
        if options.data is not None:
            inputs, held_out = calibration_inputs(options.data, name, model, options.samples or SAMPLES)
        else:
            shape = shape_of(options.input or "")
            inputs = [synthetic_inputs(model, shape, count=options.samples or MADE_UP)]
            held_out = [synthetic_inputs(model, shape, count=HELD_OUT, seed=1)]
        # What no layer here has is moved by weight error.
        quantise = Calibrated(
            inputs=inputs,
            nats_per_kilobyte=options.nats_per_kilobyte,
            fold_batchnorm=options.fold_batchnorm,
            damping=damping,
            answers=_answers(options, name),
            held_out=held_out,
            others=UniformGrid(error=options.error, vectors=options.error / 10),
        )
        with _one_line(name), _said(notes(options)):
            return write_model(file, *quantise.apply(model))
    sample = torch.zeros(2, *shape_of(options.input or ""))
    with _one_line(name), evaluating(model):
        pairs = normalisations(model, sample, call_model)
    fold_batchnorm_([(model.get_submodule(layer), model.get_submodule(norm)) for layer, norm in pairs.items()])
    tensors = (from_torch(name, parameter) for name, parameter in model.named_parameters())
    return write_model(file, model, chosen_grid(options, tensors))


def pack_as(options: Pack, file: Sink, name: str) -> SaveReport:
    """Packs a network as it stands in its file, checked against its architecture, whose buffers no grid holds.

    Args:
        options: the options of the command.
        file: the file to write to.
        name: the architecture's name.

    Raises:
        ValueError: the architecture is another one, or the network is damaged.
        OSError: a file is missing.
    """
    model = network(name, 0)
    kept = kept_exact(model)

    def entries(say: Say = say_nothing) -> Iterator[Entry]:
        return checked(tensors_of(options.network, say), model, options.network, name)

    grid = chosen_grid(options, (entry for entry in entries() if entry.name not in kept))
    return write_entries(file, entries(notes(options)), grid, kept)


def architecture_of_run(path: Path) -> str:
    """Reads the name of the network that a run of `ellzero sparsify` trained.

    Args:
        path: the folder of the run.

    Raises:
        ValueError: its options are damaged.
    """
    options = path / "options.json"
    try:
        return str(json.loads(options.read_text(encoding="utf-8"))["model"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{options} is damaged: say the network's architecture, --model NAME or module:factory") from error


def checked(entries: Iterable[Entry], model: nn.Module, path: Path, name: str) -> Iterator[Entry]:
    """Checks tensors against a model and yields them.

    Args:
        entries: the tensors.
        model: the architecture that they should be of.
        path: where they come from, for messages.
        name: the architecture's name, for messages.

    Raises:
        ValueError: names or shapes differ.
    """
    state = model.state_dict()
    shapes: dict[str, tuple[int, ...]] = {}
    for entry in entries:
        if entry.name not in state:
            raise ValueError(f"{path} has a tensor {entry.name!r}, which {name} lacks: say the architecture that it is of, --model")
        stored_shape, shape = shapes[entry.of] if isinstance(entry, Tied) else entry.shape, tuple(state[entry.name].shape)
        if stored_shape != shape:
            raise ValueError(f"{entry.name!r} has the shape {stored_shape} in {path} and {shape} in {name}")
        shapes[entry.name] = stored_shape
        yield entry
    # Modules themselves know which of their tensors older files may lack.
    missing = model.load_state_dict({entry: state[entry] for entry in shapes}, strict=False).missing_keys
    shared = without_own_memory(missing, shapes, state)
    missing = [entry for entry in missing if entry not in shared]
    if missing:
        raise ValueError(f"{path} lacks {missing[0]!r}, which {name} has: say the architecture that it is of, --model")


def load_tensors(model: nn.Module, path: Path, name: str, say: Say = say_nothing) -> nn.Module:
    """Loads a network of any kind into a model, which is left in eval mode.

    Args:
        model: its architecture.
        path: the network, as `tensors_of` takes it.
        name: the architecture's name, for messages.
        say: is told what is left out.

    Raises:
        ValueError: names or shapes differ, or the network is damaged.
        OSError: a file is missing.
    """
    loaded: dict[str, Tensor] = {}
    for entry in checked(tensors_of(path, say), model, path, name):
        assert not isinstance(entry, QuantisedTensor)
        loaded[entry.name] = loaded[entry.of] if isinstance(entry, Tied) else to_torch(entry)
    model.load_state_dict(loaded, strict=False)
    return model.eval()


def calibration_inputs(data: str, name: str, model: nn.Module, samples: int) -> tuple[list[Any], list[Any] | None]:
    """Finds inputs to calibrate by, and others to compare on.

    Args:
        data: a data set's folder or name, or `module:function` that returns a batch, batches, or a `Problem`.
        name: the network's name, which decides what data set a folder holds; see `dataset_for`.
        model: the network.
        samples: the number of inputs that are taken from the beginning of a data set or a `Problem`; as many after them are held out.

    Returns:
        Batches for both; None for the latter where they are to come from the former, as `Calibrated` does it.

    Raises:
        ValueError: the function returns something else, or no batch.
        FileNotFoundError: the files of the data set are missing.
    """
    if ":" in data and not Path(data).exists():
        loaded = imported(data)()
        if isinstance(loaded, Problem):
            return _inputs_of(plain_batches(loaded.train), samples)
        if isinstance(loaded, Tensor | Mapping):
            return [loaded], None
        if not isinstance(loaded, Iterable):
            raise ValueError(f"{data} returned {type(loaded).__name__}, expected a batch, batches, or ellzero.Problem")
        batches = list(cast("Iterable[Any]", loaded))
        if not batches:
            raise ValueError(f"{data} returned no batch: a hundred or so inputs are wanted")
        return batches, None
    dataset, directory = dataset_for(name, None if data == Dataset.DIGITS.value else data)
    images = load_images(dataset, directory)
    images = images.take(torch.arange(min(2 * samples, len(images))))
    if wants_channels(model) and images.inputs.ndim == 3:
        images = replace(images, inputs=images.inputs[:, None])
    return _inputs_of(resident(images), samples)


def _inputs_of(batches: Iterable[Any], samples: int) -> tuple[list[Any], list[Any] | None]:
    """Takes the first inputs of batches of inputs and targets, and holds out as many of those that follow."""
    parts: tuple[list[Any], list[Any]] = [], []
    taken = 0
    for inputs, _ in batches:
        for part, end in zip(parts, (samples, 2 * samples), strict=True):
            piece = inputs[max(end - samples - taken, 0) : max(end - taken, 0)]
            if len(piece):
                part.append(piece)
        taken += len(inputs)
        if taken >= 2 * samples:
            break
    return parts[0], parts[1] or None


def shape_of(text: str) -> tuple[int, ...]:
    """Reads a shape such as 3x32x32.

    Raises:
        UsageError: the text is no shape.
    """
    if not re.fullmatch(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8})*", text):
        raise UsageError(f"--input {text}: expected the shape of one input without the batch, such as 3x32x32 or 784")
    return tuple(int(number) for number in text.split("x"))


def _answers(options: Pack, name: str) -> Answers | None:
    """Says what the network's answers are: as it is told, and logits for the classifiers that have a name here."""
    if options.answers is not None:
        return Answers(options.answers.value)
    return None if ":" in name else Answers.LOGITS


@contextmanager
def _said(say: Say) -> Generator[None]:
    """Says warnings as lines of a command's own."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        say(f"ellzero: warning: {warning.message}")


@contextmanager
def _one_line(name: str) -> Generator[None]:
    """Turns an error of a network that is run on inputs which it does not take into a `ValueError` of one line."""
    try:
        yield
    except (RuntimeError, IndexError, KeyError, AttributeError) as error:
        first = str(error).partition("\n")[0]
        raise ValueError(f"{name} does not run on these inputs: {type(error).__name__}: {first}") from error
