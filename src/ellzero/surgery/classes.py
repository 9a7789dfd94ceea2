"""Which units are one because they are added to each other, and which of these classes stay."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ellzero.surgery.operations import Value


def classes(units: int, unions: Sequence[tuple[Tensor, Tensor]], fixed: Sequence[Tensor], values: Sequence[Value]) -> tuple[Tensor, Tensor]:
    """Labels units by class, by label propagation with pointer jumping, and finds which labels stay.

    Args:
        units: how many there are, numbered from 0.
        unions: pairs of tensors of numbers; what stands at the same place in both is one.
        fixed: numbers of units that stay in any case.
        values: what flows through the network, with the units that it needs.

    Returns:
        The label of each unit, and for each label whether it stays.
    """
    labels = torch.arange(units)
    left, right = (torch.cat(side) if unions else labels[:0] for side in (list(zip(*unions, strict=True)) or [(), ()]))
    while True:
        smallest = torch.minimum(labels[left], labels[right])
        new = labels.scatter_reduce(0, labels[left], smallest, "amin").scatter_reduce(0, labels[right], smallest, "amin")
        new = new[new]
        if torch.equal(new, labels):
            break
        labels = new
    kept = torch.zeros(units, dtype=torch.bool)
    for ids in fixed:
        kept[labels[ids]] = True
    for value in values:
        kept[labels[value.ids[value.need]]] = True
    for value in values:  # no tensor may become empty
        ids = labels[value.ids.flatten()]
        if not kept[ids].any():
            kept[ids[0]] = True
    return labels, kept
