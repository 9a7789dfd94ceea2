"""What linear layers, convolutions and batch normalisation do to channels: constants forwards, needs backwards, folding."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ellzero.surgery.operations import NAN, Operation, Value
from ellzero.surgery.selected_linear import SelectedLinear


@dataclass(eq=False)
class Dense(Operation):
    """A linear layer, or a convolution of one group: every output channel may read every input channel."""

    name: str
    module: nn.Module
    source: Value
    result: Value
    inputs: Tensor  # constants of the input channels
    weight: Tensor  # summed over the kernel, [out, in], on the CPU
    nonzero: Tensor  # [out, in]
    padded: bool
    dim: int  # of the channels in the source
    features: Tensor | None  # of the source that are read, None for all

    @classmethod
    def apply(cls, name: str, module: nn.Module, source: Value, result: Value, *, dim: int, padded: bool = False) -> "Dense":
        """Analyses a layer and writes the constants of its result."""
        assert isinstance(module.weight, Tensor)
        weight = module.weight.detach()
        kernel = list(range(2, weight.ndim))
        nonzero = weight != 0
        features = module.features if isinstance(module, SelectedLinear) else None
        inputs = source.constant.flatten() if source.varies_along(dim) else torch.full((weight.shape[1],), NAN, dtype=torch.float64)
        if features is not None and source.varies_along(dim):
            inputs = inputs[features.cpu()]
        self = cls(
            name=name,
            module=module,
            source=source,
            result=result,
            inputs=inputs,
            weight=(weight.sum(kernel, dtype=torch.float64) if kernel else weight).cpu(),
            nonzero=(nonzero.any(-1) if len(kernel) == 1 else nonzero.flatten(2).any(-1) if kernel else nonzero).cpu(),
            padded=padded,
            dim=dim,
            features=None if features is None else features.cpu(),
        )
        unknown = self.reads(~self.known)
        total = self.absorbed()
        if self.bias is not None:
            total = total + self.bias.detach().cpu().double()
        constant = torch.where(unknown | ~total.isfinite(), NAN, total)
        result.constant = constant.view(result.ids.shape)
        return self

    def reads(self, inputs: Tensor) -> Tensor:
        """Which output channels read any of some input channels; products are many times faster than reductions of booleans."""
        return (self.nonzero.float() @ inputs.float()) > 0

    def read_by(self, outputs: Tensor) -> Tensor:
        """Which input channels any of some output channels reads."""
        return (outputs.float() @ self.nonzero.float()) > 0

    @property
    def bias(self) -> Tensor | None:
        """The layer's bias."""
        bias = self.module.bias
        assert bias is None or isinstance(bias, Tensor)
        return bias

    @property
    def known(self) -> Tensor:
        """Input channels that add a constant: zeros at the border make any other constant differ from place to place."""
        return (self.inputs == 0) if self.padded else ~self.inputs.isnan()

    @property
    def foldable(self) -> Tensor:
        """Input channels whose constant this layer can absorb."""
        return self.known if self.bias is not None else self.inputs == 0

    def absorbed(self) -> Tensor:
        """Sums what the known constants add to each output channel."""
        columns = torch.nonzero(self.known & (self.inputs != 0)).flatten()
        return self.weight[:, columns].double() @ self.inputs[columns]

    def demand(self) -> None:
        """Needs an input channel that a needed output channel reads and cannot absorb."""
        need = self.read_by(self.result.need.flatten()) & ~self.foldable
        if not self.source.varies_along(self.dim):
            self.source.need |= need.any()
        elif self.features is None:
            self.source.need |= need.view(self.source.need.shape)
        else:
            self.source.need.view(-1)[self.features] |= need

    def live_columns(self) -> Tensor:
        """Numbers the input features that a needed output channel still reads."""
        return torch.nonzero(self.read_by(self.result.need.flatten()) & ~self.foldable).flatten()

    def folded(self) -> Mapping[str, Tensor]:
        """Zeroes the rows of channels that are not needed and the columns of constants, which the bias absorbs."""
        assert isinstance(self.module.weight, Tensor)
        changes: dict[str, Tensor] = {}
        needed = self.result.need.flatten()
        drop = self.nonzero & (~needed.view(-1, 1) | self.foldable)
        if drop.any():
            weight = self.module.weight.detach()
            drop = drop.to(weight.device).view(*drop.shape, *[1] * (weight.ndim - 2))
            changes[f"{self.name}weight"] = weight.masked_fill(drop, 0)
        if self.bias is not None:
            bias = self.bias.detach().cpu()
            total = (bias.double() + self.absorbed()).to(bias.dtype)  # with a bias, all that is known is foldable
            changes[f"{self.name}bias"] = torch.where(self.reads(self.foldable), total, bias).masked_fill(~needed, 0).to(self.bias.device)
        return changes

    def axes(self) -> Mapping[str, tuple[Tensor | None, ...]]:
        """Weight [out, in, kernel], bias [out]."""
        assert isinstance(self.module.weight, Tensor)
        inputs = self.source.ids.flatten() if self.source.varies_along(self.dim) and self.features is None else None
        outputs = self.result.ids.flatten()
        axes: dict[str, tuple[Tensor | None, ...]] = {f"{self.name}weight": (outputs, inputs, *[None] * (self.module.weight.ndim - 2))}
        if self.bias is not None:
            axes[f"{self.name}bias"] = (outputs,)
        return axes


