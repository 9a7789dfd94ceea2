"""What an elementwise operation makes of constants."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.fx.node import Node, map_arg

from ellzero.surgery.known_modules import name_of
from ellzero.surgery.operations import NAN, Value


def constant_of(node: Node, environment: Mapping[Node, Value | Tensor]) -> Tensor:
    """Computes an elementwise operation on the constants of its operands, in float64.

    Args:
        node: the operation.
        environment: what the operands are: values, or single numbers held by the network.

    Returns:
        The result's constants, NaN where it is not constant.
    """

    def constant(argument: Node) -> Any:
        operand = environment[argument]
        return operand.constant.clone() if isinstance(operand, Value) else operand.cpu().double().reshape(())

    operands = [environment[argument] for argument in node.all_input_nodes]
    sources = [operand for operand in operands if isinstance(operand, Value)]
    args: Any = map_arg(node.args, constant)
    kwargs: Any = map_arg(node.kwargs, constant)
    name = name_of(node)
    if name in ("float", "double", "contiguous", "to"):
        result: Tensor = args[0]
    elif callable(node.target):
        result = node.target(*args, **kwargs)
    else:
        result = getattr(args[0], name)(*args[1:], **kwargs)
    if name.removesuffix("_") in ("mul", "imul") and len(sources) == 2:
        zero = (sources[0].constant == 0) | (sources[1].constant == 0)
        return torch.where(zero, 0.0, result)
    # Some activations and powers turn nan into a number.
    return torch.where(reduce(torch.add, [source.constant for source in sources]).isnan(), NAN, result)
