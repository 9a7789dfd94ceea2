"""Pruning rules as objects: weights, and where a rule asks for them batches and a loss, to masks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from ellzero.params import Selector, weights
from ellzero.pruning._tamade import tamade
from ellzero.pruning.accept import Accept, Within
from ellzero.pruning.magnitude import magnitude_masks
from ellzero.types import Masks, Params


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a rule may look at beside the weights.

    Attributes:
        model: the network, which a rule leaves as it finds it.
        batches: makes an iterable of training batches; empty where there are none.
        loss: (model, batch) -> mean loss in nats, differentiable.
        evaluate: model -> the mean loss that decides what is tolerable, in nats.
        select: the rule by which the weights were selected.
    """

    model: nn.Module
    batches: Callable[[], Iterable[Any]]
    loss: Callable[[nn.Module, Any], Tensor]
    evaluate: Callable[[nn.Module], float]
    select: Selector = weights


@runtime_checkable
class PruningRule(Protocol):
    """Decides what becomes zero: `lz.Recipe(rule=...)` uses one in the place of magnitude and TAMADE."""

    def masks(self, params: Params, evidence: Evidence, keep: int | None) -> Masks:
        """Chooses the weights that stay.

        Args:
            params: canonical name -> weight.
            evidence: network, batches and losses.
            keep: how many weights may stay where a target says so; None leaves it to the rule.

        Returns:
            Canonical name -> True where a weight stays, at most `keep` of them where that is given.
        """
        ...


@dataclass(frozen=True)
class Tamade:
    """Keeps as few of the largest weights as `accept` tolerates, or exactly as many as are asked for (section 2.2.4, appendix E).

    Attributes:
        accept: what is tolerable.
    """

    accept: Accept = field(default_factory=lambda: Within(relative=0.01))

    def masks(self, params: Params, evidence: Evidence, keep: int | None) -> Masks:
        """Ranks by magnitude; searches for the count where none is given."""
        if keep is not None:
            return magnitude_masks(params, keep=keep)
        return tamade(evidence.model, evidence.evaluate, accept=self.accept, select=evidence.select)


@dataclass(frozen=True)
class Share:
    """Keeps the largest weights, a given share of all that are selected.

    Attributes:
        kept: the share that stays, above 0 and at most 1.
    """

    kept: float

    def __post_init__(self) -> None:
        if not 0 < self.kept <= 1:
            raise ValueError(f"Share({self.kept}) is the share of the weights that stays: expected above 0 and at most 1")

    def masks(self, params: Params, evidence: Evidence, keep: int | None) -> Masks:
        """Ranks by magnitude; a count that is given is used in the place of the share."""
        count = round(self.kept * sum(parameter.numel() for parameter in params.values())) if keep is None else keep
        return magnitude_masks(params, keep=max(1, count))
