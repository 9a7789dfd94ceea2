"""The contract of a method: what it adds to the data loss, and what it does after the optimizer's step.

A method is a frozen dataclass of hyperparameters. What it optimises beside the model is an `nn.Module`, its state. It never sees
data. A member that does nothing is one of the small functions at the end of this file, assigned in the class body.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import nn

from ellzero.methods.workspace import NoState
from ellzero.types import At, Masks, Params, Scalar


@dataclass(frozen=True, kw_only=True)
class Laws:
    """The laws a penalty obeys; the common test table checks each one that is declared.

    Attributes:
        linear_in_alpha: doubling alpha doubles the penalty.
        zero_at_zero: the penalty of all-zero parameters is 0.
        separable: the penalty is a sum over scalars, each term of one scalar only.
    """

    linear_in_alpha: bool = True
    zero_at_zero: bool = True
    separable: bool = True


@runtime_checkable
class Method(Protocol):
    """A way to make parameters sparse."""

    @property
    def laws(self) -> Laws:
        """The laws that the penalty obeys."""
        ...

    @property
    def proximal(self) -> bool:
        """Whether the penalty acts after the step, in the optimizer's own metric, instead of in the gradient."""
        ...

    def init(self, params: Params) -> nn.Module:
        """Creates the auxiliary variables, an empty module where there are none."""
        ...

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        """Computes what is added to the data loss: pure, differentiable; the definition, and the reference in tests."""
        ...

    def add_gradient_(self, params: Params, state: nn.Module, at: At, scale: float = 1.0) -> None:
        """Adds the penalty's gradient, times `scale`, to every `.grad`, in closed form by foreach operations.

        Creates a gradient where a parameter has none. `scale` is a gradient scaler's factor where the optimizer unscales by
        itself; 1 otherwise. A proximal method adds nothing.
        """
        ...

    def after_step_(self, params: Params, state: nn.Module, steps: Params, at: At) -> None:
        """Thresholds and clamps after the optimizer's step.

        `steps` is the optimizer's own step per element, of each parameter's shape, not to be written to; it is computed, and
        not empty, only where `proximal` is true.
        """
        ...

    def masks_(self, params: Params, state: nn.Module, at: At) -> Masks | None:
        """Returns new masks where the method changes them while training, None otherwise."""
        ...


@runtime_checkable
class FollowsRates(Protocol):
    """A state that moves its variables by itself, at the learning rates of the optimizer that moves the parameters."""

    def follow_rates_(self, rates: Mapping[str, float]) -> None:
        """Takes note of the learning rate of each parameter in the step just done; called before `after_step_`."""
        ...


@runtime_checkable
class MaySilence(Protocol):
    """A method whose penalty may be 0 by intention, so that nobody is to be warned of it."""

    @property
    def silent(self) -> bool:
        """Whether it is."""
        ...


def no_state(self: object, params: Params) -> nn.Module:
    """Returns an empty state."""
    return NoState()


def no_gradient_(self: object, params: Params, state: nn.Module, at: At, scale: float = 1.0) -> None:
    """Adds nothing."""


def no_after_step_(self: object, params: Params, state: nn.Module, steps: Params, at: At) -> None:
    """Does nothing."""


def no_masks_(self: object, params: Params, state: nn.Module, at: At) -> Masks | None:
    """Changes no mask."""
    return None


def require_object(name: str, value: object, protocol: type) -> None:
    """Checks that an option which takes an object was given one: a class has the same members, and fails later or not at all.

    Args:
        name: the option, for the message.
        value: what was given.
        protocol: what it has to be.

    Raises:
        TypeError: it is a class, or lacks the protocol's members.
    """
    if isinstance(value, type):
        raise TypeError(f"{name}={value.__name__} is a class: expected an object, such as {value.__name__}()")
    if not isinstance(value, protocol):
        raise TypeError(f"{name}={value!r}: expected an object that is a {protocol.__name__}, got {type(value).__name__}")
