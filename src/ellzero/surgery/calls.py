"""How a network is called on a batch, and what its layers are called with."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Forward = Callable[[nn.Module, Any], Any]
"""(model, batch) -> outputs: how to call a model on a batch."""


class LayerReached(Exception):  # noqa: N818  # no error
    """Leaves the network early: the layer of interest has been reached, and what comes after it is not needed."""


def call_model(model: nn.Module, batch: Any) -> Any:
    """Calls a model on a batch: a mapping of keyword arguments, a tuple or list of positional ones, or one argument."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def list_batches(inputs: Tensor | Mapping[str, Any] | Iterable[Any]) -> list[Any]:
    """Lists the batches of inputs that may also be given as one batch, a tensor or a mapping of keyword arguments.

    Raises:
        ValueError: there is none.
    """
    batches: list[Any] = [inputs] if isinstance(inputs, Tensor | Mapping) else list(inputs)
    if not batches:
        raise ValueError("inputs holds no batch: a generator that was used up?")
    return batches


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Puts a model into eval mode without gradients, and each module's own mode back afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training


@torch.no_grad()
def watch_layers(
    model: nn.Module,
    batches: Sequence[Any],
    layers: Mapping[str, nn.Module],
    watch: Callable[[str, int, Tensor, Tensor], None],
    *,
    forward: Forward,
) -> dict[str, int]:
    """Runs a model and shows every call of some of its layers.

    Args:
        model: the model, in eval mode.
        batches: its inputs.
        layers: those in question, by name.
        watch: gets the layer's name, the number of the call from 0 on, its input and its output; may raise `LayerReached`, which ends the
            run of this batch.
        forward: how to call the model on a batch.

    Returns:
        How often each layer was called, in the order of the first calls; layers that were not called are missing.
    """
    calls: dict[str, int] = {}

    def after(name: str, _module: nn.Module, arguments: Any, output: Tensor) -> None:
        calls[name] = calls.get(name, 0) + 1
        watch(name, calls[name] - 1, arguments[0].detach(), output.detach())

    with ExitStack() as stack:
        for name, layer in layers.items():
            stack.callback(layer.register_forward_hook(partial(after, name)).remove)
        for batch in batches:
            with suppress(LayerReached):
                forward(model, batch)
    return calls


@torch.no_grad()
def inputs_of(model: nn.Module, layer: nn.Module, batches: Sequence[Any], *, forward: Forward) -> list[Tensor]:
    """Lists what a layer is called with first on each batch, running the model no further than it."""
    inputs: list[Tensor] = []

    def before(_module: nn.Module, arguments: Any) -> None:
        inputs.append(arguments[0].detach())
        raise LayerReached

    handle = layer.register_forward_pre_hook(before)
    try:
        for batch in batches:
            with suppress(LayerReached):
                forward(model, batch)
    finally:
        handle.remove()
    return inputs
