"""Quantisation of a trained network by what unlabelled inputs show about its layers: no labels, no training."""

import math
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ellzero.params import duplicate
from ellzero.quantise.answers import Answers, Reading, compare_answers, first_tensor, read_answers
from ellzero.quantise.as_stored import as_stored
from ellzero.quantise.feedback import GramFactor
from ellzero.quantise.fold_batchnorm import fold_batchnorm_, normalisations
from ellzero.quantise.grids import Levels, Quantiser, UniformGrid
from ellzero.quantise.moments import Moments
from ellzero.quantise.observed import ObservedLayer, observe_layers
from ellzero.quantise.sensitivity import sensitivities
from ellzero.quantise.steps import Steps, choose_steps, correct_bias_, input_factor, quantise_weight_
from ellzero.surgery.batch_statistics import MAX_SHIFT, BatchStatistics
from ellzero.surgery.calls import Forward, call_model, evaluating, inputs_of, list_batches
from ellzero.surgery.layer_matrices import layer_matrices

_BITS_PER_KILOBYTE = 8192
_HELD_OUT = 8
"""One sample of so many is held out."""


class CalibratedModel(NamedTuple):
    """A quantised network.

    Attributes:
        model: a copy of the model with the weights that the file will hold.
        quantiser: their levels, for `save_model(model, path, quantise=quantiser)`.
    """

    model: nn.Module
    quantiser: Quantiser


