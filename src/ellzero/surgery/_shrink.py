"""Shrinking: a new, smaller model without the dead and constant units, equal in eval mode."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ellzero.surgery._fold import check_equal, named_tensors, outputs, write_folded_
from ellzero.surgery.analysis import Analysis
from ellzero.surgery.kept_indices import KeptIndices, grid, slice_tensor
from ellzero.surgery.known_modules import CONVOLUTIONS, NORMS, copied
from ellzero.surgery.layer_operations import Dense
from ellzero.surgery.selected_linear import SelectedLinear, select_features_


@dataclass(frozen=True, kw_only=True)
class Shrunk:
    """A smaller model.

    Attributes:
        model: of the same classes, with the same forward code and state_dict keys as the original, and smaller tensors.
        kept: for every parameter and buffer that got smaller, the kept indices of the original tensor along each dimension.
    """

    model: nn.Module
    kept: KeptIndices


def shrink(model: nn.Module, example: Tensor, *, inputs: bool = False) -> Shrunk:
    """Copies a model without its dead and constant units: smaller and faster, the same function in eval mode.

    The copy is folded first, so that the biases say what constant units said. Every layer keeps at least one channel.

    Args:
        model: a traceable model of the layers listed in `docs/guides/fold-and-shrink.md`; it is not changed.
        example: a batch of inputs, floating point; two are enough.
        inputs: also remove the weights of input features that nothing reads: linear layers at the input select what they read.

    Returns:
        The smaller model and what it kept of the original.

    Raises:
        ValueError: the model cannot be traced, or holds a module or function that is not known; the message names it.
        RuntimeError: the smaller model answers differently on `example`.
    """
    small = copied(model)
    expected = outputs(model, example)
    analysis = Analysis(small, example)
    write_folded_(small, analysis, example, expected)
    tensors = named_tensors(small)
    kept: dict[str, tuple[Tensor | None, ...]] = {}
    for operation in analysis.operations:
        for name, units in operation.axes().items():
            indices = tuple(analysis.indices(along) for along in units)
            if isinstance(tensors.get(name), Tensor) and any(index is not None for index in indices):
                kept[name] = indices
        if inputs and isinstance(operation, Dense) and operation.source.raw and isinstance(operation.module, nn.Linear):
            _keep_features(operation, kept)
    _slice_(small, kept)
    try:
        new_outputs = outputs(small, example)
    except RuntimeError as error:
        raise RuntimeError(f"the smaller model fails on the example, so its code depends on a number of channels: {error}") from error
    check_equal(new_outputs, expected)
    return Shrunk(model=small, kept=kept)


def _keep_features(operation: Dense, kept: dict[str, tuple[Tensor | None, ...]]) -> None:
    live = operation.live_columns()
    live = live if len(live) else torch.zeros(1, dtype=torch.int64)
    if len(live) == operation.nonzero.shape[1]:
        return
    weight = f"{operation.name}weight"
    kept[weight] = (kept.get(weight, (None, None))[0], live)
    kept[f"{operation.name}features"] = (live,)


def shrink_to(model: nn.Module, kept: KeptIndices) -> nn.Module:
    """Copies a full model to the sizes that an earlier `shrink` found, as a checkpoint of the smaller one needs.

    Nothing is analysed or folded: the tensors are the full model's, sliced. Load the smaller model's state into the result,
    or `fold_` the full model before, where the values matter.

    Args:
        model: the full model that `kept` refers to; it is not changed.
        kept: from `shrink`, or from `compose`.

    Raises:
        ValueError: `kept` names a tensor that the model does not have, or more dimensions than it has.
    """
    small = copied(model)
    _slice_(small, kept)
    return small


@torch.no_grad()
def _slice_(model: nn.Module, kept: KeptIndices) -> None:
    touched: dict[str, nn.Module] = {}
    for name, indices in kept.items():
        path, _, leaf = name.rpartition(".")
        try:
            module = touched.setdefault(path, model.get_submodule(path))
        except AttributeError as error:
            raise ValueError(f"kept names {name!r}, which the model does not have: it belongs to another model") from error
        old = getattr(module, leaf, None)
        if leaf == "features" and not isinstance(old, Tensor):
            continue  # the linear layer does not select yet: below
        if not isinstance(old, Tensor) or old.ndim != len(indices):
            raise ValueError(f"kept names {name!r} with {len(indices)} dimensions: it belongs to another model")
        new = slice_tensor(old.detach(), indices)
        if isinstance(old, nn.Parameter):
            module.register_parameter(leaf, nn.Parameter(new, requires_grad=old.requires_grad))
        else:
            module._buffers[leaf] = new
    for path, module in touched.items():
        features = kept.get(f"{path}.features" if path else "features")
        if isinstance(module, nn.Linear):
            module.out_features, module.in_features = module.weight.shape
            if features is not None and not isinstance(module, SelectedLinear):
                assert features[0] is not None
                select_features_(module, features[0])
        elif isinstance(module, CONVOLUTIONS):
            module.out_channels = module.weight.shape[0]
            if module.groups > 1:  # only depthwise convolutions of several groups are sliced
                module.groups = module.out_channels
            module.in_channels = module.weight.shape[1] * module.groups
        elif isinstance(module, NORMS):
            assert isinstance(module.running_mean, Tensor)
            module.num_features = module.running_mean.shape[0]


@torch.no_grad()
def expand_(full: nn.Module, small: nn.Module, kept: KeptIndices) -> None:
    """Writes a smaller model's tensors back into the full-size model: zeros where units were removed.

    Removed channels of a batch normalisation get the running statistics of a new one (mean 0, variance 1).

    Args:
        full: the model that `kept` refers to; all of its parameters and buffers are overwritten.
        small: from `shrink`, possibly trained further.
        kept: the smaller model's indices in the full one's tensors.

    Raises:
        ValueError: the models do not fit each other.
    """
    source = named_tensors(small)
    for name, tensor in named_tensors(full).items():
        if name not in source:
            raise ValueError(f"the smaller model has no tensor {name!r}: it comes from another model")
        if name.rpartition(".")[2] == "features" and name not in full.state_dict():
            continue
        indices = kept.get(name, (None,) * tensor.ndim)
        expected = tuple(size if index is None else len(index) for index, size in zip(indices, tensor.shape, strict=True))
        if expected != tuple(source[name].shape):
            raise ValueError(
                f"{name} has shape {tuple(source[name].shape)} in the smaller model, not {expected}: kept belongs to another model"
            )
        if name not in kept:
            tensor.copy_(source[name])
            continue
        new = torch.full_like(tensor, 1 if name.rpartition(".")[2] == "running_var" else 0)
        new[tuple(index.to(new.device) for index in grid(indices, tensor.shape))] = source[name].to(new.device, new.dtype)
        tensor.copy_(new)
