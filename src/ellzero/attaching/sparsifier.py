"""The handle that `attach` returns: what happens around every optimizer step, and the masks in force."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ellzero.attaching.flat import FlatProximal
from ellzero.attaching.forward import ForwardPass
from ellzero.attaching.inertia import Norms, Watch, measure
from ellzero.attaching.live import LiveModel
from ellzero.attaching.masking import Keep, checked_masks, parameters_for, revived
from ellzero.attaching.moments import clear_dead_moments_, forget_
from ellzero.attaching.steps import Caps, learning_rates, step_sizes
from ellzero.attaching.weight_norm import Directions
from ellzero.methods.protocol import ChangesGradient, FollowsRates, ForwardWeights, Method
from ellzero.methods.schedule import moves
from ellzero.methods.workspace import Workspace
from ellzero.params import apply_masks_
from ellzero.types import At, Masks, Params, Phase


@dataclass(kw_only=True)
class Attached:
    """One optimizer, and what it owns.

    Attributes:
        optimizer: whose steps are hooked.
        params: the regularised parameters it owns, by canonical name.
        trainable: all parameters of the model that it owns: masks may name any of them.
        watch: notices a penalty without effect.
        step: steps it has done, skipped ones not counted.
        forward: puts forward weights into the parameters, where the method has any.
        caps: the largest proximal steps, of `REFRESH` steps at once.
        flat: does the proximal step on all parameters at once, where they are few enough.
    """

    optimizer: torch.optim.Optimizer
    params: Params
    trainable: Params
    watch: Watch
    forward: ForwardPass | None = None
    step: int = 0
    caps: Caps = field(default_factory=Caps)
    flat: FlatProximal = field(default_factory=FlatProximal)


class Sparsifier:
    """Regularises at every optimizer step and keeps masks; made by `attach`.

    Attributes:
        method: the penalty.
        state: what the method optimises beside the model.
        params: the regularised parameters, by canonical name, tied tensors once.
        skipped: names of the trainable parameters that are not regularised.
        phase: the phase of training; the penalty acts in `Phase.REGULARISE` only.
        last: the gradient norms of the penalty and of the data at the last check, None before the first.
    """

    def __init__(
        self,
        *,
        method: Method,
        params: Params,
        trainable: Params,
        aliases: Mapping[str, str],
        attached: Sequence[Attached],
        total_steps: int | None,
        live: LiveModel,
        directions: Directions,
        seed: int = 0,
    ) -> None:
        self.method = method
        self.params = params
        self.state: nn.Module = method.init(params)
        # Checked once: a check against a protocol takes longer than a small step.
        self._follows = self.state if isinstance(self.state, FollowsRates) else None
        self._changes = method if isinstance(method, ChangesGradient) else None
        self.skipped: list[str] = [name for name in trainable if name not in params]
        self.phase = Phase.REGULARISE
        self.last: Norms | None = None
        self._live = live
        self._directions = directions
        self._regularised = False
        self._aliases = aliases
        self._trainable = trainable
        self._attached = {own.optimizer: own for own in attached}
        if isinstance(method, ForwardWeights):
            for number, own in enumerate(attached):
                own.forward = ForwardPass(method, own.params, seed + number)
        self._total_steps = total_steps
        self._moves = moves(method)
        self._masks: dict[str, Tensor] | None = None
        self._keep = Keep({}, method)
        self._workspace = Workspace()
        self._handles: list[RemovableHandle] = []

    @property
    def step(self) -> int:
        """Optimizer steps done; with several optimizers, the largest number among them."""
        return max(attached.step for attached in self._attached.values())

    @property
    def at(self) -> At:
        """Where training stands."""
        return self._at(self.step)

    @property
    def masks(self) -> dict[str, Tensor] | None:
        """The masks in force, by canonical name, True where a weight is kept; None where nothing is frozen."""
        return None if self._masks is None else dict(self._masks)

    def penalty(self) -> float:
        """Computes the penalty at the present weights, whatever the phase: what `add_gradient_` is the gradient of."""
        with torch.no_grad():
            return float(self.method.penalty(self.params, self.state, self.at))

    def set_phase(self, phase: Phase) -> None:
        """Enters a phase: the penalty and forward weights act in `Phase.REGULARISE` only, masks in every phase."""
        if phase is Phase.REGULARISE and self.phase is not Phase.REGULARISE and not self._regularised:
            # What has been trained since `attach` is where the method begins.
            self._begin()
        self.phase = phase
        self._show_() if phase is Phase.REGULARISE else self._hide_()

    def _begin(self) -> None:
        self._directions.begin()
        self.state = self.method.init(self.params)
        self._follows = self.state if isinstance(self.state, FollowsRates) else None

    @contextmanager
    def dense(self) -> Generator[None, None, None]:
        """Puts the trained weights into the parameters for as long as the context lasts, where the method uses forward weights."""
        with ExitStack() as stack:
            for forward in self._forwards():
                stack.enter_context(forward.dense())
            yield

    def freeze(self, masks: Masks, *, penalty: bool = False, reset_momentum: bool = False, allow_empty_layers: bool = False) -> None:
        """Sets pruned weights to exactly 0 and holds them there; new masks replace older ones.

        The optimizer's state of pruned weights (momentum, second moments) is cleared; that of the survivors stays.

        Args:
            masks: name -> tensor, True where the weight is kept; any trainable parameter may be named.
            penalty: whether the survivors are regularised further; False enters `Phase.FINE_TUNE`.
            reset_momentum: drop the optimizer's memory of the masked parameters altogether, survivors included.
            allow_empty_layers: accept a weight that is pruned altogether.

        Raises:
            ValueError: a name is unknown or owned by no optimizer, a shape differs, or a whole layer is pruned.
        """
        self._install_masks(checked_masks(masks, self._trainable, self._aliases, allow_empty_layers=allow_empty_layers))
        if reset_momentum:
            forget_(list(self._attached), self._masked_params())
            for attached in self._attached.values():
                attached.caps.forget()
        if not penalty:
            self.set_phase(Phase.FINE_TUNE)

    def unfreeze(self) -> None:
        """Lets pruned weights grow again, from 0; `set_phase` decides about the penalty."""
        self._masks, self._keep = None, Keep({}, self.method)

    def apply_masks_(self, module: nn.Module) -> None:
        """Sets what is pruned to 0 in a copy of the model: an average of weights, or one with adapters merged.

        Raises:
            ValueError: nothing is frozen, or the module lacks a masked parameter.
        """
        masks = self._frozen()
        apply_masks_(parameters_for(module, masks), masks)

    def assert_sparse(self, module: nn.Module | None = None) -> None:
        """Checks that every pruned weight is exactly 0.

        Args:
            module: a copy of the model to check; the model itself by default.

        Raises:
            AssertionError: weights have come back, or the model holds other tensors than those that are masked; names are in the message.
            ValueError: nothing is frozen, or the module lacks a masked parameter.
        """
        masks = self._frozen()
        held = self._live.parameters() if module is None else parameters_for(module, masks)
        if module is None and (lost := [name for name in masks if held.get(name) is not self._trainable[name]]):
            raise AssertionError(
                f"the model no longer holds the tensors that are masked ({', '.join(lost)}): they were replaced after attach,"
                " so attach again"
            )
        counts = revived(masks, held)
        if counts:
            where = ", ".join(f"{name}: {count}" for name, count in counts.items())
            raise AssertionError(
                f"{sum(counts.values())} pruned weights are not 0 ({where}). Copies of a model and unpickled or replaced optimizers have no"
                " hooks: attach again, load_state_dict() the masks, or call apply_masks_(module)"
            )

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint needs beside the model and the optimizer: masks, the method's state, phase and steps."""
        return {
            "masks": None if self._masks is None else {name: mask.clone() for name, mask in self._masks.items()},
            "method": self.state.state_dict(),
            "phase": self.phase.value,
            "regularised": self._regularised,
            "steps": [attached.step for attached in self._attached.values()],
            "caps": [attached.caps.state_dict() for attached in self._attached.values()],
            "directions": self._directions.state_dict(),
            "forward": [forward.state_dict() for forward in self._forwards()],
            "watched": [{"steps": attached.watch.steps, "inert": attached.watch.inert} for attached in self._attached.values()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a `state_dict`, from a wrapped or a plain model alike, and enforces its masks at once.

        Raises:
            ValueError: it comes from another number of optimizers, or its masks do not fit the model.
        """
        if len(state["steps"]) != len(self._attached):
            raise ValueError(f"the state is of {len(state['steps'])} optimizers, and {len(self._attached)} are attached")
        masks = state["masks"]
        checked = None if masks is None else checked_masks(masks, self._trainable, self._aliases, allow_empty_layers=True)
        self.state.load_state_dict(state["method"])
        self.phase = Phase(state["phase"])
        self._regularised = bool(state["regularised"])
        for attached, step, watched in zip(self._attached.values(), state["steps"], state["watched"], strict=True):
            attached.step, attached.watch.steps, attached.watch.inert = step, watched["steps"], watched["inert"]
        for attached, caps in zip(self._attached.values(), state.get("caps", []), strict=False):
            attached.caps.load_state_dict(caps)
        self._directions.load_state_dict(state.get("directions", {}))
        for forward, saved in zip(self._forwards(), state["forward"], strict=True):
            forward.load_state_dict(saved, self.state)
        if checked is None:
            self.unfreeze()
        else:
            self._install_masks(checked)

    def install(self) -> None:
        """Registers the hooks on the optimizers; `attach` calls it."""
        if self.phase is Phase.REGULARISE:
            self._show_()
        for optimizer in self._attached:
            self._handles.append(optimizer.register_step_pre_hook(self._before_step))
            self._handles.append(optimizer.register_step_post_hook(self._after_step))

    def detach(self) -> None:
        """Removes the hooks: the optimizer is as it was before `attach`, and pruned weights may move."""
        self._hide_()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def __copy__(self) -> NoReturn:
        raise TypeError(_NO_COPY)

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError(_NO_COPY)

    def __reduce__(self) -> NoReturn:
        raise TypeError(_NO_COPY)

    def _at(self, step: int) -> At:
        progress = 0.0 if self._total_steps is None else min(1.0, step / self._total_steps)
        return At(progress=progress, step=step, phase=self.phase)

    def _forwards(self) -> list[ForwardPass]:
        return [attached.forward for attached in self._attached.values() if attached.forward is not None]

    def _show_(self) -> None:
        for attached in self._attached.values():
            if attached.forward is not None and not attached.forward.shown:
                self._draw_(attached, attached.forward)

    def _draw_(self, attached: Attached, forward: ForwardPass) -> None:
        """Draws forward weights of one optimizer's parameters, within the masks in force."""
        forward.show_(self.state, self._at(attached.step))
        self._keep.apply_to_weights_(attached.trainable)

    def _hide_(self) -> None:
        for forward in self._forwards():
            forward.hide_()

    def _frozen(self) -> dict[str, Tensor]:
        if self._masks is None:
            raise ValueError("nothing is frozen, so there is no mask to hold to: call freeze(masks) first")
        return self._masks

    def _masked_params(self) -> dict[str, Tensor]:
        return {name: self._trainable[name] for name in self._frozen()}

    def _install_masks(self, masks: dict[str, Tensor]) -> None:
        masks = self._directions.completed(masks)
        owned = {name for attached in self._attached.values() for name in attached.trainable}
        for name in masks:
            if name not in owned:
                raise ValueError(f"{name} is masked, but no attached optimizer owns it: attach the optimizer that does")
        self._masks, self._keep = masks, Keep(masks, self.method)
        for forward in self._forwards():
            forward.mask_(masks)
        apply_masks_(self._masked_params(), masks)
        clear_dead_moments_(list(self._attached), self._trainable, masks)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._live.check(optimizer)
        # The arguments begin with the optimizer itself. A closure has yet to compute the gradient, so the penalty waits for it.
        closure = kwargs["closure"] if "closure" in kwargs else (args[1] if len(args) > 1 else None)
        if closure is None:
            self._regularise(optimizer)
            return None
        wrapped = self._wrapped(optimizer, closure)
        return (args, {**kwargs, "closure": wrapped}) if "closure" in kwargs else ((optimizer, wrapped, *args[2:]), kwargs)

    def _wrapped(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        def closure_with_penalty() -> Any:
            loss = closure()
            self._regularise(optimizer)
            return loss

        return closure_with_penalty

    def _regularise(self, optimizer: torch.optim.Optimizer) -> None:
        if _will_skip(optimizer):
            return
        attached = self._attached[optimizer]
        if attached.forward is not None and attached.forward.shown:
            attached.forward.pull_back_(self.state)
        params, at, scale = _requiring_grad(attached.params), self._at(attached.step), _gradient_scale(optimizer)
        done: list[str] = []
        if params and self.phase is Phase.REGULARISE:
            if self._changes is not None:
                self._changes.change_gradient_(params, self.state, at)
            if attached.watch.due():
                self.last = measure(self.method, params, self.state, at, scale)
                attached.watch.record(self.last)
            done = self._keep.add_gradient_(params, self.state, at, scale)
            if not done:
                self.method.add_gradient_(params, self.state, at, scale)
        self._keep.apply_to_gradients_(attached.trainable, but=done)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _will_skip(optimizer):
            return
        attached = self._attached[optimizer]
        params, at = _requiring_grad(attached.params), self._at(attached.step)
        if params and self.phase is Phase.REGULARISE:
            attached.caps.begin(attached.step)
            directions = self._directions.copies(params)
            if attached.flat.fits(self.method, optimizer, params, at):
                attached.flat.step_(self.method, optimizer, params, self.state, at, attached.caps, self._keep.survivors)
            else:
                with torch.no_grad():
                    steps = step_sizes(optimizer, params, self._workspace, attached.caps) if self.method.proximal else {}
                if self._follows is not None:
                    self._follows.follow_rates_(learning_rates(optimizer, params))
                self.method.after_step_(params, self.state, steps, at)
            self._directions.hold_(directions)
            self._regularised = True
            masks = self.method.masks_(params, self.state, at)
            if masks is not None:
                self._install_masks({**(self._masks or {}), **checked_masks(masks, self._trainable, self._aliases)})
            attached.watch.step(self.method, may_rise=self._moves and at.progress < 1.0)
        self._keep.apply_to_weights_(attached.trainable)
        attached.step += 1
        if attached.forward is not None and self.phase is Phase.REGULARISE:
            self._draw_(attached, attached.forward)


_NO_COPY = (
    "a Sparsifier is bound to its optimizer and cannot be copied or pickled: save its state_dict(), copy the model and the optimizer,"
    " attach to the copies, and load_state_dict() there"
)


def _requiring_grad(params: Params) -> Params:
    """Leaves out what the user has frozen by `requires_grad_(False)` since; the same mapping where nothing has been."""
    if all(parameter.requires_grad for parameter in params.values()):
        return params
    return {name: parameter for name, parameter in params.items() if parameter.requires_grad}


def _will_skip(optimizer: torch.optim.Optimizer) -> bool:
    """Tells whether a fused optimizer leaves this step out because a gradient scaler has found an infinity."""
    infinite: Tensor | None = getattr(optimizer, "found_inf", None)
    return infinite is not None and bool(infinite)


def _gradient_scale(optimizer: torch.optim.Optimizer) -> float:
    """Returns the factor in the gradients that a fused optimizer divides by itself."""
    scale: Tensor | None = getattr(optimizer, "grad_scale", None)
    return 1.0 if scale is None else float(scale)
