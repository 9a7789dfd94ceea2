"""Random Gradient Pruning (section 2.2.3, appendix D): removes weights on which the network's function does not depend."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ellzero.params import Selector, duplicate, everything, named_parameters, select_parameters
from ellzero.pruning.influence import PassInfluence, randomise_support_
from ellzero.surgery.calls import Forward, call_model, list_batches

_UNCHANGED = 1e-9
"""Largest change of an output, relative to the largest output, that counts as rounding in double precision."""


def random_gradient(
    model: nn.Module,
    inputs: Tensor | Mapping[str, Any] | Iterable[Any] | None = None,
    *,
    select: Selector = everything,
    shape: Sequence[int] | None = None,
    forward: Forward | None = None,
    draws: int = 3,
    seed: int = 0,
    silent: bool = False,
) -> dict[str, Tensor]:
    """Finds the weights that no input can make matter: their gradient is exactly zero, wherever it is taken.

    The paper takes one gradient of |y - f(z)|^2 for a random pair (y, z). That also removes a ReLU unit that happens to be off on z
    though real inputs switch it on. Here a weight is kept when any of two kinds of gradients of sum(r * f(z)), r random, is not zero:

    - with random positive numbers in place of the non-zero weights, on positive inputs, where nothing is off, saturated or
      cancelled: zero only if no path of non-zero weights leads through this weight to an output, or nothing ever comes to it;
    - at the real weights, on the given inputs, or on Gaussian ones.

    So never more is removed than what cannot be reached. A unit that only its bias feeds is a constant, not dead: its bias and what
    leads from it are kept, and folding moves it on. All of it runs in double precision and eval mode on a copy: the model, its
    gradients and the global random state stay as they are. At the end the copy is pruned and compared: a tensor whose removals change
    an output (a network that detaches, rounds or renormalises its weights can do that) keeps them.

    Args:
        model: any module whose outputs hold real tensors, alone or in tuples, mappings and dataclasses.
        inputs: one batch (a tensor, or a mapping of keyword arguments), or an iterable of batches (tensors, tuples of positional
            arguments, mappings). Their shape and their integers (tokens) serve the first kind of gradient, their values the second.
        select: which parameters may be removed.
        shape: without `inputs`, the shape of a random batch, as (8, 1, 28, 28); not needed where a linear layer comes first.
        forward: how to call the model on a batch, as `lambda model, batch: model(batch[0])` for pairs with labels.
        draws: how many gradients of each kind.
        seed: of weights, inputs and r.
        silent: removes also what has no effect on any given input: weights of constant-zero pixels, units never switched on. The
            biases of such units are then listed even where `params` leaves biases out. The outputs on the given inputs are
            verified to be the same, to 1e-9 of the largest; other inputs may find a different function.

    Returns:
        Name -> boolean tensor, True where a non-zero weight is kept. Tied tensors appear once.

    Raises:
        ValueError: no inputs where they cannot be made up (integers are not), an empty iterable, fewer than one draw.
        TypeError: the output holds no real tensor, or the model is none.
    """
    if draws < 1:
        raise ValueError(f"at least one draw is needed, got draws={draws}")
    if silent and inputs is None:
        raise ValueError("silent=True asks what the given inputs leave without effect: pass inputs=")
    selected = select_parameters(model, select)

    def call(network: nn.Module, batch: Any) -> Any:
        return (forward or call_model)(network, _map_tensors(batch, Tensor.clone))  # cloned: some networks overwrite their input

    with _isolated(next(iter(selected.values())).device, seed) as device:
        real = _double_copy(model, device)
        generator = torch.Generator().manual_seed(seed)
        batches = [_map_tensors(batch, lambda x: _to_double(x, device)) for batch in _batches(real, inputs, shape, generator)]
        owned = {name: tensor for name, (_, tensor) in named_parameters(real).items()}
        extra = [name for name in owned if silent and name not in selected and "bias" in name.rsplit(".", 1)[-1]]
        watched = {name: owned[name] for name in [*selected, *extra]}

        used = {name: torch.zeros_like(tensor, dtype=torch.bool) for name, tensor in watched.items()}
        for batch in batches:
            for _ in range(draws):
                _mark_(used, _gradients(call(real, batch), watched, generator, positive=False))
        reached = {name: mask.clone() for name, mask in used.items()}
        support = duplicate(real, recompute=True)
        supported = {name: tensor for name, (_, tensor) in named_parameters(support).items() if name in watched}
        for _ in range(draws):
            randomise_support_(support, generator)
            batch = _map_tensors(batches[0], lambda x: _positive(x, generator))
            with PassInfluence():
                outputs = call(support, batch)
            _mark_(reached, _gradients(outputs, supported, generator, positive=True))

        nonzero = {name: tensor.detach() != 0 for name, tensor in watched.items()}
        structural = {name: nonzero[name] & reached[name] if name in selected else nonzero[name] for name in watched}
        masks = _confirmed(real, call, batches, watched, nonzero, structural)
        if silent:
            masks = _confirmed(real, call, batches, watched, masks, {name: masks[name] & used[name] for name in watched})
    listed = [*selected, *(name for name in extra if not torch.equal(masks[name], nonzero[name]))]
    given = named_parameters(model)
    return {name: masks[name].to(given[name][1].device) for name in listed}


@contextmanager
def _isolated(device: torch.device, seed: int) -> Generator[torch.device]:
    """Allows gradients, keeps the global random state, and yields a device that computes in double precision."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.random.fork_rng(devices=[device] if device.type == "cuda" else []))
        torch.manual_seed(seed)  # for models that draw in their forward pass; undone by fork_rng
        if device.type == "cuda":
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))  # cuDNN has no gradient of a recurrent layer in eval mode
        yield torch.device("cpu") if device.type == "mps" else device