@dataclass(eq=False)
class Depthwise(Operation):
    """A convolution with one group per channel: output channel c reads input channel c only, so both are one unit."""

    name: str
    module: nn.Module
    source: Value
    result: Value
    nonzero: Tensor
    foldable: Tensor

    @classmethod
    def apply(cls, name: str, module: nn.Module, source: Value, result: Value, *, padded: bool) -> "Depthwise":
        """Analyses a layer and writes the constants of its result."""
        assert isinstance(module.weight, Tensor)
        weight = module.weight.detach()
        nonzero = (weight != 0).flatten(1).any(1).cpu()
        inputs = source.constant.flatten()
        known = (inputs == 0) if padded else ~inputs.isnan()
        total = torch.where(nonzero, weight.flatten(1).sum(1, dtype=torch.float64).cpu() * inputs, 0)
        if isinstance(module.bias, Tensor):
            total = total + module.bias.detach().cpu().double()
        result.constant = torch.where((known | ~nonzero) & total.isfinite(), total, NAN).view(result.ids.shape)
        return cls(name, module, source, result, nonzero, known if isinstance(module.bias, Tensor) else inputs == 0)

    def demand(self) -> None:
        """Needs channel c if its output is needed and not absorbed."""
        self.source.need |= self.result.need & (self.nonzero & ~self.foldable).view(self.source.need.shape)

    def folded(self) -> Mapping[str, Tensor]:
        """Zeroes the kernels of channels that are constant or not needed; the bias becomes the constant."""
        assert isinstance(self.module.weight, Tensor)
        weight = self.module.weight.detach()
        needed, constant = self.result.need.flatten(), self.result.constant.flatten()
        drop = (self.nonzero & (~needed | self.foldable)).to(weight.device)
        changes = {f"{self.name}weight": weight.masked_fill(drop.view(-1, *[1] * (weight.ndim - 1)), 0)}
        if isinstance(self.module.bias, Tensor):
            bias = self.module.bias.detach().cpu()
            total = torch.where(self.nonzero & self.foldable, constant.to(bias.dtype), bias)
            changes[f"{self.name}bias"] = total.masked_fill(~needed, 0).to(weight.device)
        return changes

    def axes(self) -> Mapping[str, tuple[Tensor | None, ...]]:
        """Weight [channel, 1, kernel], bias [channel]."""
        assert isinstance(self.module.weight, Tensor)
        units = self.result.ids.flatten()
        return {f"{self.name}weight": (units, *[None] * (self.module.weight.ndim - 1)), f"{self.name}bias": (units,)}


@dataclass(eq=False)
class BatchNorm(Operation):
    """Batch normalisation as in eval mode: a scale and a shift per channel, from running statistics."""

    name: str
    module: nn.Module
    source: Value
    result: Value
    scale: Tensor

    @classmethod
    def apply(cls, name: str, module: nn.Module, source: Value, result: Value) -> "BatchNorm":
        """Analyses a layer and writes the constants of its result."""
        assert isinstance(module.running_mean, Tensor)
        assert isinstance(module.running_var, Tensor)
        assert isinstance(module.eps, float)
        scale = (module.running_var.detach().cpu().double() + module.eps).rsqrt()
        shift = torch.zeros_like(scale)
        if isinstance(module.weight, Tensor):
            scale = scale * module.weight.detach().cpu().double()
        if isinstance(module.bias, Tensor):
            shift = module.bias.detach().cpu().double()
        inputs = source.constant.flatten()
        total = torch.where(scale == 0, shift, (inputs - module.running_mean.detach().cpu().double()) * scale + shift)
        result.constant = torch.where(total.isfinite(), total, NAN).view(result.ids.shape)
        return cls(name, module, source, result, scale)

    @property
    def moved(self) -> Tensor:
        """Constant channels whose constant goes into the shift."""
        affine = isinstance(self.module.weight, Tensor) and isinstance(self.module.bias, Tensor)
        return ~self.result.constant.flatten().isnan() & affine

    def demand(self) -> None:
        """Needs a channel whose result is needed, unless its scale is zero or its constant moves into the shift."""
        self.source.need |= self.result.need & (~self.moved & (self.scale != 0)).view(self.source.need.shape)

    def folded(self) -> Mapping[str, Tensor]:
        """Zeroes scale and shift of channels that are not needed, their statistics as new; constants go into the shift."""
        needed = self.result.need.flatten()
        constant = self.result.constant.flatten()
        changes: dict[str, Tensor] = {}
        for leaf, dead in (("weight", 0), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
            tensor = getattr(self.module, leaf)
            if isinstance(tensor, Tensor):
                old = tensor.detach().cpu()
                if leaf == "weight":
                    old = old.masked_fill(self.moved, 0)
                elif leaf == "bias":
                    old = torch.where(self.moved, constant.to(old.dtype), old)
                changes[f"{self.name}{leaf}"] = old.masked_fill(~needed, dead).to(tensor.device)
        return changes

    def axes(self) -> Mapping[str, tuple[Tensor | None, ...]]:
        """All [channel]."""
        return {f"{self.name}{leaf}": (self.result.ids.flatten(),) for leaf in ("weight", "bias", "running_mean", "running_var")}
