"""The pruning of a network between regularised training and fine-tuning."""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import torch
from torch import Tensor, nn

from ellzero.params import apply_masks_, count_nonzeros, everything, masks_from_zeros, select_parameters
from ellzero.pruning import Evidence, Tamade, magnitude_masks, random_gradient
from ellzero.surgery import fold_
from ellzero.training.batches import Batch, Batches, LossFn, epoch_batches, mean_loss
from ellzero.training.distill import Recorder
from ellzero.training.file_size import prune_smallest_to_fit_, prune_to_fit_, weight_bits
from ellzero.training.plan import FinalPrune, Truncate
from ellzero.training.task import Task
from ellzero.types import Masks, Params


class CollapseError(ValueError):
    """A whole layer was pruned, so that the output does not depend on the input."""


@torch.no_grad()
def scores(params: Params, optimizer: torch.optim.Optimizer, power: float, *, priced: bool = False) -> dict[str, Tensor]:
    """Computes the scores by which weights are ranked: |w| * v^power, v Adam's second moment of the gradient.

    The loss rises by about the square of a weight when it is pruned. So where weights are `priced`, the score is divided by the square root
    of the bits that the weight takes in a file: the ranking is then by loss per bit.

    Raises:
        ValueError: `power` is not 0 and the optimizer keeps no second moments.
    """
    saliencies = _saliencies(params, optimizer, power)
    if not priced:
        return saliencies
    return {name: score / weight_bits(score != 0).sqrt().to(score) for name, score in saliencies.items()}


def _saliencies(params: Params, optimizer: torch.optim.Optimizer, power: float) -> dict[str, Tensor]:
    if power == 0:
        return {name: parameter.detach().abs() for name, parameter in params.items()}
    saliencies: dict[str, Tensor] = {}
    for name, parameter in params.items():
        moment = optimizer.state.get(parameter, {}).get("exp_avg_sq")
        if moment is None:
            raise ValueError(f"power={power} ranks by Adam's second moments, and the optimizer keeps none for {name}: use power=0")
        saliencies[name] = parameter.detach().abs() * moment.pow(power)
    return saliencies


def truncate_(params: Params, rule: Truncate, optimizer: torch.optim.Optimizer) -> None:
    """Keeps the `rule.keep` scalars of the largest scores, ties by index."""
    apply_masks_(params, magnitude_masks(scores(params, optimizer, rule.power, priced=rule.priced), keep=rule.keep))


def grown_masks(params: Params, loss: Callable[[Batch], Tensor], batches: Iterable[Batch], fraction: float) -> dict[str, Tensor]:
    """Builds masks that admit the non-zeros and, of the rest, the weights with the largest gradients: `fraction` times the non-zeros.

    Gradients of `loss` are summed over the batches; `.grad` is None afterwards.
    """
    masks = masks_from_zeros(params)
    count = round(fraction * sum(int(mask.sum()) for mask in masks.values()))
    if count == 0:
        return masks
    for parameter in params.values():
        parameter.grad = None
    for batch in batches:
        loss(batch).backward()
    gradients = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.abs().masked_fill(masks[name], 0)
        for name, parameter in params.items()
    }
    for parameter in params.values():
        parameter.grad = None
    grown = magnitude_masks(gradients, keep=count)
    return {name: mask | grown[name] for name, mask in masks.items()}


