"""A small task, and the plain loop that every framework has to agree with bit for bit."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ellzero.attaching._attach import attach
from ellzero.integrations.phases import Phases
from ellzero.methods import ADMM, DRR, PMMP, RL1
from ellzero.methods.protocol import Method
from ellzero.pruning.magnitude import magnitude_masks
from ellzero.types import Phase

STEPS, REGULARISE, FREEZE = 50, 10, 35

METHODS: dict[str, Method] = {
    "rl1": RL1(alpha=1e-3),
    "drr": DRR(alpha=1e-3),
    "drr-proximal": DRR(alpha=1e-3, proximal=True),
    "pmmp": PMMP(alpha=1e-3),
    "admm": ADMM(alpha=1e-3),
}


def largest(model: nn.Module) -> dict[str, Tensor]:
    return magnitude_masks(model, keep=100, min_keep=10)


PHASES = Phases(masks=largest, regularise=REGULARISE / STEPS, freeze=FREEZE / STEPS)


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 4))


def batches(steps: int = STEPS, size: int = 16) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(steps * size, 12, generator=generator)
    labels = inputs[:, :4].argmax(1)
    return list(zip(inputs.split(size), labels.split(size), strict=True))


def adam(model: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def plain_loop(method: Method, *, accumulate: int = 1, clip: float | None = None, autocast: bool = False) -> nn.Sequential:
    """Trains with `attach` alone, with no framework."""
    model = network()
    optimizer = adam(model)
    sparsifier = attach(optimizer, model, method, total_steps=STEPS)
    sparsifier.set_phase(Phase.PRELUDE)
    data = batches(STEPS * accumulate)
    for step in range(STEPS):
        optimizer.zero_grad()
        for inputs, labels in data[accumulate * step : accumulate * (step + 1)]:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = functional.cross_entropy(model(inputs), labels) / accumulate
            loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if step + 1 == REGULARISE:
            sparsifier.set_phase(Phase.REGULARISE)
        if step + 1 == FREEZE:
            sparsifier.freeze(largest(model))
    sparsifier.assert_sparse()
    return model


def same_bits(first: nn.Module, second: nn.Module) -> bool:
    ours, theirs = list(first.parameters()), list(second.parameters())
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


def pruned(model: nn.Module) -> Sequence[int]:
    return [int((parameter == 0).sum()) for parameter in model.parameters()]
