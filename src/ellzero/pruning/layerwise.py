"""Layerwise pruning (appendix C.5): every layer keeps its outputs on given inputs, without labels or training.

The paper minimises, for the weights w and gates gamma of one layer (eq. 38),

    E_z ||Y - (w z) X||^2 + alpha sum gamma,    Y = the layer's outputs before pruning on inputs X,

by gradient descent. At its minimum all gates are 0 or 1, and with the gates given the weights are a least-squares solution; so here the
gates are found by elimination and the weights exactly (`least_squares`). The paper then sets the layer's weights to w, a slip for w gamma.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from ellzero.distributed import canonical_paths
from ellzero.params import Selector, select_parameters, weights
from ellzero.pruning.attention import Slice, UnrolledAttention, joined_masks, unrolled
from ellzero.pruning.layer_problem import Allocation, Budget, LayerProblem, choose_, first_samples, num_samples
from ellzero.pruning.regression import Regression, add_up_, weights_and_bias
from ellzero.surgery.batch_statistics import MAX_SHIFT, BatchStatistics
from ellzero.surgery.calls import Forward, call_model, evaluating, list_batches
from ellzero.surgery.known_modules import known, shared_parameters
from ellzero.surgery.layer_matrices import AnyMatrixLayer, Transposed, bias_of
from ellzero.types import Masks


@dataclass(frozen=True, kw_only=True)
class PrunedLayer:
    """What happened to a layer.

    Attributes:
        name: its name.
        weights: scalars that could be pruned.
        zeros: how many of them are 0 now.
        relative_error: squared error of its outputs on the inputs given, over the sum of their squares, before later layers' inputs
            were taken into account.
    """

    name: str
    weights: int
    zeros: int
    relative_error: float


@dataclass(frozen=True, kw_only=True)
class LeftParameter:
    """A parameter that was selected and not pruned.

    Attributes:
        name: its name.
        weights: its scalars.
        reason: why it was left as it is.
    """

    name: str
    weights: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class LayerwisePruning:
    """The result of `layerwise_prune_`.

    Attributes:
        masks: name -> True where a weight is kept, for every weight and bias of the layers that were pruned.
        layers: each layer that was pruned, in the order in which the network calls them.
        left: the selected parameters that were left as they are, and why.
    """

    masks: Masks
    layers: tuple[PrunedLayer, ...]
    left: tuple[LeftParameter, ...] = ()

    @property
    def zeros(self) -> int:
        """The number of selected scalars that are 0 in the layers that were pruned."""
        return sum(layer.zeros for layer in self.layers)

    @property
    def weights(self) -> int:
        """The number of selected scalars, of all layers, pruned or left."""
        return sum(layer.weights for layer in self.layers) + sum(parameter.weights for parameter in self.left)

    @property
    def share(self) -> float:
        """The fraction of all selected scalars that are 0 in the layers that were pruned."""
        return self.zeros / self.weights


def layerwise_prune_(
    model: nn.Module,
    inputs: Tensor | Iterable[Any],
    *,
    zeros: float | None = None,
    alpha: float | None = None,
    select: Selector = weights,
    allocate: Allocation = Allocation.EVENLY,
    damping: float = 1e-4,
    per_feature: int | None = 50,
    forward: Forward | None = None,
    seed: int = 0,
) -> LayerwisePruning:
    """Prunes the linear layers and convolutions of a trained model in place so that each keeps its outputs on unlabelled inputs.

    Convolutions may have groups, one to three dimensions, and be transposed; of `nn.MultiheadAttention` each projection is a layer,
    called `q_proj`, `k_proj`, `v_proj` and `out_proj`. What else is selected is left as it is and listed in the result with the reason:
    layers of other kinds, recurrent ones for example, those whose weights are shared or computed from other tensors, and those that no
    input reaches.

    From the last layer to the first, each layer's weights are removed one by one, always the one that costs its outputs least after the
    others have adapted; random gradient pruning after each layer frees what nothing reads any more. Then, from the first layer to the
    last, the weights that are left are fitted again: to the dense network's outputs, on the inputs that the pruned network really gives.
    A bias is the weight of an input that is always 1. Normalisation layers run as in eval mode and stay as they are.

    Args:
        model: the model; weights and biases of its linear layers and convolutions are overwritten.
        inputs: a batch, or an iterable of batches (tensors, tuples of positional arguments, mappings); a few hundred samples serve.
        zeros: the fraction of the weights of the pruned layers that become 0; `share` of the result is that of all selected weights.
        alpha: instead of `zeros`, the price of a weight in the paper's objective (eq. 38), in units of the layer's squared error, summed
            over all inputs and positions. The minimum over all masks is searched for (`pruning/priced.py`) and not always found.
        select: which weights (and biases) may be pruned; biases that may not are still fitted.
        allocate: how zeros are divided among layers.
        damping: added to each Gram matrix, as a fraction of the mean of its diagonal; holds fitted weights near the given ones.
        per_feature: takes about so many positions of images per weight of a row, which is faster; None takes all.
        forward: how to call the model on a batch.
        seed: draws positions.

    Returns:
        The masks, what became of each layer, and what was left.

    Raises:
        ValueError: not exactly one of `zeros` and `alpha`, or out of range; no inputs, or NaN among what enters a layer; nothing selected
            that can be pruned; a transposed convolution that is called with `output_size`.

    Warns:
        UserWarning: the inputs are not like those that batch normalisation remembers, as where they are scaled otherwise than in training.
    """
    if (zeros is None) == (alpha is None):
        raise ValueError(f"pass exactly one of zeros= and alpha=, got zeros={zeros} and alpha={alpha}")
    if not 0 <= (zeros or 0) < 1 or not (alpha or 0) >= 0 or not damping > 0:
        raise ValueError(f"zeros={zeros}, alpha={alpha}, damping={damping}: expected 0 <= zeros < 1, alpha >= 0, damping > 0")
    batches = list_batches(inputs)
    call = forward or call_model
    samples = sum(num_samples(batch) for batch in batches)
    if not samples:
        raise ValueError("inputs hold no sample: every batch is empty")
    generator = torch.Generator().manual_seed(seed)
    selected = select_parameters(model, select)
    with evaluating(model), unrolled(model) as slices:
        layers, left = _layers(model, selected, slices)
        dense = [Regression.empty(name, layer) for name, (layer, _) in layers.items()]
        with BatchStatistics(model) as statistics:
            order = add_up_(dense, model, batches, forward=call, per_feature=per_feature, num_samples=samples, generator=generator)
        statistics.warn_if_far(MAX_SHIFT, stacklevel=2)
        for regression in dense:
            if not bool(regression.gram.isfinite().all()):
                raise ValueError(f"what enters {regression.name} holds NaN or infinity, or is too large to be squared: look at the inputs")
        for name in layers.keys() - set(order):
            left |= dict.fromkeys(_own_parameters(name, layers[name][0], slices), "no input given reaches it as a layer")
        pruned = {own for name in order for own in _own_parameters(name, layers[name][0], slices)}
        remaining = _left(selected, pruned, left)
        if not order:
            raise ValueError(f"nothing that is selected can be pruned, {_listed(remaining)}: pass another select=")
        regressions = {regression.name: regression for regression in dense}
        relative = alpha is None and allocate is Allocation.TOGETHER
        problems = [LayerProblem(regressions[name], layers[name][1], damping, relative=relative) for name in order]
        budget = Budget(zeros=zeros, alpha=alpha, allocation=allocate)
        choose_(model, problems, budget, first_samples(batches[0]), forward=call, seed=seed)
        errors = [problem.relative_error for problem in problems]
        for problem in problems:
            now = Regression.empty(problem.regression.name, problem.layer)
            add_up_([now], model, batches, forward=call, targets=[problem.regression])
            problem.refit_(now, damping)
    return LayerwisePruning(
        masks=joined_masks({name: mask for problem in problems for name, mask in problem.masks().items()}, slices),
        layers=tuple(
            PrunedLayer(
                name=problem.regression.name,
                weights=int(problem.prunable.sum()) * len(problem.dense),
                zeros=int((~problem.mask & problem.prunable).sum()),
                relative_error=error,
            )
            for problem, error in zip(problems, errors, strict=True)
        ),
        left=remaining,
    )


_COMPUTED = "the weight is computed from other tensors"

_Layers = dict[str, tuple[AnyMatrixLayer, Bool[Tensor, " n"]]]


def _layers(model: nn.Module, selected: Mapping[str, Tensor], slices: Mapping[str, Slice]) -> tuple[_Layers, dict[int, str]]:
    """Lists the layers to prune by name, with the columns of each matrix that may be pruned, and why others' parameters are left."""
    chosen = {id(tensor) for tensor in selected.values()}
    shared, paths = shared_parameters(model), canonical_paths(model)
    layers: _Layers = {}
    left: dict[int, str] = {}
    for path, module in model.named_modules():
        own = _own_parameters(paths[path], module, slices)
        if not chosen & own.keys():
            continue
        if (
            reason := "it shares a parameter with another layer, which would change with it" if path in shared else _reason(module)
        ) is not None:
            left |= dict.fromkeys(own, reason)
        else:
            assert isinstance(module, AnyMatrixLayer)
            layers[paths[path]] = (module, _prunable(module, {leaf for key, leaf in own.items() if key in chosen}))
    return layers, left


