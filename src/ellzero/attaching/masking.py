"""Masks in force: checked once, stored in the form that is cheapest to apply at every step."""

import math
from collections.abc import Collection, Mapping
from itertools import compress

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from ellzero.attaching.mask_kernels import Places, addresses, is_like, keep_, pull_and_keep_
from ellzero.attaching.survivors import Survivors
from ellzero.distributed import canonical_names, known_name
from ellzero.methods.protocol import ExponentialPull, Method
from ellzero.types import At, Masks, Params

_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers as wide as a floating point number, by bytes."""

_LOG2_E = math.log2(math.e)

_OPTIMIZERS = 8
"""Sets of parameters whose places are kept at once: one for each optimizer, or for each choice of what requires a gradient."""


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
        masks: canonical name -> boolean mask, True where the weight is kept; there may be none.
        method: what regularises; None where masks alone are in force.

    Attributes:
        survivors: where the kept weights of sparse masks lie.
    """

    def __init__(self, masks: Masks, method: Method | None = None) -> None:
        # Checked once: a check against a protocol takes longer than a mask.
        self._method = method
        self._pulls = method if isinstance(method, ExponentialPull) else None
        # A mask that keeps everything costs nothing.
        self._masks = {name: mask for name, mask in masks.items() if not bool(mask.all())}
        self._bytes = {name: mask.flatten().contiguous() for name, mask in self._masks.items() if mask.is_cpu}
        self._mask_places = {name: (mask.data_ptr(), mask.numel()) for name, mask in self._bytes.items()}
        self._gradients: dict[int, Places] = {}
        self._weights: dict[int, Places] = {}
        self._factors: dict[str, Tensor] = {}
        self.survivors = Survivors(self._masks, method)

    def add_gradient_(self, params: Params, state: nn.Module, at: At, scale: float) -> list[str]:
        """Does what `method.add_gradient_` does and sets gradients of pruned weights to 0, where both together are cheaper.

        Returns:
            The names of the parameters that this was done for; where there are none, the penalty is yet to be added.

        Raises:
            TypeError: a gradient is sparse.
        """
        pull = None if self._pulls is None else self._pulls.exponential_pull(at)
        if pull is None:
            return self.survivors.add_gradient_(params, state, at, scale)
        places = self._gradients.get(id(params))
        if places is None or not places.hold(params):
            places = _put(self._gradients, params, Places(params, self._mask_places, self._masks))
        gradients = [gradient for weight in places.weights if is_like(gradient := weight.grad, weight)]
        names, starts, masks, sizes, rest = places.names, places.starts, places.masks, places.sizes, places.others
        if len(gradients) < len(names):
            taken = [is_like(weight.grad, weight) for weight in places.weights]
            starts, masks, sizes = starts[taken], masks[taken], sizes[taken]
            names = list(compress(names, taken))
            rest = {name: weight for name, weight in params.items() if name not in names}
        if names:
            price, decay = pull
            increment_version(gradients)
            own = addresses([gradient.data_ptr() for gradient in gradients])
            pull_and_keep_(own, starts, masks, sizes, np.float32(price * scale), np.float32(-decay * _LOG2_E))
            if rest:
                assert self._method is not None
                self._method.add_gradient_(rest, state, at, scale)
        return names

    def apply_to_gradients_(self, params: Params, *, but: Collection[str] = ()) -> None:
        """Sets the dense gradients that exist to 0 where their weight is pruned; those named in `but` are left out."""
        names = self._masks.keys() - but if but else self._masks
        if names:
            tensors = {name: params[name].grad for name in names if name in params}
            strided = {name: grad for name, grad in tensors.items() if grad is not None and grad.layout is torch.strided}
            self._apply_(Places(strided, self._mask_places, self._masks))

    def apply_to_weights_(self, params: Params) -> None:
        """Sets pruned weights to 0."""
        if not self._masks:
            return
        places = self._weights.get(id(params))
        if places is None or not places.hold(params):
            places = _put(self._weights, params, Places(params, self._mask_places, self._masks, self._masks))
        self._apply_(places)

    @torch.no_grad()
    def _apply_(self, places: Places) -> None:
        if places.names:
            increment_version(places.weights)
            keep_(places.starts, places.masks, places.sizes)
        if places.others:
            # A product of numbers would keep NaN and make -0; one of their bits as whole numbers does neither.
            bits = [tensor.view(_WHOLE[tensor.element_size()]) for tensor in places.others.values()]
            torch._foreach_mul_(bits, [self._factor(name, whole) for name, whole in zip(places.others, bits, strict=True)])

    def _factor(self, name: str, whole: Tensor) -> Tensor:
        """Returns a mask as ones and zeros, of the type and in the place of a tensor of whole numbers."""
        factor = self._factors.get(name)
        if factor is None or factor.device != whole.device or factor.dtype != whole.dtype:
            factor = self._factors[name] = self._masks[name].to(whole.device, whole.dtype)
        return factor


def _put(known: dict[int, Places], params: Params, places: Places) -> Places:
    """Keeps places for the next step; they hold the parameters, so that no other dictionary gets the same id."""
    if len(known) >= _OPTIMIZERS:
        known.clear()
    known[id(params)] = places
    return places


def _listed(params: Params) -> str:
    return ", ".join(list(params)[:5]) + (", ..." if len(params) > 5 else "")
