"""Attention taken apart for the time of layerwise pruning: each projection is a linear layer, in the memory of the given weights."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from ellzero.distributed import canonical_paths

_PROJECTIONS = ("q_proj", "k_proj", "v_proj")


class UnrolledAttention(nn.Module):
    """Computes what an attention computes in eval mode, by four linear layers and an attention without projections.

    Args:
        attention: whose weights are used; the layers' weights and biases are views of them.
    """

    in_proj_bias = None
    _qkv_same_embed_dim = False  # what keeps a transformer's layer from a fast path that would call none of the layers

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.batch_first, self.num_heads, self.embed_dim = attention.batch_first, attention.num_heads, attention.embed_dim
        self.add_zero_attn = attention.add_zero_attn
        self.bias_k, self.bias_v = attention.bias_k, attention.bias_v
        slices = _slices(attention, "")
        for name in _PROJECTIONS:
            weight = slices[f".{name}.weight"].part
            bias = slices[f".{name}.bias"].part if f".{name}.bias" in slices else None
            layer = nn.Linear(1, 1, bias=bias is not None)
            layer.weight = nn.Parameter(weight.detach(), requires_grad=weight.requires_grad)
            layer.out_features, layer.in_features = weight.shape
            if bias is not None:
                layer.bias = nn.Parameter(bias.detach(), requires_grad=bias.requires_grad)
            self.add_module(name, layer)
        self.out_proj = attention.out_proj
        self.eval()

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Takes and returns what `nn.MultiheadAttention` does."""
        swapped = self.batch_first and query.ndim == 3
        projected = [self.get_submodule(name)(given) for name, given in zip(_PROJECTIONS, (query, key, value), strict=True)]
        q, k, v = (part.transpose(0, 1) if swapped else part for part in projected)
        eye = torch.eye(self.embed_dim, dtype=q.dtype, device=q.device)
        outputs, weights = functional.multi_head_attention_forward(
            *(q, k, v, self.embed_dim, self.num_heads, None, None, self.bias_k, self.bias_v, self.add_zero_attn, 0.0, eye, None),
            training=False,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=True,
            q_proj_weight=eye,
            k_proj_weight=eye,
            v_proj_weight=eye,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return self.out_proj(outputs.transpose(0, 1) if swapped else outputs), weights


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Where the weight or the bias of a projection lies.

    Attributes:
        name: of the parameter of the attention.
        original: that parameter.
        rows: its rows that belong to the projection.
    """

    name: str
    original: Tensor
    rows: slice

    @property
    def part(self) -> Tensor:
        """What belongs to the projection, in the memory of the parameter."""
        return self.original[self.rows]


@contextmanager
def unrolled(model: nn.Module) -> Generator[dict[str, Slice]]:
    """Puts an `UnrolledAttention` in the place of each attention in a model, and the attention back at the end.

    Subclasses, attention with hooks of its own and the model itself are left alone.

    Yields:
        Canonical name of each projection's weight and bias -> where it lies in the attention's parameters.
    """
    paths = canonical_paths(model)
    replaced: dict[nn.Module, UnrolledAttention] = {}
    places: list[tuple[nn.Module, str, nn.Module]] = []
    slices: dict[str, Slice] = {}
    for path, module in list(model.named_modules()):
        if path and type(module) is nn.MultiheadAttention and not (module._forward_hooks or module._forward_pre_hooks):
            replaced[module] = UnrolledAttention(module)
            slices |= _slices(module, paths[path])
    try:
        for parent in list(model.modules()):
            for key, child in parent._modules.items():
                if child in replaced:
                    places.append((parent, key, child))
                    parent._modules[key] = replaced[child]
        yield slices
    finally:
        for parent, key, child in places:
            parent._modules[key] = child


def joined_masks(masks: Mapping[str, Tensor], slices: Mapping[str, Slice]) -> dict[str, Tensor]:
    """Puts masks of projections together to masks of the attention's parameters, True where there is none."""
    joined: dict[str, Tensor] = {}
    for name, mask in masks.items():
        place = slices.get(name)
        if place is None:
            joined[name] = mask
        else:
            whole = joined.setdefault(place.name, torch.ones_like(place.original, dtype=torch.bool))
            whole[place.rows] = mask
    return joined


def _slices(attention: nn.MultiheadAttention, path: str) -> dict[str, Slice]:
    """Lists where the weight and the bias of each projection lie, by the names that they have in an `UnrolledAttention` at a path."""
    slices: dict[str, Slice] = {}
    bias = attention._parameters.get("in_proj_bias")
    for index, projection in enumerate(_PROJECTIONS):
        rows = slice(index * attention.embed_dim, (index + 1) * attention.embed_dim)
        separate = attention._parameters.get(f"{projection}_weight")
        if separate is not None:
            slices[f"{path}.{projection}.weight"] = Slice(name=f"{path}.{projection}_weight", original=separate, rows=slice(None))
        else:
            slices[f"{path}.{projection}.weight"] = Slice(name=f"{path}.in_proj_weight", original=attention.in_proj_weight, rows=rows)
        if bias is not None:
            slices[f"{path}.{projection}.bias"] = Slice(name=f"{path}.in_proj_bias", original=bias, rows=rows)
    return slices
