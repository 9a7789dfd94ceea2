"""When and how PMMP's variables move: with theta, in turn with it, or at once to their minimum."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from ellzero.methods.pmmp.collapse import warn_of_collapse
from ellzero.methods.pmmp.formulas import Block, ascents_into_, descents_into_, differences_into_, exact_gamma
from ellzero.methods.pmmp.state import PMMPState, ascend_, block_of, descend_
from ellzero.types import Params

# Temporaries of the workspace: what is recorded before the optimizer's step lies in the last three until after it.
_DIFFERENCES, _ROOM, _FOR_W, _FOR_GAMMA, _FOR_U = range(5)


@dataclass(frozen=True, kw_only=True)
class Round:
    """The hyperparameters of one step.

    Attributes:
        alpha: price of a weight.
        multiplier: m.
        ascends: whether u is moved.
        rate: learning rate of all variables; None for the optimizer's.
        step: optimizer steps done.
    """

    alpha: float
    multiplier: float
    ascends: bool
    rate: float | None
    step: int

    def rates(self, params: Params, state: PMMPState) -> list[float]:
        """Returns a learning rate for each parameter.

        Raises:
            ValueError: a parameter's learning rate is not known.
        """
        if self.rate is not None:
            return [self.rate] * len(params)
        missing = [name for name in params if name not in state.rates]
        if missing:
            raise ValueError(f"no learning rate is known for the auxiliary variables of {missing[0]}: attach PMMP, or pass lr=")
        return [state.rates[name] for name in params]


@runtime_checkable
class Updates(Protocol):
    """A way to move w, gamma and u around the optimizer's step on theta."""

    def note_(self, params: Params, state: PMMPState, current: Round) -> None:
        """Records what is needed of the point before the step, in temporaries; moves nothing."""
        ...

    def move_(self, params: Params, state: PMMPState, current: Round) -> None:
        """Moves the variables after the step."""
        ...


@dataclass(frozen=True, kw_only=True)
class Simultaneous:
    """Moves all four variables by one step of Adam from the same point, theta, w and gamma down, u up, as the authors' experiments did."""

    def note_(self, params: Params, state: PMMPState, current: Round) -> None:
        """Records the gradients in w, gamma and u before theta moves."""
        _note_descents_(params, state, current)
        if current.ascends:
            # `add_gradient_` has left the differences there.
            ascents_into_(
                _room(params, state, _FOR_U), _room(params, state, _DIFFERENCES), _block(params, state), multiplier=current.multiplier
            )

    def move_(self, params: Params, state: PMMPState, current: Round) -> None:
        """Moves w, gamma and u along the recorded gradients."""
        params = _pending_(params, state)
        if not params:
            return
        variables, rates, room = state.every(params), current.rates(params, state), _room(params, state, _ROOM)
        descend_(variables, _room(params, state, _FOR_W), _room(params, state, _FOR_GAMMA), rates, room)
        if current.ascends:
            ascend_(variables, _room(params, state, _FOR_U), rates, room)
        warn_of_collapse(params, state, alpha=current.alpha, multiplier=current.multiplier, step=current.step)


@dataclass(frozen=True, kw_only=True)
class Alternating:
    """Descends theta, w and gamma together for some steps, then ascends u once, at the point they have reached (section 2.2.1).

    Attributes:
        descents: steps down per step up.
    """

    descents: int = 1

    def __post_init__(self) -> None:
        if self.descents < 1:
            raise ValueError(f"Alternating(descents={self.descents}): expected at least 1")

    def note_(self, params: Params, state: PMMPState, current: Round) -> None:
        """Records the gradients in w and gamma before theta moves."""
        _note_descents_(params, state, current)

    def move_(self, params: Params, state: PMMPState, current: Round) -> None:
        """Moves w and gamma along the recorded gradients, and u where it is its turn."""
        params = _pending_(params, state)
        if not params:
            return
        variables = state.every(params)
        descend_(
            variables,
            _room(params, state, _FOR_W),
            _room(params, state, _FOR_GAMMA),
            current.rates(params, state),
            _room(params, state, _ROOM),
        )
        if current.ascends:
            turn = zip(params.items(), variables, strict=True)
            _ascend_here_(dict(item for item, own in turn if int(own.moments_gamma.steps) % self.descents == 0), state, current)
        warn_of_collapse(params, state, alpha=current.alpha, multiplier=current.multiplier, step=current.step)


@dataclass(frozen=True, kw_only=True)
class ExactGates:
    """Sets w and gamma to the minimum for the present theta and u, w = theta and a hard threshold, then ascends u by a step of Adam.

    Theta then feels `2 m u theta` where its gate is closed and nothing where it is open.
    """

    def note_(self, params: Params, state: PMMPState, current: Round) -> None:
        """Records nothing."""

    def move_(self, params: Params, state: PMMPState, current: Round) -> None:
        """Moves w and gamma to their minimum, and u up."""
        for theta, own in zip(params.values(), state.every(params), strict=True):
            own.w.copy_(theta)
            own.gamma.copy_(exact_gamma(theta.detach(), own.u, alpha=current.alpha, multiplier=current.multiplier))
        if current.ascends:
            _ascend_here_(params, state, current)
        warn_of_collapse(params, state, alpha=current.alpha, multiplier=current.multiplier, step=current.step)


def _note_descents_(params: Params, state: PMMPState, current: Round) -> None:
    for_w, for_gamma = _room(params, state, _FOR_W), _room(params, state, _FOR_GAMMA)
    descents_into_(for_w, for_gamma, _block(params, state), alpha=current.alpha, multiplier=current.multiplier)
    state.pending.update(params)


def _pending_(params: Params, state: PMMPState) -> dict[str, Tensor]:
    """Returns, once, the parameters whose gradients were recorded."""
    noted = {name: theta for name, theta in params.items() if name in state.pending}
    state.pending.difference_update(noted)
    return noted


def _ascend_here_(params: Mapping[str, Tensor], state: PMMPState, current: Round) -> None:
    if params:
        differences, for_u = _room(params, state, _DIFFERENCES), _room(params, state, _FOR_U)
        block = _block(params, state)
        differences_into_(differences, block)
        ascents_into_(for_u, differences, block, multiplier=current.multiplier)
        ascend_(state.every(params), for_u, current.rates(params, state), _room(params, state, _ROOM))


def _block(params: Params, state: PMMPState) -> Block:
    return block_of(params, state.every(params))


def _room(params: Params, state: PMMPState, slot: int) -> list[Tensor]:
    return state.workspace.like(params, slot)
