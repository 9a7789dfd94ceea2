"""How much a network's answer changes with each layer's weights: the Fisher information, estimated by sampled answers."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ellzero.quantise.moments import Moments, pieces
from ellzero.surgery.calls import Forward
from ellzero.surgery.layer_matrices import MatrixLayer, groups_of, layer_columns, output_columns


class Sensitivity(NamedTuple):
    """Expected second derivative of the divergence between a network's answers, in nats per sample.

    Attributes:
        weight: by a weight, over the variance of its input: the mean over a layer.
        bias: by a bias, the mean over a layer.
    """

    weight: float
    bias: float


def first_tensor(output: Any) -> Tensor:
    """Returns the first tensor of a network's output.

    Raises:
        ValueError: the output holds no tensor.
    """
    if isinstance(output, Tensor):
        return output
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, (tuple, list)) else ()
    for part in parts:
        if isinstance(part, Tensor):
            return part
    raise ValueError(f"the model answers {type(output).__name__} without a tensor: pass forward= that returns one")


def divergence(answer: Tensor, reference: Tensor, temperature: float) -> Tensor:
    """Sums over samples how far answers are from others, in nats; the measure whose second derivative `sampled_gradient` samples."""
    if answer.ndim == 2 and answer.shape[1] > 1:
        wanted = (reference / temperature).log_softmax(1)
        return (wanted.exp() * (wanted - (answer / temperature).log_softmax(1))).sum()
    scale = reference.std(correction=0).square() * max(reference[0].numel(), 1)
    return (answer - reference).square().sum() / scale.clamp_min(1e-24) / 2


def sampled_gradient(answer: Tensor, generator: torch.Generator, temperature: float) -> Tensor:
    """Draws a random gradient whose covariance is the second derivative of the divergence from the answer.

    Answers [samples, classes] are logits: a class is drawn from their softmax and its log-likelihood differentiated. All others are read
    as means of Gaussians: random signs over the standard deviation of the answer.

    Args:
        answer: of the network.
        generator: draws.
        temperature: divides logits, because networks are too sure of what they were trained on.
    """
    if answer.ndim == 2 and answer.shape[1] > 1:
        chances = (answer.detach() / temperature).softmax(1)
        drawn = torch.multinomial(chances.cpu(), 1, generator=generator).to(answer.device)
        return chances.scatter_add(1, drawn, -torch.ones_like(chances[:, :1])) / temperature
    signs = torch.randint(0, 2, answer.shape, generator=generator).to(answer) * 2 - 1
    return signs / (answer.detach().std(correction=0) * max(answer[0].numel(), 1) ** 0.5).clamp_min(1e-12)


def sensitivities(
    model: nn.Module,
    batches: Sequence[Any],
    layers: Mapping[str, MatrixLayer],
    moments: Mapping[str, Moments],
    *,
    forward: Forward,
    generator: torch.Generator,
    rounds: int,
    temperature: float,
) -> dict[str, Sensitivity]:
    """Estimates the sensitivity of every layer.

    Args:
        model: the model, in eval mode.
        batches: its inputs.
        layers: the layers, each called once per batch.
        moments: of their inputs.
        forward: how to call the model on a batch.
        generator: draws answers.
        rounds: answers drawn per sample.
        temperature: as in `sampled_gradient`.
    """
    weights, biases = dict.fromkeys(layers, 0.0), dict.fromkeys(layers, 0.0)
    samples = 0
    for batch in batches:
        with ExitStack() as stack, torch.enable_grad():
            calls: dict[str, tuple[Tensor, Tensor]] = {}
            for name, layer in layers.items():
                stack.callback(layer.register_forward_hook(partial(_record, calls, name)).remove)
            answer = first_tensor(forward(model, batch))
            samples += len(answer)
            for done in range(1, rounds + 1):
                probe = sampled_gradient(answer, generator, temperature)
                outputs = [output for _, output in calls.values()]
                gradients = torch.autograd.grad(answer, outputs, probe, retain_graph=done < rounds)
                for (name, (inputs, _)), gradient in zip(calls.items(), gradients, strict=True):
                    weight, bias = _squares(layers[name], inputs, gradient, moments[name])
                    weights[name] += weight / rounds
                    biases[name] += bias / rounds
    return {name: Sensitivity(weights[name] / samples, biases[name] / samples) for name in layers}


def _record(calls: dict[str, tuple[Tensor, Tensor]], name: str, _module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
    calls[name] = (arguments[0].detach(), output)
    return output.clone()  # what follows may work in place


def _squares(layer: MatrixLayer, inputs: Tensor, gradient: Tensor, moments: Moments) -> tuple[float, float]:
    """Sums over samples the mean squared derivative by a weight, over its input's variance, and by a bias."""
    slopes = output_columns(layer, gradient)
    slopes = slopes.unflatten(1, (groups_of(layer), -1))
    total, done = 0.0, 0
    mean = moments.mean.to(slopes.dtype)[None, :, :, None]
    for piece in pieces(layer, inputs):
        centred = layer_columns(layer, piece) - mean
        part = slopes[done : done + len(centred)] @ centred.mT
        total += float(part.double().square().mean((1, 2, 3)).sum())
        done += len(centred)
    variance = float(moments.covariance.diagonal(dim1=1, dim2=2).mean())
    return total / max(variance, 1e-30), float(slopes.sum(3).double().square().mean((1, 2)).sum())
