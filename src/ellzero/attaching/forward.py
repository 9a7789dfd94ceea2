"""Forward weights: what the network computes with instead of the trained weights, between two optimizer steps."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ellzero.methods.protocol import ForwardWeights
from ellzero.types import At, Params, Phase


class ForwardPass:
    """Puts forward weights into the parameters of one optimizer, and takes the dense weights back before its step.

    Args:
        method: computes the forward weights.
        params: the regularised parameters of the optimizer, by canonical name.
        seed: seeds the generator that the method draws from.
    """

    def __init__(self, method: ForwardWeights, params: Params, seed: int) -> None:
        self._method = method
        self._params = params
        self._generator = torch.Generator().manual_seed(seed)
        self._drawn_with = self._generator.get_state()
        self._drawn_at = At()
        self._dense: dict[str, Tensor] | None = None

    @property
    def shown(self) -> bool:
        """Whether the parameters hold forward weights at present."""
        return self._dense is not None

    @torch.no_grad()
    def show_(self, state: nn.Module, at: At) -> None:
        """Draws forward weights and writes them into the parameters; the dense weights are remembered.

        Raises:
            ValueError: the method gave weights of other names or shapes than the parameters'.
        """
        assert self._dense is None
        self._drawn_with, self._drawn_at = self._generator.get_state(), at
        weights = self._method.forward_weights(self._params, state, at, self._generator)
        for name, parameter in self._params.items():
            if name not in weights or weights[name].shape != parameter.shape:
                given = tuple(weights[name].shape) if name in weights else "none"
                raise ValueError(f"forward_weights gave {given} for {name}: expected a tensor of the shape {tuple(parameter.shape)}")
        self._dense = {name: parameter.detach().clone() for name, parameter in self._params.items()}
        for name, parameter in self._params.items():
            parameter.copy_(weights[name])

    @torch.no_grad()
    def hide_(self) -> None:
        """Writes the dense weights back into the parameters, where they hold forward weights."""
        if self._dense is not None:
            for name, parameter in self._params.items():
                parameter.copy_(self._dense[name])
            self._dense = None

    @contextmanager
    def dense(self) -> Generator[None, None, None]:
        """Puts the dense weights into the parameters for as long as the context lasts."""
        if self._dense is None:
            yield
            return
        dense, shown = self._dense, {name: parameter.detach().clone() for name, parameter in self._params.items()}
        self.hide_()
        try:
            yield
        finally:
            self._dense = dense
            with torch.no_grad():
                for name, parameter in self._params.items():
                    parameter.copy_(shown[name])

    def pull_back_(self, state: nn.Module) -> None:
        """Writes the dense weights back and turns the gradients at the forward weights into gradients of the dense ones and of the state.

        Gradients of the state's parameters are set, not added to. A parameter that the loss did not reach is left without a gradient.
        """
        self.hide_()
        reached = {name: parameter.grad for name, parameter in self._params.items() if parameter.grad is not None}
        for parameter in (*self._params.values(), *state.parameters()):
            parameter.grad = None
        position = self._generator.get_state()
        self._generator.set_state(self._drawn_with)
        with torch.enable_grad():
            weights = self._method.forward_weights(self._params, state, self._drawn_at, self._generator)
            outputs = [weights[name] for name in reached if weights[name].requires_grad]
            gradients = [gradient for name, gradient in reached.items() if weights[name].requires_grad]
            if outputs:
                torch.autograd.backward(outputs, gradients)
        self._generator.set_state(position)

    def state_dict(self) -> dict[str, Any]:
        """Returns what a resumed run needs: the dense weights where forward weights are shown, and what those were drawn with."""
        return {
            "dense": None if self._dense is None else dict(self._dense),
            "generator": self._generator.get_state() if self._dense is None else self._drawn_with,
            "drawn_at": [self._drawn_at.progress, self._drawn_at.step],
        }

    @torch.no_grad()
    def load_state_dict(self, saved: Mapping[str, Any], state: nn.Module) -> None:
        """Restores what `state_dict` returned, and draws the same forward weights again.

        Args:
            saved: what `state_dict` returned.
            state: the method's state as it was then.
        """
        self._dense = None
        self._generator.set_state(saved["generator"])
        if saved["dense"] is not None:
            for name, parameter in self._params.items():
                parameter.copy_(saved["dense"][name])
            progress, step = saved["drawn_at"]
            self.show_(state, At(progress=progress, step=step, phase=Phase.REGULARISE))

    @torch.no_grad()
    def mask_(self, masks: Mapping[str, Tensor]) -> None:
        """Sets the remembered dense weights to 0 where they are pruned."""
        for name, dense in (self._dense or {}).items():
            if name in masks:
                dense.masked_fill_(~masks[name].to(dense.device), 0)
