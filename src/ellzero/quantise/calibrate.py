"""Quantisation of a trained network by what unlabelled inputs show about its layers: no labels, no training."""

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ellzero.params import duplicate
from ellzero.quantise.feedback import GramFactor
from ellzero.quantise.fold_batchnorm import fold_batchnorm_, normalisations
from ellzero.quantise.grids import Levels, Quantiser, UniformGrid
from ellzero.quantise.moments import Moments
from ellzero.quantise.observed import ObservedLayer, observe_layers
from ellzero.quantise.sensitivity import divergence, first_tensor, sensitivities
from ellzero.quantise.steps import Steps, choose_steps, correct_bias_, input_factor, quantise_weight_
from ellzero.surgery.calls import Forward, call_model, evaluating, inputs_of, list_batches
from ellzero.surgery.layer_matrices import layer_matrices

_BITS_PER_KILOBYTE = 8192


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

    Args:
        inputs: a batch, or a sequence of batches (tensors, tuples of positional arguments, mappings), like those that the network will see.
        nats_per_kilobyte: the exchange rate: how much larger the mean divergence of answers may get for a file 1,024 bytes smaller. It
            is an estimate on inputs that the network may know too well; on new ones the divergence is often several times that.
        fold_batchnorm: folds batch normalisation into the layers before it, for inference: it comes back as weight 1, mean 0 and
            variance 1 - eps.
        damping: fraction of each input's variance that counts as noise; a larger one trusts the inputs less.
        rounding_price: share of the exchange rate by which single weights are rounded toward zero; 0 rounds to the nearest.
        measure: whether each layer's step is corrected by the divergence that its rounding causes, for one run of the network per layer.
        rounds: answers drawn per sample.
        temperature: divides logits before divergences are taken, because networks are too sure of what they were trained on.
        others: quantises the tensors of all other modules, and biases and normalisation that are not folded.
        forward: how to call the model on a batch.
        seed: draws answers.

    Raises:
        ValueError: options out of range, or no inputs.
    """

    inputs: Tensor | Mapping[str, Any] | Sequence[Any] = field(repr=False)
    nats_per_kilobyte: float = 1.6e-4
    fold_batchnorm: bool = True
    damping: float = 0.01
    rounding_price: float = 0.3
    measure: bool = True
    rounds: int = 2
    temperature: float = 3.0
    others: Quantiser = field(default_factory=UniformGrid)
    forward: Forward = call_model
    seed: int = 0

    def __post_init__(self) -> None:
        positive = ("nats_per_kilobyte", "damping", "temperature", "rounds")
        if not all(getattr(self, name) > 0 for name in positive) or not self.rounding_price >= 0:
            values = ", ".join(f"{name}={getattr(self, name)}" for name in (*positive, "rounding_price"))
            raise ValueError(f"{values}: expected positive numbers, a rounding_price of 0 or more")
        if not len(self.inputs):
            raise ValueError("inputs holds no batch: pass a hundred or so samples")

    def apply(self, model: nn.Module) -> CalibratedModel:
        """Quantises a copy of a model.

        Args:
            model: any module; it is not changed.

        Returns:
            The quantised copy, and the quantiser that holds its levels.

        Raises:
            ValueError: the model cannot be copied, or returns no tensor.
            TypeError: `model` is not a module.
        """
        quantised = duplicate(model)
        batches = list_batches(self.inputs)
        with evaluating(quantised):
            norms = normalisations(quantised, batches[0], self.forward)
            if self.fold_batchnorm:
                fold_batchnorm_([(quantised.get_submodule(layer), quantised.get_submodule(norm)) for layer, norm in norms.items()])
            layers = observe_layers(quantised, batches, norms, folded=self.fold_batchnorm, forward=self.forward)
            steps = self._steps(quantised, layers, batches)
            levels: dict[str, Levels] = {}
            for layer in layers:
                inputs = inputs_of(quantised, layer.layer, batches, forward=self.forward)
                factor = input_factor(layer, Moments.of(layer.layer, inputs), self.damping)
                levels.update(quantise_weight_(layer, factor, steps[layer.name], self.rounding_price * self._nats_per_bit))
                levels.update(correct_bias_(layer, inputs, steps[layer.name]))
        return CalibratedModel(quantised, LevelsByName(levels=levels, others=self.others))

    @property
    def _nats_per_bit(self) -> float:
        return self.nats_per_kilobyte / _BITS_PER_KILOBYTE

    def _steps(self, model: nn.Module, layers: Sequence[ObservedLayer], batches: Sequence[Any]) -> dict[str, Steps]:
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
            temperature=self.temperature,
        )
        factors = {layer.name: input_factor(layer, moments[layer.name], self.damping) for layer in layers}
        steps = {layer.name: choose_steps(sensitivity[layer.name], factors[layer.name], self._nats_per_bit) for layer in layers}
        if not self.measure or not layers:
            return steps
        # The logarithm of the divergence per weight that the rounding of one layer causes; steps are scaled so that its mean over all
        # weights stays as it was.
        answers = [first_tensor(self.forward(model, batch)) for batch in batches]
        log_nats: dict[str, float] = {}
        for layer in layers:
            with _rounded(layer, factors[layer.name], moments[layer.name], steps[layer.name]):
                rounded = [first_tensor(self.forward(model, batch)) for batch in batches]
            nats = sum(float(divergence(answer, reference, self.temperature)) for answer, reference in zip(rounded, answers, strict=True))
            log_nats[layer.name] = math.log(max(nats, 1e-30) / layer.layer.weight.numel())
        sizes = {layer.name: layer.layer.weight.numel() for layer in layers}
        mean = sum(sizes[name] * log_nats[name] for name in sizes) / sum(sizes.values())
        return {name: chosen.scaled(math.exp((mean - log_nats[name]) / 2)) for name, chosen in steps.items()}


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
