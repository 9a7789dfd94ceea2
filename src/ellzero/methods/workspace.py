"""Temporaries for foreach operations: made at the first step, reused at every later one, part of no state_dict."""

from torch import Tensor, empty_like, nn, strided, zeros_like

from ellzero.types import Params


class Workspace:
    """Tensors shaped like parameters, kept between steps; a copy or an unpickled one starts empty."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[int, str], Tensor] = {}

    def like(self, params: Params, slot: int) -> list[Tensor]:
        """Returns one temporary per parameter, with arbitrary content.

        Args:
            params: the parameters in the order wanted.
            slot: a number of the caller's: two temporaries in use at once have different ones.
        """
        return [self._temporary(slot, name, parameter) for name, parameter in params.items()]

    def _temporary(self, slot: int, name: str, parameter: Tensor) -> Tensor:
        tensor = self._tensors.get((slot, name))
        # A parameter may have moved to another device, or have been compacted, since the last step.
        if tensor is None or tensor.shape != parameter.shape or tensor.device != parameter.device or tensor.dtype != parameter.dtype:
            tensor = self._tensors[slot, name] = empty_like(parameter, requires_grad=False).detach()
        return tensor

    def __reduce__(self) -> tuple[type["Workspace"], tuple[()]]:
        return Workspace, ()


class NoState(nn.Module):
    """The state of a method that optimises nothing beside the model: temporaries only."""

    def __init__(self) -> None:
        super().__init__()
        self.workspace = Workspace()


def workspace_of(state: nn.Module) -> Workspace:
    """Returns the temporaries that a method's state keeps."""
    workspace = getattr(state, "workspace", None)
    assert isinstance(workspace, Workspace)
    return workspace


def gradients(params: Params) -> list[Tensor]:
    """Returns every parameter's gradient, made of zeros where the data loss gave none.

    A parameter that the loss did not reach this step is still part of the objective, so its penalty still pulls.

    Raises:
        TypeError: a gradient is sparse.
    """
    grads: list[Tensor] = []
    for name, parameter in params.items():
        if parameter.grad is None:
            parameter.grad = zeros_like(parameter)
        elif parameter.grad.layout is not strided:
            raise TypeError(f"the gradient of {name} is sparse, a penalty's is not: use sparse=False, or leave it out with select=")
        grads.append(parameter.grad)
    return grads