@dataclass(frozen=True, kw_only=True)
class LevelsByName:
    """Tensors whose levels are known already, and a quantiser for all others, except those that are one number throughout."""

    levels: Mapping[str, Levels]
    others: Quantiser

    def quantise(self, name: str, values: NDArray[np.float64]) -> Levels | None:
        """Returns the levels of a tensor where they are known, and asks the other quantiser otherwise."""
        if name in self.levels:
            return self.levels[name]
        return None if values.size == 0 or values.min() == values.max() else self.others.quantise(name, values)


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """Quantises by unlabelled inputs, a hundred or so: pass it to `save_model(quantise=...)`.

    Every linear layer and convolution gets a uniform grid. Its step s follows from one exchange rate for the whole network: with the
    rounding error s^2 / 12 per weight and the divergence's second derivative F, one bit less costs F s^2 ln 2 / 12 nats per weight, which
    is made the same in all layers. F is estimated by sampled answers (Fisher), then corrected by the divergence that the rounding of each
    layer alone is measured to cause. Layers are rounded in the order of their calls, on the inputs that the layers quantised before them
    really give, the error of each weight made up for by the weights after it; then the bias brings the layer's mean output back to the
    original's. Weights of zero stay zero, and so do biases in layers that have such weights: what was pruned stays pruned. Everything
    else, such as recurrent layers and embeddings, goes to `others`.

    What answers are (`Answers`) follows from them where that is clear: probabilities and unit vectors are known, and logits mark a class
    clearly, another one for other inputs. Where it is not clear, it has to be said. At the end the quantised network is compared with the
    original on inputs that nothing was fitted to: where their answers differ by more than `max_difference`, a warning says so.

    Args:
        inputs: a batch, or a sequence of batches (tensors, tuples of positional arguments, mappings), like those that the network will see.
        nats_per_kilobyte: the exchange rate: how much larger the mean divergence of answers may get for a file 1,024 bytes smaller. It
            is an estimate on inputs that the network may know too well; on new ones the divergence is often several times that. It does
            not scale with the network: the more weights, the more the same rate changes, and a network of many millions needs a lower one.
        fold_batchnorm: folds batch normalisation into the layers before it, for inference: it comes back as weight 1, mean 0 and
            variance 1 - eps.
        damping: fraction of each input's variance that counts as noise; a larger one trusts the inputs less.
        rounding_price: share of the exchange rate by which single weights are rounded toward zero; 0 rounds to the nearest.
        measure: whether each layer's step is corrected by the divergence that its rounding causes, for one run of the network per layer.
        rounds: answers drawn per sample.
        temperature: divides logits before divergences are taken, because networks are too sure of what they were trained on.
        answers: what the network's answers are; None for what they show.
        held_out: inputs like `inputs`, for the comparison alone. None takes them from `inputs`: the last batch of four or more, or every
            eighth sample of at least 16 in a tensor or a mapping of tensors; of anything else nothing is held out, and the comparison sees
            too little. The same as `inputs` calibrates on all of them.
        max_difference: the divergence of the quantised network's answers over that of answers to different inputs, above which there is a
            warning; 1 means that nothing is left of them.
        max_shift: how far the inputs may be from what batch normalisation remembers of those in training before there is a warning: the
            squared distances of means and standard deviations in units of the latter. Inputs in another scale take more bytes.
        others: quantises the tensors of all other modules, and biases and normalisation that are not folded.
        forward: how to call the model on a batch.
        seed: draws answers.

    Raises:
        ValueError: options out of range, or no inputs.

    Warns:
        UserWarning: the inputs are not scaled as in training (`max_shift`), or the answers have changed by more than `max_difference`;
            the message says by how much, and what rate to try.
    """

    inputs: Tensor | Mapping[str, Any] | Sequence[Any] = field(repr=False)
    nats_per_kilobyte: float = 1.6e-4
    fold_batchnorm: bool = True
    damping: float = 0.01
    rounding_price: float = 0.3
    measure: bool = True
    rounds: int = 2
    temperature: float = 3.0
    answers: Answers | None = None
    held_out: Tensor | Mapping[str, Any] | Sequence[Any] | None = field(default=None, repr=False)
    max_difference: float = 0.05
    max_shift: float = MAX_SHIFT
    others: Quantiser = field(default_factory=UniformGrid)
    forward: Forward = call_model
    seed: int = 0

    def __post_init__(self) -> None:
        positive = ("nats_per_kilobyte", "damping", "temperature", "rounds", "max_difference", "max_shift")
        if not all(getattr(self, name) > 0 for name in positive) or not self.rounding_price >= 0:
            values = ", ".join(f"{name}={getattr(self, name)}" for name in (*positive, "rounding_price"))
            raise ValueError(f"{values}: expected positive numbers, a rounding_price of 0 or more")
        if not len(self.inputs):
            raise ValueError("inputs holds no batch: pass a hundred or so samples")
        if self.held_out is not None and not len(self.held_out):
            raise ValueError("held_out holds no batch: pass a hundred or so samples, or None")

    def apply(self, model: nn.Module) -> CalibratedModel:
        """Quantises a copy of a model.

        Args:
            model: any module; it is not changed.

        Returns:
            The quantised copy, and the quantiser that holds its levels.

        Raises:
            ValueError: the model cannot be copied, returns no tensor, or its answers cannot be read; see `Answers`.
            TypeError: `model` is not a module.
        """
        quantised = duplicate(model)
        batches, held_out = self._batches()
        with evaluating(quantised):
            # Of the original, before anything changes.
            with BatchStatistics(quantised) as statistics:
                answers = self._run(quantised, batches)
            statistics.warn_if_far(self.max_shift, stacklevel=2)
            reading = read_answers(answers, self.answers, self.temperature)
            wanted = self._run(quantised, held_out)
            norms = normalisations(quantised, batches[0], self.forward)
            if self.fold_batchnorm:
                fold_batchnorm_([(quantised.get_submodule(layer), quantised.get_submodule(norm)) for layer, norm in norms.items()])
            layers = observe_layers(quantised, batches, norms, folded=self.fold_batchnorm, forward=self.forward)
            steps = self._steps(quantised, layers, batches, reading)
            levels: dict[str, Levels] = {}
            for layer in layers:
                inputs = inputs_of(quantised, layer.layer, batches, forward=self.forward)
                factor = input_factor(layer, Moments.of(layer.layer, inputs), self.damping)
                levels.update(quantise_weight_(layer, factor, steps[layer.name], self.rounding_price * self._nats_per_bit))
                levels.update(correct_bias_(layer, inputs, steps[layer.name]))
            quantiser = LevelsByName(levels=levels, others=self.others)
            self._compare(as_stored(quantised, quantiser), held_out, wanted, reading)
        return CalibratedModel(quantised, quantiser)

    def _batches(self) -> tuple[list[Any], list[Any]]:
        """Returns the batches to calibrate by, and those to compare on."""
        batches = list_batches(self.inputs)
        return _split(batches) if self.held_out is None else (batches, list_batches(self.held_out))

    def _run(self, model: nn.Module, batches: Sequence[Any]) -> list[Tensor]:
        return [first_tensor(self.forward(model, batch)) for batch in batches]

    def _compare(self, quantised: nn.Module, batches: Sequence[Any], wanted: Sequence[Tensor], reading: Reading) -> None:
        """Warns where the answers of a quantised network are too far from those wanted."""
        found = self._run(quantised, batches)
        difference, words = compare_answers(found, wanted, reading)
        if difference <= self.max_difference:  # and not where it is no number
            return
        rate = self.nats_per_kilobyte * self.max_difference / difference / 2
        warnings.warn(
            f"the quantised network answers differently, by {100 * difference:.3g} % of what answers to different inputs differ by "
            f"({words}), more than max_difference, {100 * self.max_difference:.3g} %, read as {reading.kind.value}; lower "
            f"nats_per_kilobyte from {self.nats_per_kilobyte:.2g} to about {rate:.1g}, or have `others` round less",
            stacklevel=3,
        )

    @property
    def _nats_per_bit(self) -> float:
        return self.nats_per_kilobyte / _BITS_PER_KILOBYTE

    def _steps(self, model: nn.Module, layers: Sequence[ObservedLayer], batches: Sequence[Any], reading: Reading) -> dict[str, Steps]:
        """Chooses the steps of every layer."""
        moments = {layer.name: Moments.of(layer.layer, inputs_of(model, layer.layer, batches, forward=self.forward)) for layer in layers}
        sensitivity = sensitivities(
            model,
            batches,
            {layer.name: layer.layer for layer in layers},
            moments,
            forward=self.forward,
            generator=torch.Generator().manual_seed(self.seed),
            rounds=self.rounds,
            reading=reading,
        )
        factors = {layer.name: input_factor(layer, moments[layer.name], self.damping) for layer in layers}
        steps = {layer.name: choose_steps(sensitivity[layer.name], factors[layer.name], self._nats_per_bit) for layer in layers}
        if not self.measure or not layers:
            return steps
        # The logarithm of the divergence per weight that the rounding of one layer causes; steps are scaled so that its mean over all
        # weights stays as it was.
        answers = self._run(model, batches)
        log_nats: dict[str, float] = {}
        for layer in layers:
            with _rounded(layer, factors[layer.name], moments[layer.name], steps[layer.name]):
                rounded = self._run(model, batches)
            nats = sum(float(reading.divergence(answer, reference)) for answer, reference in zip(rounded, answers, strict=True))
            log_nats[layer.name] = math.log(max(nats, 1e-30) / layer.layer.weight.numel())
        sizes = {layer.name: layer.layer.weight.numel() for layer in layers}
        mean = sum(sizes[name] * log_nats[name] for name in sizes) / sum(sizes.values())
        return {name: chosen.scaled(math.exp((mean - log_nats[name]) / 2)) for name, chosen in steps.items()}