def cut_(model: nn.Module, rule: FinalPrune, optimizer: torch.optim.Optimizer, task: Task, size: Callable[[], int]) -> None:
    """Applies the final mask: exactly `rule.keep` scalars, or what fits into `rule.limit` bytes, or what TAMADE tolerates.

    Weights are ranked by `scores`, unless the recipe has a pruning rule of its own.

    Args:
        model: the network as it trains.
        rule: what the mask is to keep.
        optimizer: its second moments may enter the ranking.
        task: data, losses and recipe.
        size: codes the network in its present state and returns the number of bytes.

    Raises:
        ValueError: the file is too large without any weight, or a user's pruning rule keeps more weights than it was asked to.
    """
    selected = select_parameters(model, task.recipe.select)
    chooser = rule.rule or Tamade(rule.accept)

    def evaluate(network: nn.Module) -> float:
        return mean_loss(network, task.loss_fn, task.accept_on)

    evidence = Evidence(
        model=model, batches=lambda: epoch_batches(task.train, 0), loss=task.loss_fn, evaluate=evaluate, select=task.recipe.select
    )
    if rule.limit is not None:
        if rule.rule is None:
            prune_smallest_to_fit_(selected, scores(selected, optimizer, rule.power, priced=rule.priced), size, rule.limit)
            return

        def masks(count: int) -> Masks:
            with torch.enable_grad():
                return chooser.masks(selected, evidence, count)

        prune_to_fit_(selected, masks, count_nonzeros(selected.values()), size, rule.limit)
    elif rule.keep is not None and rule.rule is None:
        truncate_(selected, Truncate(keep=rule.keep, power=rule.power, priced=rule.priced), optimizer)
    else:
        chosen = chooser.masks(selected, evidence, rule.keep)
        count = sum(int(torch.count_nonzero(mask)) for mask in chosen.values())
        if rule.keep is not None and count > rule.keep:
            raise ValueError(f"{chooser} keeps {count} weights, and at most {rule.keep} were asked for")
        apply_masks_(selected, chosen)


@torch.no_grad()
def example_input(model: nn.Module, loss_fn: LossFn, train: Batches) -> Tensor | None:
    """Returns a few samples of the model's input; None where it takes several inputs, keyword arguments, or indices."""
    recorder = Recorder(model)
    training = model.training
    model.eval()
    try:
        loss_fn(recorder, next(iter(epoch_batches(train, 0))))
    finally:
        model.train(training)
    args, kwargs = recorder.arguments
    if kwargs or len(args) != 1 or not isinstance(args[0], Tensor) or not args[0].is_floating_point():
        return None
    return args[0][:4].detach().clone()


def drop_spurious_(model: nn.Module, loss_fn: LossFn, train: Batches) -> None:
    """Sets to 0 the weights that random gradient pruning proves to be without influence (section 2.2.3), regularised or not."""
    _drop_(model, loss_fn, train, batches=2, draws=3, silent=False)


def drop_silent_(model: nn.Module, loss_fn: LossFn, train: Batches) -> None:
    """Sets to 0 the weights that some batches of training inputs never reach, such as those of pixels that are always blank.

    A proximal step is 0 where no gradient ever came (see `step_sizes`), so it would leave those weights for ever at their initial values,
    which are large. Weights that other inputs do reach grow again.
    """
    _drop_(model, loss_fn, train, batches=20, draws=1, silent=True)


def _drop_(model: nn.Module, loss_fn: LossFn, train: Batches, *, batches: int, draws: int, silent: bool) -> None:
    def forward(network: nn.Module, batch: Batch) -> object:
        recorder = Recorder(network)
        loss_fn(recorder, batch)
        output = recorder.output
        return output if isinstance(output, Tensor | Mapping | tuple | list) else vars(output)

    given = list(islice(epoch_batches(train, 0), batches))
    masks = random_gradient(model, given, forward=forward, select=everything, draws=draws, silent=silent)
    apply_masks_(select_parameters(model, everything), masks)


def fold_constants_(model: nn.Module, example: Tensor | None) -> None:
    """Folds units that have become constant into the next layer's biases, where the network can be traced."""
    if example is None:
        return
    try:
        fold_(model, example)
    except ValueError:
        # A network that cannot be traced keeps its constant units: its function is the same, with more non-zeros than necessary.
        return


def require_alive(params: Params) -> None:
    """Checks that something is left in every layer.

    Raises:
        CollapseError: a weight matrix or kernel is all zero; the message names it.
    """
    for name, parameter in params.items():
        if parameter.ndim >= 2 and not bool(torch.count_nonzero(parameter.detach())):
            raise CollapseError(
                f"everything in {name} was pruned, so the output no longer depends on the input: lower alpha or ask for more non-zeros"
            )
