"""Whether a model still holds the tensors that were attached: replaced ones train on without penalty and without masks."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ellzero.distributed import canonical_names
from ellzero.params import Selector, select_parameters

_REMEDY = "call sparsifier.detach(), attach again, and load_state_dict() the sparsifier's state"


class LiveModel:
    """The modules of a model and the parameters in them, as they were when it was attached.

    Args:
        model: the model.
        trainable: its trainable parameters, by canonical name.
        select: the rule for what is regularised, for parameters that come later.
        optimizers: those that are attached.
    """

    def __init__(
        self, model: nn.Module, trainable: Mapping[str, Tensor], select: Selector, optimizers: list[torch.optim.Optimizer]
    ) -> None:
        self.model = model
        self._select = select
        self._known = set(trainable.values())
        names = {parameter: name for name, parameter in trainable.items()}
        # What torch.jit has compiled keeps its modules and parameters.
        modules = [module for module in dict.fromkeys(model.modules()) if not isinstance(module, torch.jit.ScriptModule)]
        self._links = [(module, key, child) for module in modules for key, child in module._modules.items()]
        self._places = [
            (module, leaf, parameter, names[parameter])
            for module in modules
            for leaf, parameter in module._parameters.items()
            if parameter is not None and parameter in names
        ]
        self._counts = {optimizer: _count(optimizer) for optimizer in optimizers}

    def check(self, optimizer: torch.optim.Optimizer) -> None:
        """Checks before a step that nothing has been replaced and nothing added; a few lookups per module.

        Raises:
            RuntimeError: a module or parameter has been replaced, or the optimizer has got a parameter that would be regularised.
        """
        for module, leaf, parameter, name in self._places:
            if module._parameters.get(leaf) is not parameter:
                raise RuntimeError(
                    f"{name} is another tensor than the one that was attached (load_state_dict(assign=True), fully_shard or a pruning"
                    f" library replaces parameters), so its penalty and masks would act on a tensor that nobody uses: {_REMEDY}"
                )
        for module, key, child in self._links:
            if module._modules.get(key) is not child:
                raise RuntimeError(
                    f"the module {key!r} of {type(module).__name__} has been replaced since attach, so its penalty and masks would act on"
                    f" weights that nobody uses: {_REMEDY}"
                )
        if _count(optimizer) != self._counts[optimizer]:
            self._check_new(optimizer)

    def _check_new(self, optimizer: torch.optim.Optimizer) -> None:
        owned = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        selected = select_parameters(self.model, self._select)
        new = [name for name, parameter in selected.items() if parameter in owned and parameter not in self._known]
        if new:
            raise RuntimeError(
                f"{', '.join(new)} came to the optimizer after attach and would train without penalty: {_REMEDY}, or leave it out with"
                " select= and attach again"
            )
        self._counts[optimizer] = _count(optimizer)

    def parameters(self) -> dict[str, Tensor]:
        """Lists the parameters that the model holds now, trainable or not, by canonical name."""
        names = canonical_names(self.model)
        return {names[name]: parameter for name, parameter in self.model.named_parameters(remove_duplicate=False)}


def _count(optimizer: torch.optim.Optimizer) -> int:
    return sum(len(group["params"]) for group in optimizer.param_groups)
