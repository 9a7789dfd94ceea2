"""The contract of a method: what it adds to the data loss, and what it does after the optimizer's step.

A method is a frozen dataclass of hyperparameters. What it optimises beside the model is an `nn.Module`, its state. It never sees
data. A member that does nothing is one of the small functions at the end of this file, assigned in the class body.

`Method` is what every method has. Everything else a method can do is an optional member, in a protocol of its own below: nothing outside
a method's file asks for its class, or reads a field of it by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ellzero.methods.schedule import Hyperparameter
from ellzero.methods.workspace import NoState
from ellzero.types import At, Masks, Params, Scalar


@dataclass(frozen=True, kw_only=True)
class Laws:
    """The laws that a penalty obeys; the common test table checks those that are declared.

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
        """Creates the auxiliary variables; an empty module where there are none."""
        ...

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        """Computes what is added to the data loss, as a pure and differentiable function: the definition, and the reference in tests."""
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
        """Records the learning rate of each parameter in the step just done; called before `after_step_`."""
        ...


@runtime_checkable
class MaySilence(Protocol):
    """A method whose penalty may be 0 by intention: no warning is given that it has no effect, and alone it makes a dense baseline."""

    @property
    def silent(self) -> bool:
        """Whether the penalty is 0."""
        ...


@runtime_checkable
class HasStrength(Protocol):
    """A method whose pruning is set by a single number, which `target=lz.ErrorIncrease(...)` searches over and logs show."""

    @property
    def alpha(self) -> Hyperparameter:
        """The strength: the price of one weight, or of a unit of magnitude, in units of the data loss."""
        ...

    def with_alpha(self, alpha: float) -> Method:
        """Returns the same method with another constant strength."""
        ...


@runtime_checkable
class EndsOnGrid(Protocol):
    """A method under which weights end on logarithmic grids, so that a file holds them as they are."""

    def grids(self, state: nn.Module) -> Mapping[str, tuple[float, float]]:
        """Lists the smallest magnitude and the ratio of each parameter's grid, by canonical name."""
        ...


@runtime_checkable
class GradientOnSurvivors(Protocol):
    """A method whose gradient of a weight depends on that weight alone, so that it may be asked for the survivors of a mask only.

    `add_gradient_` is then called with one-dimensional tensors that hold the survivors of a parameter instead of the whole parameter.
    """

    @property
    def gradient_on_survivors(self) -> bool:
        """Whether that holds, with these hyperparameters."""
        ...


@runtime_checkable
class ExponentialPull(Protocol):
    """A method whose gradient is `price * sign(theta) * exp(-decay * |theta|)`, which one kernel adds while it applies masks."""

    def exponential_pull(self, at: At) -> tuple[float, float] | None:
        """Returns the pull of a weight close to 0, in units of the data loss per unit of magnitude, and how it decays with magnitude.

        Returns:
            `price` and `decay`, neither negative; a decay of 0 pulls all weights alike. None where the gradient has another form.
        """
        ...


@runtime_checkable
class ChangesGradient(Protocol):
    """A method that replaces or rescales the gradient of the data loss."""

    def change_gradient_(self, params: Params, state: nn.Module, at: At) -> None:
        """Changes every `.grad`, which holds the complete data gradient, before the penalty's gradient is added.

        A gradient scaler's factor may still be in it, so the change must be linear in the gradient's scale.
        """
        ...


@runtime_checkable
class ForwardWeights(Protocol):
    """A method under which the network computes with other weights than those that are trained: sampled, or masked over dense ones.

    Between two steps of the regularised phase the parameters hold the forward weights. Before the optimizer's step the trained, dense
    weights come back, and the gradient at the forward weights is pulled back through `forward_weights` to them and to the state's own
    parameters (a straight-through estimator is a `forward_weights` with such a derivative). After the step new forward weights are drawn.
    When the phase ends, and on `detach`, the parameters are the dense weights again.
    """

    def forward_weights(self, params: Params, state: nn.Module, at: At, generator: torch.Generator) -> Mapping[str, Tensor]:
        """Computes the weights that the forward pass uses, differentiably, with the names and shapes of the parameters.

        Args:
            params: the dense weights of one optimizer.
            state: the method's state; its parameters get gradients, and `after_step_` may move them.
            at: where training stands.
            generator: the only source of randomness, on the CPU. The same state of it must give the same weights.
        """
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


def replace_alpha(self: Any, alpha: float) -> Any:
    """Returns a copy of a dataclass with another `alpha`: what `with_alpha` is where alpha is a field."""
    return replace(self, alpha=alpha)


def require_object(name: str, value: object, protocol: type) -> None:
    """Checks that an option holds an object and not its class, which has the same members, and fails later or not at all.

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