def _own_parameters(path: str, module: nn.Module, slices: Mapping[str, Slice]) -> dict[int, str]:
    """Maps the identity of each parameter that a module owns to its name there; of a projection, of the parameter that it lies in."""
    own: dict[int, str] = {}
    for leaf, parameter in module.named_parameters(recurse=False):
        place = slices.get(f"{path}.{leaf}")
        own[id(parameter if place is None else place.original)] = leaf
    return own


def _reason(module: nn.Module) -> str | None:
    """Says why a module cannot be pruned; None where it can be."""
    if isinstance(module, ParametrizationList):
        return _COMPUTED
    if not isinstance(module, AnyMatrixLayer):
        kind = nn.MultiheadAttention if isinstance(module, UnrolledAttention) else type(module)
        return f"{kind.__name__} is no linear layer and no convolution"
    if not _is_known(module):
        return f"{type(module).__name__} has a forward of its own"
    return _COMPUTED if "weight" not in module._parameters else None


def _is_known(layer: AnyMatrixLayer) -> bool:
    if isinstance(layer, Transposed):
        return any(type(layer).forward is kind.forward for kind in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d))
    return known(layer)


def _prunable(layer: AnyMatrixLayer, chosen: Collection[str]) -> Bool[Tensor, " n"]:
    prunable = torch.full((weights_and_bias(layer).shape[1],), "weight" in chosen, device=layer.weight.device)
    if bias_of(layer) is not None:
        prunable[-1] = "bias" in chosen
    return prunable


def _left(selected: Mapping[str, Tensor], pruned: Collection[int], reasons: Mapping[int, str]) -> tuple[LeftParameter, ...]:
    """Lists the selected parameters that are not among those pruned."""
    return tuple(
        LeftParameter(name=name, weights=tensor.numel(), reason=reasons[id(tensor)])
        for name, tensor in selected.items()
        if id(tensor) not in pruned
    )


def _listed(left: Sequence[LeftParameter]) -> str:
    return "; ".join(f"{parameter.name}: {parameter.reason}" for parameter in left)
