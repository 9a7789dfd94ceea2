"""The analysis behind `fold`, `shrink` and `reorder`: a traced network as operations on channels, one rule per module or function."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.node import Node, map_arg

from ellzero.surgery.known_modules import (
    ACTIVATIONS,
    AVERAGE_POOLS,
    AVG_POOLS,
    CONSTANT_POOLS,
    CONVOLUTIONS,
    DROPOUT_FUNCTIONS,
    DROPOUTS,
    ELEMENTWISE,
    MAX_POOLS,
    NAMESPACES,
    NORMS,
    any_of,
    check_weights,
    keeps_numbers,
    known,
    name_of,
    shared_modules,
)
from ellzero.surgery.layer_operations import BatchNorm, Dense, Depthwise
from ellzero.surgery.operations import NAN, Mixer, Operation, Through, Value, reduce_any
from ellzero.surgery.selected_linear import SelectedLinear
from ellzero.surgery.trace import RefusedError, describe, short, trace


class Analysis:
    """The operations of a network in their order, and which units have to stay."""

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        """Traces `model` on `example` and finds constants and needs; raises ValueError for what cannot be traced or is not known."""
        check_weights(model)
        graph, root = trace(model, example, known)
        self.root = root
        self.operations: list[Operation] = []
        self.values: list[Value] = []
        self.fixed: list[Tensor] = []
        self.unions: list[tuple[Tensor, Tensor]] = []
        self.units = 0
        self.environment: dict[Node, Value | Tensor] = {}
        nodes = list(graph.nodes)
        self.shared = shared_modules(root, nodes)
        for node in nodes:
            self._visit(node)
        for operation in reversed(self.operations):
            operation.demand()
        self.labels, self.stays = _classes(self.units, self.unions, self.fixed, self.values)

    def value(self, shape: torch.Size, ids: Tensor, constant: Tensor | None = None, *, raw: bool = False) -> Value:
        """Creates a value; without constants none of its elements is constant."""
        constant = torch.full(ids.shape, NAN, dtype=torch.float64) if constant is None else constant
        value = Value(shape=shape, ids=ids, constant=constant, raw=raw)
        self.values.append(value)
        return value

    def fresh(self, shape: torch.Size, dim: int) -> Value:
        """Creates a value with new units along `dim`."""
        pattern = [1] * (len(shape) - 1)
        pattern[dim - 1 if dim > 0 else dim] = shape[dim]
        return self.value(shape, self.number(shape[dim]).view(pattern))

    def number(self, count: int) -> Tensor:
        """Numbers new units."""
        self.units += count
        return torch.arange(self.units - count, self.units)

    def fix(self, value: Value) -> None:
        """Keeps all units of a value: their number is written somewhere that cannot shrink."""
        self.fixed.append(value.ids.flatten())

    def indices(self, units: Tensor | None) -> Tensor | None:
        """Numbers the elements along a dimension whose units stay, None where all do."""
        if units is None:
            return None
        stays = self.stays[self.labels[units]]
        return None if stays.all() else torch.nonzero(stays).flatten()

    # From here on: one rule per kind of operation.

    def _visit(self, node: Node) -> None:
        if node.op == "output":
            for source in node.all_input_nodes:
                value = self._value(source, node)
                value.need.fill_(True)
                self.fix(value)
        elif node.op == "placeholder":
            shape = node.meta["shape"]
            if len(shape) < 2:
                raise RefusedError(f"the example has shape {tuple(shape)}: pass a batch, with at least two dimensions")
            value = self.value(shape, self.number(shape[1:].numel()).view(shape[1:]), raw=True)
            self.fix(value)
            self.environment[node] = value
        elif node.op == "get_attr":
            attribute = self.root
            for part in str(node.target).split("."):
                attribute = getattr(attribute, part)
            assert isinstance(attribute, Tensor)
            self.environment[node] = attribute.detach()
        elif node.op == "call_module":
            module = self.root.get_submodule(str(node.target))
            self.environment[node] = self._module(node, module)
        else:
            self.environment[node] = self._function(node)
        if node.op in ("call_module", "call_function", "call_method") and self._in_place(node):
            old = self.environment[node.all_input_nodes[0]]
            for other, value in self.environment.items():
                if value is old:
                    self.environment[other] = self.environment[node]

    def _in_place(self, node: Node) -> bool:
        if node.op == "call_module":
            return bool(getattr(self.root.get_submodule(str(node.target)), "inplace", False))
        name = name_of(node)
        return name.endswith("_") or node.kwargs.get("inplace") is True or name in ("iadd", "isub", "imul", "itruediv")

    def _value(self, argument: object, node: Node) -> Value:
        value = self.environment.get(argument) if isinstance(argument, Node) else None
        if not isinstance(value, Value):
            raise self._refuse(node, "is applied to something that does not come from the model's input")
        return value

    def _refuse(self, node: Node, why: str = "is not known to this analysis") -> RefusedError:
        if node.op == "call_module":
            return RefusedError(f"{describe(str(node.target), self.root.get_submodule(str(node.target)))} {why}")
        where = short(node.meta.get("where", ""))
        return RefusedError(
            f"{name_of(node)} in {where or 'the model'} {why}: put it into a module outside of the part that is folded or shrunk"
        )

    def _module(self, node: Node, module: nn.Module) -> Value:
        if len(node.args) != 1 or node.kwargs:
            raise self._refuse(node, "is called with more than its input")
        source = self._value(node.args[0], node)
        shape = node.meta["shape"]
        if isinstance(module, (nn.Linear, *CONVOLUTIONS, *NORMS)):
            return self._layer(node, module, source, shape)
        if isinstance(module, DROPOUTS):
            return source
        if isinstance(module, nn.Flatten):
            return self._reshape(node, source, follows=True)
        if isinstance(module, ACTIVATIONS):
            constant = module.forward(source.constant.clone())  # not called, so that hooks do not see it
            return self._pass(shape, [source], torch.where(source.constant.isnan(), NAN, constant))
        if isinstance(module, AVG_POOLS):
            padded = any_of(module.padding) or module.ceil_mode or getattr(module, "divisor_override", None) is not None
            return self._pool(node, source, exact=not padded)
        if isinstance(module, MAX_POOLS):
            return self._pool(node, source, exact=True)
        return self._mix(source, shape)

    def _layer(self, node: Node, module: Any, source: Value, shape: torch.Size) -> Value:
        name = short(str(node.target))
        name = f"{name}." if name else ""
        if module in self.shared:
            return self._mix(source, shape, -1 if isinstance(module, nn.Linear) else 1)
        if isinstance(module, nn.Linear):
            if isinstance(module, SelectedLinear):
                self.fix(source)
            result = self.fresh(shape, -1)
            self.operations.append(Dense.apply(name, module, source, result, dim=-1))
            return result
        if len(shape) != len(source.shape) or (isinstance(module, CONVOLUTIONS) and len(shape) != module.weight.ndim):
            raise self._refuse(node, "gets an input without a batch dimension")
        if isinstance(module, NORMS):
            if not source.varies_along(1) or module.running_mean is None:
                return self._mix(source, shape, 1)
            result = self.value(shape, source.ids)
            self.operations.append(BatchNorm.apply(name, module, source, result))
            return result
        padded = any_of(module.padding) if not isinstance(module.padding, str) else module.padding != "valid"
        # A layer of one channel in a single group is an ordinary convolution, not a depthwise one.
        if module.groups == 1:
            result = self.fresh(shape, 1)
            self.operations.append(Dense.apply(name, module, source, result, dim=1, padded=padded))
            return result
        if module.groups == module.in_channels == module.out_channels and source.varies_along(1):
            result = self.value(shape, source.ids)
            self.operations.append(Depthwise.apply(name, module, source, result, padded=padded))
            return result
        return self._mix(source, shape, 1)

    def _mix(self, source: Value, shape: torch.Size, dim: int | None = None) -> Value:
        """Keeps everything around an operation that is left as it is; `dim` is where the channels of its result lie."""
        if dim is not None:
            result = self.fresh(shape, dim)
        else:
            pattern = source.ids.shape if shape == source.shape else shape[1:]
            result = self.value(shape, self.number(pattern.numel()).view(pattern))
        self.fix(source)
        self.fix(result)
        self.operations.append(Mixer(result, source))
        return result

    def _pass(self, shape: torch.Size, sources: Sequence[Value], constant: Tensor) -> Value:
        """Joins values elementwise; a unit of the result needs those of all sources."""
        ids = torch.broadcast_tensors(*(source.ids for source in sources))
        self.unions.extend((ids[0].flatten(), other.flatten()) for other in ids[1:])
        result = self.value(shape, ids[0], constant, raw=all(source.raw for source in sources))
        self.operations.append(Through(result, sources))
        return result

    def _pool(self, node: Node, source: Value, *, exact: bool) -> Value:
        shape = node.meta["shape"]
        if shape is None:
            raise self._refuse(node, "returns indices too")
        if not source.varies_along(1) or len(shape) != len(source.shape):
            result = self._mix(source, shape)
            result.raw = source.raw
            return result
        constant = source.constant if exact else torch.where(source.constant == 0, source.constant, NAN)
        result = self.value(shape, source.ids, constant, raw=source.raw)
        self.operations.append(Through(result, [source]))
        return result

    def _reshape(self, node: Node, source: Value, *, follows: bool) -> Value:
        """Moves elements without mixing batch entries; `follows` says that the code adapts to fewer channels by itself."""
        shape = node.meta["shape"]
        inner, outer = source.shape[1:], shape[1:]
        if shape[:1] != source.shape[:1] or inner.numel() != outer.numel():
            raise self._refuse(node, f"turns shape {tuple(source.shape)} into {tuple(shape)}, which moves elements across the batch")
        if not follows:
            self.fix(source)
        ids, constant = (tensor.expand(inner).reshape(outer) for tensor in (source.ids, source.constant))
        if inner == outer:
            ids, constant = source.ids, source.constant
        result = self.value(shape, ids, constant, raw=source.raw)
        pattern = source.ids.shape

        def backward(need: Tensor) -> Tensor:
            return need if inner == outer else reduce_any(need.reshape(inner), pattern)

        self.operations.append(Through(result, [source], backward))
        return result

    def _function(self, node: Node) -> Value | Tensor:
        name = name_of(node)
        if node.op == "call_function" and not any(getattr(space, name, None) is node.target for space in NAMESPACES):
            raise self._refuse(node)
        bare = name.removesuffix("_")
        if bare in ELEMENTWISE or (bare == "to" and keeps_numbers(node)):
            return self._elementwise(node)
        source = self._value(node.args[0] if node.args else None, node)
        arguments = dict(zip(("source", "kernel_size", "stride", "padding"), node.args, strict=False)) | node.kwargs
        if bare in DROPOUT_FUNCTIONS:
            if arguments.get("training", True) and node.args[2:3] != (False,):
                raise self._refuse(node, "drops in eval mode too: pass training=self.training")
            return source
        if bare in CONSTANT_POOLS:
            return self._pool(node, source, exact=True)
        if bare in AVERAGE_POOLS:
            plain = not any_of(arguments.get("padding") or 0) and len(node.args) <= 4
            exact = plain and not node.kwargs.get("ceil_mode") and node.kwargs.get("divisor_override") is None
            return self._pool(node, source, exact=exact)
        if bare in ("flatten", "reshape", "view"):
            sizes = node.args[1:]
            if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
                sizes = tuple(sizes[0])
            return self._reshape(node, source, follows=bare == "flatten" or (len(sizes) == 2 and sizes[1:] == (-1,)))
        if bare in ("softmax", "log_softmax"):
            return self._mix(source, node.meta["shape"])
        raise self._refuse(node)

    def _elementwise(self, node: Node) -> Value:
        operands = [self.environment[argument] for argument in node.all_input_nodes]
        sources = [operand for operand in operands if isinstance(operand, Value)]
        tensors = [operand for operand in operands if isinstance(operand, Tensor)]
        if not sources:
            raise self._refuse(node, "computes with parameters alone")
        shape = node.meta["shape"]
        alike = all(len(source.shape) == len(shape) and source.shape[0] == shape[0] for source in sources)
        if not alike or (tensors and shape != sources[0].shape) or "out" in node.kwargs:
            raise self._refuse(node, "does not keep the shape of its operands")
        scalars = all(tensor.numel() == 1 for tensor in tensors)
        if not scalars:
            # A tensor with a value for each channel is not sliced, so the channels have to stay.
            for source in sources:
                self.fix(source)
            return self._pass(shape, sources, reduce(torch.add, [source.constant for source in sources]) * NAN)

        return self._pass(shape, sources, _constant_of(node, self.environment))


def _classes(
    units: int, unions: Sequence[tuple[Tensor, Tensor]], fixed: Sequence[Tensor], values: Sequence[Value]
) -> tuple[Tensor, Tensor]:
    """Labels units by class, by label propagation with pointer jumping, and decides which classes stay.

    Units that are added to each other are of one class, which stays or goes as a whole.

    Args:
        units: how many units there are, numbered from 0.
        unions: pairs of tensors of unit numbers; those at the same place in both are of one class.
        fixed: numbers of units that stay in any case.
        values: the tensors between the network's operations, with the units that are needed.

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
    stays = torch.zeros(units, dtype=torch.bool)
    for ids in fixed:
        stays[labels[ids]] = True
    for value in values:
        stays[labels[value.ids[value.need]]] = True
    for value in values:  # no tensor may become empty
        ids = labels[value.ids.flatten()]
        if not stays[ids].any():
            stays[ids[0]] = True
    return labels, stays


def _constant_of(node: Node, environment: Mapping[Node, Value | Tensor]) -> Tensor:
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