def _split(batches: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Splits batches into those to calibrate by and those to compare on; the same twice where they cannot be split."""
    if len(batches) >= 4:
        return list(batches[:-1]), [batches[-1]]
    sizes = [_samples(batch) for batch in batches]
    if 0 in sizes or sum(sizes) < 16:
        return list(batches), list(batches)
    chosen = [torch.arange(size) % _HELD_OUT == _HELD_OUT - 1 for size in sizes]
    kept = [_rows(batch, ~rows) for batch, rows in zip(batches, chosen, strict=True)]
    held_out = [_rows(batch, rows) for batch, rows in zip(batches, chosen, strict=True) if bool(rows.any())]
    return kept, held_out


def _samples(batch: Any) -> int:
    """Counts the samples of a batch; 0 where it does not show which dimension is theirs."""
    tensors: list[Any] = list(batch.values()) if isinstance(batch, Mapping) else [batch]
    sizes = {len(tensor) if isinstance(tensor, Tensor) and tensor.ndim else 0 for tensor in tensors}
    return sizes.pop() if len(sizes) == 1 else 0


def _rows(batch: Any, rows: Tensor) -> Any:
    return {name: _rows(tensor, rows) for name, tensor in batch.items()} if isinstance(batch, Mapping) else batch[rows.to(batch.device)]


@contextmanager
def _rounded(layer: ObservedLayer, inputs: GramFactor, moments: Moments, steps: Steps) -> Generator[None]:
    """Quantises one layer for the time of a `with` block; what makes up for the shift of its mean output is moved along."""
    weight, constant = layer.layer.weight, layer.constant
    old, old_constant = weight.clone(), None if constant is None else constant.tensor.clone()
    quantise_weight_(layer, inputs, steps, 0.0)
    if constant is not None:
        change = (old - weight).double().reshape(layer_matrices(layer.layer).shape)
        constant.tensor.copy_(constant.plus((change @ moments.mean[:, :, None]).flatten()))
    yield
    weight.copy_(old)
    if constant is not None and old_constant is not None:
        constant.tensor.copy_(old_constant)
