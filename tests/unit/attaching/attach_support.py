"""Small networks, optimizers and loops that the tests of attach share."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

OptimizerFactory = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


class Lion(torch.optim.Optimizer):
    """Sign momentum (Chen et al., "Symbolic discovery of optimization algorithms", 2023): moves every weight by lr, zeros included."""

    def __init__(
        self, params: Iterable[Tensor], lr: float = 1e-2, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.1
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                average = self.state[parameter].setdefault("exp_avg", torch.zeros_like(parameter))
                update = average.lerp(parameter.grad, 1 - group["betas"][0]).sign_()
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"])
                average.lerp_(parameter.grad, 1 - group["betas"][1])
        return loss


OPTIMIZERS: dict[str, OptimizerFactory] = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.05),
    "sgd-momentum": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-2),
    "adam": lambda params: torch.optim.Adam(params, lr=1e-2),
    "adam-foreach": lambda params: torch.optim.Adam(params, lr=1e-2, foreach=True),
    "adam-fused": lambda params: torch.optim.Adam(params, lr=1e-2, fused=True),
    "adam-amsgrad": lambda params: torch.optim.Adam(params, lr=1e-2, amsgrad=True),
    "adam-tensor-lr": lambda params: torch.optim.Adam(params, lr=torch.tensor(1e-2), foreach=False),
    "adamw": lambda params: torch.optim.AdamW(params, lr=1e-2, weight_decay=0.1),
    "lion": lambda params: Lion(params),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=1e-2, momentum=0.9),
    "adafactor": lambda params: torch.optim.Adafactor(params, lr=1e-2),
}
WITH_STEPS = [name for name in OPTIMIZERS if name.startswith(("sgd", "adam"))]


def network(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def data(step: int, rows: int = 16) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    inputs = torch.randn(rows, 6, generator=generator)
    return inputs, torch.stack([inputs[:, 0] * inputs[:, 1], inputs[:, 2], inputs[:, 3].sin()], dim=1)


def backward(model: nn.Module, step: int) -> Tensor:
    inputs, targets = data(step)
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    return loss


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: Iterable[int]) -> None:
    for step in steps:
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()


def half_masks(params: Mapping[str, Tensor], seed: int = 5) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.rand(parameter.shape, generator=generator) < 0.5 for name, parameter in params.items()}


def same(first: nn.Module, second: nn.Module) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
