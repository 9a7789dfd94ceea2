"""Masks in force: checked once, stored in the form that is cheapest to apply at every step."""

from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from ellzero.attaching.mask_kernels import FEW, SMALLEST, Floats, Rows, add_sign_and_keep_, fits, keep_, row_of
from ellzero.attaching.survivors import Survivors
from ellzero.distributed import canonical_names, known_name
from ellzero.methods.protocol import Method, SignGradient
from ellzero.types import At, Masks, Params

_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers as wide as a floating point number, by bytes."""


def checked_masks(masks: Masks, params: Params, aliases: Mapping[str, str], *, allow_empty_layers: bool = False) -> dict[str, Tensor]:
    """Checks masks against parameters and puts them under canonical names, tied tensors once.

    Args:
        masks: name -> tensor, True or 1 where the weight is kept; names of wrapped and compiled models are accepted.
        params: canonical name -> parameter.
        aliases: other canonical names of tied parameters -> the name in `params`.
        allow_empty_layers: accept a weight that is pruned altogether.

    Returns:
        Canonical name -> boolean mask on the parameter's device, a copy.

    Raises:
        ValueError: there are no masks; a name is unknown; a shape differs; a mask holds anything but 0 and 1; two masks of one tied
            tensor differ; a whole layer is pruned (biases excepted) and that is not allowed.
    """
    if not masks:
        raise ValueError("no masks were given, so nothing would be pruned")
    checked: dict[str, Tensor] = {}
    for given, mask in masks.items():
        name = known_name(given, {*params, *aliases})
        name = aliases.get(name, name)
        if name not in params:
            raise ValueError(f"no trainable parameter is named {name!r}: the masks belong to another model (here: {_listed(params)})")
        if mask.shape != params[name].shape:
            raise ValueError(f"the mask of {name} has shape {tuple(mask.shape)}, the parameter {tuple(params[name].shape)}")
        survives = mask.detach().to(params[name].device) != 0
        if mask.dtype != torch.bool and not torch.equal(survives.to(mask.dtype), mask.detach().to(survives.device)):
            raise ValueError(f"the mask of {name} holds values other than 0 and 1: pass scores > threshold, or weight != 0")
        if name in checked and not torch.equal(checked[name], survives):
            raise ValueError(f"{given} is tied to {name}, and their masks differ: give one mask for both")
        if not allow_empty_layers and survives.numel() and "bias" not in name.rsplit(".", 1)[-1] and not survives.any():
            raise ValueError(
                f"every weight of {name} is pruned, so nothing passes through that layer: prune less (a smaller alpha or a larger"
                " target), or pass allow_empty_layers=True if a path around it remains"
            )
        checked[name] = survives.clone()
    return checked


def revived(masks: Masks, params: Params) -> dict[str, int]:
    """Counts, by name, the pruned weights that are not 0 (NaN is not 0); names without any are left out."""
    counts = {name: int(torch.count_nonzero(params[name].detach()[~mask.to(params[name].device)])) for name, mask in masks.items()}
    return {name: count for name, count in counts.items() if count}


def parameters_for(module: nn.Module, masks: Masks) -> dict[str, Tensor]:
    """Finds the masked parameters in a copy of the model, trainable or not, under any wrapper.

    Raises:
        ValueError: a parameter is missing or has another shape.
    """
    names = canonical_names(module)
    present = {names[name]: parameter for name, parameter in module.named_parameters(remove_duplicate=False)}
    for name, mask in masks.items():
        if name not in present:
            raise ValueError(f"{type(module).__name__} has no parameter {name!r}: it is not a copy of the model (here: {_listed(present)})")
        if present[name].shape != mask.shape:
            raise ValueError(f"{name} has shape {tuple(present[name].shape)} in the copy, its mask {tuple(mask.shape)}")
    return {name: present[name] for name in masks}


class Keep:
    """Masks in the form that is cheapest in every step: bytes for the kernels, or ones and zeros as whole numbers where a parameter is.

    Args:
        masks: canonical name -> boolean mask, True where the weight is kept.
        method: what regularises; None where masks alone are in force.

    Attributes:
        survivors: where the kept weights of sparse masks lie.
    """

    def __init__(self, masks: Masks, method: Method | None = None) -> None:
        # Checked once: a check against a protocol takes longer than a mask.
        self._method = method
        self._signs = method if isinstance(method, SignGradient) else None
        # A mask that keeps everything costs nothing.
        self._masks = {name: mask for name, mask in masks.items() if not bool(mask.all())}
        self._bytes = {name: mask.flatten().numpy() for name, mask in self._masks.items() if mask.is_cpu}
        self._few = len(masks) <= FEW
        self._smallest = 1 if self._few else SMALLEST
        self._rows = Rows(self._smallest)
        self._factors: dict[str, Tensor] = {}
        self.survivors = Survivors(self._masks, method)

    def add_gradient_(self, params: Params, state: nn.Module, at: At, scale: float) -> list[str]:
        """Does what `method.add_gradient_` does and sets gradients of pruned weights to 0, where both together are cheaper.

        Returns:
            The names of the parameters that this was done for; where there are none, the penalty is yet to be added.

        Raises:
            TypeError: a gradient is sparse.
        """
        price = None if self._signs is None else self._signs.sign_price(at)
        if price is not None:
            return self._add_sign_(params, state, at, price, scale)
        return self.survivors.add_gradient_(params, state, at, scale)

    @torch.no_grad()
    def _add_sign_(self, params: Params, state: nn.Module, at: At, price: float, scale: float) -> list[str]:
        factor = np.float32(price * scale)
        done: list[str] = []
        rest: dict[str, Tensor] = {}
        for name, weight in params.items():
            gradient, mask = weight.grad, self._bytes.get(name)
            row = None if mask is None and not self._few else self._rows.of(name, weight)
            if row is None or gradient is None or not fits(gradient, self._smallest):
                rest[name] = weight
                continue
            if mask is None:
                mask = self._bytes[name] = np.ones(row.size, np.bool_)
            increment_version(gradient)
            add_sign_and_keep_(row_of(gradient), row, mask, factor)
            done.append(name)
        if done and rest:
            assert self._method is not None
            self._method.add_gradient_(rest, state, at, scale)
        return done

    def apply_to_gradients_(self, params: Params, *, but: Collection[str] = ()) -> None:
        """Sets the dense gradients that exist to 0 where their weight is pruned; those named in `but` are left out."""
        done = frozenset(but)
        names = [name for name in self._masks if name in params and name not in done]
        tensors = {name: grad for name in names if (grad := params[name].grad) is not None and grad.layout is torch.strided}
        self._apply_(tensors, {name: row_of(grad) if fits(grad, self._smallest) else None for name, grad in tensors.items()})

    def apply_to_weights_(self, params: Params) -> None:
        """Sets pruned weights to 0."""
        tensors = {name: params[name] for name in self._masks if name in params}
        self._apply_(tensors, {name: self._rows.of(name, weight) for name, weight in tensors.items()})

    @torch.no_grad()
    def _apply_(self, tensors: Params, rows: Mapping[str, Floats | None]) -> None:
        others: list[str] = []
        for name, row in rows.items():
            if row is None or name not in self._bytes:
                others.append(name)
            else:
                increment_version(tensors[name])
                keep_(row, self._bytes[name])
        if others:
            # A product of numbers would keep NaN and make -0; one of their bits as whole numbers does neither.
            bits = [tensors[name].view(_WHOLE[tensors[name].element_size()]) for name in others]
            torch._foreach_mul_(bits, [self._factor(name, whole) for name, whole in zip(others, bits, strict=True)])

    def _factor(self, name: str, whole: Tensor) -> Tensor:
        """Returns a mask as ones and zeros, of the type and in the place of a tensor of whole numbers."""
        factor = self._factors.get(name)
        if factor is None or factor.device != whole.device or factor.dtype != whole.dtype:
            factor = self._factors[name] = self._masks[name].to(whole.device, whole.dtype)
        return factor


def _listed(params: Params) -> str:
    return ", ".join(list(params)[:5]) + (", ..." if len(params) > 5 else "")
