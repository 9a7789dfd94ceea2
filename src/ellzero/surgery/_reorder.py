"""Reordering: hidden units in an order that a coder of positions likes, the same function in eval mode.

Which unit of a hidden layer comes first changes nothing that a network computes, so the order is free, and a file need not hold it:
of n units, log2 n! bits (D. MacKay, Information Theory, Inference, and Learning Algorithms, 2003, on bits back for symmetries).
"""

from collections.abc import Iterable
from itertools import product

import torch
from jaxtyping import Bool, Int64
from torch import Tensor, nn

from ellzero.surgery._fold import check_equal, named_tensors, outputs
from ellzero.surgery.analysis import Analysis
from ellzero.surgery.known_modules import copied
from ellzero.surgery.layer_operations import Dense
from ellzero.surgery.operations import Mixer


@torch.no_grad()
def reorder(model: nn.Module, example: Tensor) -> nn.Module:
    """Copies a model with the units of each hidden layer in order of how many non-zero weights they read, the fullest first.

    Dead units come to lie together, and neighbours have about as many weights: positions then take fewer bytes. Units that are added to
    each other, as in residual networks, move together; what flattening makes of a channel stays in its order. Units whose place is
    written somewhere that cannot be permuted stay.

    Args:
        model: a traceable model of the layers listed in `docs/guides/fold-and-shrink.md`; it is not changed.
        example: a batch of inputs, floating point; two are enough.

    Returns:
        The copy, of the same class, shapes and keys.

    Raises:
        ValueError: the model cannot be traced, or holds a module or function that is not known; the message names it.
        RuntimeError: the copy answers differently on `example`.
    """
    result = copied(model)
    expected = outputs(model, example)
    analysis = Analysis(result, example)
    axes = [(name, units) for operation in analysis.operations for name, units in operation.axes().items()]
    tensors = named_tensors(result)
    axes = [(name, units) for name, units in axes if isinstance(tensors.get(name), Tensor)]
    labels = [(name, tensors[name], [None if along is None else analysis.labels[along] for along in units]) for name, units in axes]
    ranks = _ranks(analysis, [(tensor, along[0]) for _, tensor, along in labels if tensor.ndim >= 2 and along[0] is not None])
    for _, tensor, units in labels:
        for dim, along in enumerate(units):
            if along is not None:
                order = torch.argsort(ranks[along], stable=True) if bool((ranks[along] >= 0).all()) else None
                if order is not None:
                    tensor.copy_(tensor.index_select(dim, order.to(tensor.device)))
    check_equal(outputs(result, example), expected)
    return result


def _ranks(analysis: Analysis, written: Iterable[tuple[Tensor, Tensor | None]]) -> Int64[Tensor, " units"]:
    """Ranks every class of units by the non-zero weights that it reads, -1 for those that stay where they are.

    Args:
        analysis: of the network.
        written: the weights of the layers, with the classes of the units that their rows write.
    """
    counts = torch.zeros(analysis.units, dtype=torch.int64)
    for tensor, along in written:
        if along is not None:
            counts.index_add_(0, along, torch.count_nonzero(tensor.flatten(1), dim=1).cpu())
    order = torch.argsort(-counts, stable=True)
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order))
    return ranks.masked_fill(_immovable(analysis), -1)


def _immovable(analysis: Analysis) -> Bool[Tensor, " units"]:
    """Marks the classes of units that stay where they are.

    A tensor's units move all or none, and where some of them are in another tensor, too, all are: else one order would not fit both.
    """
    fixed = [*analysis.fixed]
    for operation in analysis.operations:
        if isinstance(operation, Mixer):
            fixed += [operation.source.ids.flatten(), operation.result.ids.flatten()]
        elif isinstance(operation, Dense) and operation.axes()[f"{operation.name}weight"][1] is None:
            fixed.append(operation.source.ids.flatten())
    stays = torch.zeros(analysis.units, dtype=torch.bool)
    for ids in fixed:
        stays[analysis.labels[ids]] = True
    classes_of_values = [torch.unique(analysis.labels[value.ids.flatten()]) for value in analysis.values]
    for _ in range(len(classes_of_values) + 1):
        before = int(stays.sum())
        for classes in classes_of_values:
            if bool(stays[classes].any()):
                stays[classes] = True
        if int(stays.sum()) == before:
            break
    sizes = torch.zeros(analysis.units, dtype=torch.int64)
    for classes in classes_of_values:
        sizes[classes] = torch.maximum(sizes[classes], torch.tensor(len(classes)))
    # A part of another's units: shortcuts that pad channels.
    parts = [classes for classes in classes_of_values if bool((sizes[classes] != len(classes)).any())]
    for classes, others in product(parts, classes_of_values):
        if bool(torch.isin(others, classes).any()):
            stays[others] = True
    return stays