def _double_copy(model: nn.Module, device: torch.device) -> nn.Module:
    """Copies the model without its wrappers, in double precision and eval mode."""
    while hasattr(model, "_orig_mod") or isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        inner = getattr(model, "_orig_mod", None) or model.module
        assert isinstance(inner, nn.Module)
        model = inner
    real = duplicate(model, recompute=True).to(device).double().eval()
    for parameter in real.parameters():
        parameter.grad = None
    return real


def _batches(
    model: nn.Module, inputs: Tensor | Mapping[str, Any] | Iterable[Any] | None, shape: Sequence[int] | None, generator: torch.Generator
) -> list[Any]:
    if inputs is not None:
        return list_batches(inputs)
    if shape is None:
        first = next(module for module in model.modules() if next(module.parameters(recurse=False), None) is not None)
        if not isinstance(first, nn.Linear):
            raise ValueError(
                f"no inputs can be made up for a model that begins with {type(first).__name__}: pass inputs=, or shape= for real ones"
            )
        shape = (8, first.in_features)
    return [torch.randn(*shape, generator=generator, dtype=torch.float64)]


def _map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Applies a function to every tensor of nested tuples, lists and mappings; leaves everything else."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: _map_tensors(item, function) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [_map_tensors(item, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)  # a named tuple takes them one by one
    return value


def _to_double(x: Tensor, device: torch.device) -> Tensor:
    return x.detach().to(device, torch.float64) if x.is_floating_point() else x.to(device)


def _positive(x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(x.shape, generator=generator, dtype=torch.float64).add(0.5).to(x.device) if x.is_floating_point() else x


def _real_tensors(value: Any) -> Iterator[Tensor]:
    """Finds the real tensors of an output."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _real_tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _real_tensors(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _real_tensors(getattr(value, field.name))


def _gradients(outputs: Any, watched: Mapping[str, Tensor], generator: torch.Generator, *, positive: bool) -> dict[str, Tensor]:
    """Computes the gradient of the outputs, each times a random number."""
    tensors = list(_real_tensors(outputs))
    if not tensors:
        raise TypeError(f"the model returns no real tensor (it returns {type(outputs).__name__}): return one, or pass forward=")
    total = torch.zeros((), dtype=torch.float64, device=tensors[0].device)
    for tensor in tensors:
        r = torch.rand(tensor.shape, generator=generator, dtype=torch.float64).add(0.5)
        r = r if positive else r * torch.randint(0, 2, tensor.shape, generator=generator).mul(2).sub(1)
        total = total + (tensor.double() * r.to(tensor.device)).sum()
    if not total.requires_grad:
        return {name: torch.zeros_like(tensor) for name, tensor in watched.items()}
    gradients = torch.autograd.grad(total, list(watched.values()), allow_unused=True, materialize_grads=True)
    # An embedding may have a sparse one.
    dense = [gradient if gradient.layout is torch.strided else gradient.to_dense() for gradient in gradients]
    return dict(zip(watched, dense, strict=True))


def _mark_(seen: dict[str, Tensor], gradients: Mapping[str, Tensor]) -> None:
    for name, gradient in gradients.items():
        seen[name] |= gradient != 0  # NaN counts as an effect


@torch.no_grad()
def _confirmed(
    model: nn.Module,
    call: Forward,
    batches: list[Any],
    watched: Mapping[str, Tensor],
    base: dict[str, Tensor],
    proposed: dict[str, Tensor],
) -> dict[str, Tensor]:
    """Returns the proposed masks, or as many of their tensors, the last first, as leave every output as it is under `base`.

    From the last to the first: a unit's inputs may go once nothing leads on from it, even where its bias would then switch it on.
    """
    if all(torch.equal(base[name], proposed[name]) for name in base):
        return base
    originals = {name: tensor.detach().clone() for name, tensor in watched.items()}

    def outputs(masks: Mapping[str, Tensor]) -> Iterator[Tensor]:
        for name, tensor in watched.items():
            tensor.copy_(torch.where(masks[name], originals[name], 0.0))
        for batch in batches:
            yield from _real_tensors(call(model, batch))

    reference = [tensor.clone() for tensor in outputs(base)]

    def same(masks: Mapping[str, Tensor]) -> bool:
        return all(_equal(a, b) for a, b in zip(reference, outputs(masks), strict=True))

    accepted = dict(base)
    if same(proposed):
        accepted = proposed
    else:
        for name in reversed(list(watched)):
            trial = accepted | {name: proposed[name]}
            if not torch.equal(base[name], proposed[name]) and same(trial):
                accepted = trial
    for name, tensor in watched.items():
        tensor.copy_(originals[name])
    return accepted


def _equal(reference: Tensor, other: Tensor) -> bool:
    scale = float(torch.where(reference.isfinite(), reference, 0.0).abs().max()) if reference.numel() else 0.0
    return torch.allclose(reference, other, rtol=0.0, atol=_UNCHANGED * scale, equal_nan=True)
