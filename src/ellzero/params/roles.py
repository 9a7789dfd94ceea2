"""Which role a parameter plays: matrices of weights are worth pruning, scales, tokens, positions and routers are not."""

import re
from collections.abc import Callable

from torch import Tensor, nn

Selector = Callable[[str, nn.Module, Tensor], bool]
"""(canonical name, module that owns it, tensor) -> whether the method regularises this trainable parameter.

The owner of a parametrized tensor is the module that uses it, and its name ends in `.parametrizations.weight.original`.
"""

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
"""Normalisation may have a weight of several dimensions, which is a scale all the same: `LayerNorm((3, 8, 8))`."""

_LAYERS = (nn.Linear, nn.modules.conv._ConvNd, nn.Bilinear, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)
"""Of these every parameter of two and more dimensions is a weight, biases excepted, whatever its shape: `Linear(5, 1)`."""

_NORM_CLASS = re.compile(r"(?:[a-z0-9]Norm|^RMSNorm|^Norm|^GRN)(\d[dD])?$")
_EMBEDDING_CLASS = re.compile(r"Embedding$")

_BIASES = frozenset({"bias", "biases"})
_WEIGHTS = frozenset({"weight", "weights", "kernel", "kernels", "proj", "projs", "projection", "projections"})
_OTHERS = frozenset(
    {
        *("token", "tokens", "cls", "register", "registers", "prompt", "prompts", "latents"),
        *("pos", "position", "positions", "positional", "pe", "rel", "relative"),
        *("embed", "embeds", "embedding", "embeddings", "emb"),
        *("scale", "scales", "gamma", "gammas", "lambda", "gain", "gains", "temperature", "norm", "log", "logit"),
        *("router", "routers"),
    }
)
"""Words in the name of a parameter that tell a token, a position, an embedding, a scale or a router from a matrix of weights."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def weights(name: str, module: nn.Module, parameter: Tensor) -> bool:
    """Selects matrices and kernels of weights, the default.

    What has fewer than two dimensions is left out, and by its role:

    - biases (also `bias_k`, `bias_v`, tables of relative position biases) and normalisation;
    - embeddings, class, mask and register tokens, position embeddings;
    - scales: `layer_scale`, `gamma`, `logit_scale`, the norms `g` of weight_norm, and any tensor of a module outside `torch.nn` that
      has one dimension larger than 1 at most, as `(C, 1, 1)`;
    - the routers of mixtures of experts, which are called `router` or `gate`, a gate with as many outputs as inputs or more excepted.

    Roles are told by the classes of `torch.nn` and, for parameters of other modules, by the words of their names. `sparsifier.skipped`
    lists what is left out.
    """
    if parameter.ndim < 2:
        return False
    leaf, path = _leaf_and_path(name)
    words = _words(leaf)
    if words & _BIASES or leaf.endswith("bias") or isinstance(module, (*_EMBEDDINGS, *_NORMS)) or _is_norm_of_weight(name, leaf, module):
        return False
    if _is_router(path, module, parameter):
        return False
    return isinstance(module, _LAYERS) or _is_matrix(leaf, words, module, parameter)


def everything(name: str, module: nn.Module, parameter: Tensor) -> bool:
    """Selects every trainable parameter, biases, normalisation and embeddings included: the paper's setting."""
    return True


def _leaf_and_path(name: str) -> tuple[str, list[str]]:
    """Splits a name into the tensor's own and the modules around it, those that a parametrization adds left out."""
    parts = name.split(".")
    if len(parts) >= 3 and parts[-3] == "parametrizations":
        return parts[-2], parts[:-3]
    return parts[-1], parts[:-1]


def _words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(name))


def _is_norm_of_weight(name: str, leaf: str, module: nn.Module) -> bool:
    """Tells the norms that weight_norm takes apart, in either form, from the directions."""
    if leaf.endswith("_g"):
        return f"{leaf[:-2]}_v" in module._parameters
    parametrized = getattr(module, "parametrizations", None)
    is_first = name.endswith(f".{leaf}.original0") or name == f"parametrizations.{leaf}.original0"
    return is_first and parametrized is not None and leaf in parametrized and type(parametrized[leaf][0]).__name__ == "_WeightNorm"


def _is_router(path: list[str], module: nn.Module, parameter: Tensor) -> bool:
    kind = type(module).__name__
    if "Router" in kind or kind.endswith("Gate") or any("router" in _words(part) for part in path):
        return True
    own, around = ([*path[-1:], ""][0], path[-2] if len(path) > 1 else "")
    words = _words(own)
    named = own == "gate" or {"expert", "gate"} <= words or (around == "gate" and own == "wg")
    return named and parameter.ndim == 2 and parameter.shape[0] < parameter.shape[1]


def _is_matrix(leaf: str, words: frozenset[str], module: nn.Module, parameter: Tensor) -> bool:
    kind = type(module).__name__
    if leaf == "weight" and (_NORM_CLASS.search(kind) or _EMBEDDING_CLASS.search(kind)):
        return False
    is_vector = sum(size > 1 for size in parameter.shape) <= 1
    if is_vector and not (leaf == "weight" and parameter.ndim == 2):
        return False
    return bool(words & _WEIGHTS) or not words & _OTHERS
