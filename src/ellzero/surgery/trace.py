"""Records which operations a network applies to its input, with concrete shapes, by symbolic tracing (torch.fx)."""

from collections.abc import Callable
from typing import Any, Final

from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate
from torch.fx.proxy import Attribute

from ellzero.surgery.calls import evaluating

_SHAPE_ATTRIBUTES: Final = frozenset({"shape", "ndim", "dtype", "device", "is_cuda", "layout", "itemsize"})
_SHAPE_METHODS: Final = frozenset({"size", "dim", "ndimension", "numel", "nelement", "stride", "is_floating_point", "is_contiguous"})


class RefusedError(ValueError):
    """A network that cannot be analysed, with the name of the part that is to blame."""


class _Single(nn.Module):
    """Calls a model with one argument, so that optional arguments keep their Python defaults instead of becoming symbols."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        return self.model(x)


class _Shaped(fx.Proxy):
    """A symbol that knows its shape: `x.shape`, `len(x)` and asserts on them are answered, its values stay unknown.

    It says that it is a tensor, so that forward methods whose annotations are checked at run time accept it.
    """

    @property
    def __class__(self) -> type[Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]  # what isinstance asks after the type
        return Tensor

    def __getattr__(self, k: str) -> Any:
        if k in ("_is_param", "_is_buffer"):
            return False
        if k in _SHAPE_ATTRIBUTES:
            return getattr(self.node.meta["value"], k)
        return super().__getattr__(k)

    def __len__(self) -> int:
        return len(self.node.meta["value"])


def _values(arguments: Any) -> Any:
    def value(leaf: Any) -> Any:
        if isinstance(leaf, Attribute):
            return getattr(value(leaf.root), leaf.attr)
        return leaf.node.meta["value"] if isinstance(leaf, fx.Proxy) else leaf

    return map_aggregate(arguments, value)


class _ShapeTracer(fx.Tracer):
    """Traces and runs every recorded operation once, on the example."""

    def __init__(self, example: Tensor, is_known: Callable[[nn.Module], bool]) -> None:
        super().__init__()
        self.example = example
        self.is_known = is_known
        self.running = False

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return self.is_known(m) or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.running:
            return forward(*args, **kwargs)
        name = self.path_of_module(m)
        if self.is_leaf_module(m, name) and not self.is_known(m):
            raise RefusedError(f"{describe(name, m)} is not known to this analysis: replace it, or shrink the parts around it one by one")
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return attr_val if self.running else super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_arg(self, a: Any) -> Any:
        return a.node if isinstance(a, fx.Proxy) else super().create_arg(a)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Shaped(node, self)

    def create_proxy(self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *rest: Any, **named: Any) -> Any:
        # Modules run here are not recorded once more, and give their parameters instead of symbols.
        self.running = True
        try:
            value = self._run(kind, target, _values(args), _values(kwargs))
        finally:
            self.running = False
        if kind == "call_method" and target in _SHAPE_METHODS:
            return value
        proxy = super().create_proxy(kind, target, args, kwargs, *rest, **named)
        proxy.node.meta["value"] = value
        # The version of an in-place operation's operand changes with it, so the shape is read now.
        proxy.node.meta["shape"] = value.shape if isinstance(value, Tensor) else None
        proxy.node.meta["where"] = next(reversed(self.module_stack.values()))[0] if self.module_stack else ""
        return proxy

    def _run(self, kind: str, target: Any, args: Any, kwargs: Any) -> Any:
        match kind:
            case "placeholder":
                return self.example
            case "get_attr":
                owner, _, leaf = target.rpartition(".")
                return getattr(self.root.get_submodule(owner), leaf)
            case "call_module":
                return self.root.get_submodule(target)(*args, **kwargs)
            case "call_method":
                return getattr(args[0], target)(*args[1:], **kwargs)
            case _:
                return target(*args, **kwargs)


def short(path: str) -> str:
    """Removes the name of the wrapper that this module puts around a model."""
    return path.removeprefix("model").removeprefix(".")


def describe(path: str, module: nn.Module) -> str:
    """Names a module by its path and class, as in 'encoder.lstm (LSTM)'."""
    return f"{short(path) or 'the model'} ({type(module).__name__})"


def trace(model: nn.Module, example: Tensor, is_known: Callable[[nn.Module], bool]) -> tuple[fx.Graph, nn.Module]:
    """Records the operations that a model applies to `example` in eval mode.

    Args:
        model: the model; it is not changed.
        example: an input, batch first.
        is_known: says which modules are recorded as one operation each.

    Returns:
        The graph, whose nodes carry `meta["shape"]` and `meta["where"]`, and the module that its names refer to
        (the model under the name `model`; `short` removes it).

    Raises:
        ValueError: a module is not known, or the model cannot be traced (control flow that depends on data).
    """
    root = _Single(model)
    tracer = _ShapeTracer(example.clone(), is_known)
    with evaluating(root):
        try:
            graph = tracer.trace(root)
        except RefusedError:
            raise
        except Exception as error:  # whatever the model's own code raises when it meets a symbol
            path, kind = next(reversed(tracer.module_stack.values())) if tracer.module_stack else ("", type(model))
            name = getattr(kind, "__name__", str(kind))
            raise RefusedError(f"cannot trace {short(path) or 'the model'} ({name}): {error}") from error
    for node in graph.nodes:
        node.meta.pop("value", None)
    return graph, root
