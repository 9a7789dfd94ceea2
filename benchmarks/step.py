"""Measures what regularising costs: whole training steps, and `optimizer.step()` alone, interleaved in one process.

LeNet-300-100 (266,610 parameters) at batch 500 on random data. Every round gives each variant one turn, in changing order, so that
a busy machine slows all alike. A turn is a few steps, of which the first is not counted: in real training a network finds its own
weights in the cache, not another network's. The time of a turn is its median step, in seconds of this process's processors, not of
the clock on the wall, unless `--wall`; a ratio is the median over rounds of a variant's time over the plain step's in its round.

Foreach Adam takes longer on pruned networks by itself, with any way of pruning: on a CPU the square root of an exact 0, which is what
the second moment of a pruned weight is, takes ten times as long as another. Fused Adam does not use that routine.

    python benchmarks/step.py --steps 300 --threads 1
    python benchmarks/step.py --kept 0.02
    python benchmarks/step.py --foreach
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils import prune

from ellzero.attaching._attach import attach
from ellzero.methods import DRR, RL1, Method
from ellzero.params import everything

WARM_UP_ROUNDS = 2
STEPS_A_TURN = 6


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to train: everything before `optimizer.step()`, and that step."""

    name: str
    gradient: Callable[[], None]
    step: Callable[[], object]


def lenet() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10))


def random_masks(model: nn.Module, kept: float) -> dict[str, torch.Tensor]:
    return {name: torch.rand(parameter.shape) < kept for name, parameter in model.named_parameters() if parameter.ndim >= 2}


def variant(
    name: str,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    *,
    fused: bool,
    kept: float,
    method: Method | None = None,
    masked: bool = False,
    pruned: bool = False,
) -> Variant:
    model = lenet()
    if pruned:
        for layer in model:
            if isinstance(layer, nn.Linear):
                prune.custom_from_mask(layer, "weight", torch.rand(layer.weight.shape) < kept)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused, foreach=not fused)
    if method is not None:
        sparsifier = attach(optimizer, model, method, select=everything)
        if masked:
            sparsifier.freeze(random_masks(model, kept), penalty=True)

    def gradient() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()

    return Variant(name=name, gradient=gradient, step=optimizer.step)


def turn(each: Variant, clock: Callable[[], float]) -> tuple[float, float]:
    """Returns the median seconds of a turn's steps: whole, and `optimizer.step()` alone."""
    whole: list[float] = []
    alone: list[float] = []
    for _ in range(STEPS_A_TURN):
        start = clock()
        each.gradient()
        middle = clock()
        each.step()
        end = clock()
        whole.append(end - start)
        alone.append(end - middle)
    return statistics.median(whole[1:]), statistics.median(alone[1:])


def measure(variants: list[Variant], rounds: int, clock: Callable[[], float]) -> dict[str, tuple[list[float], list[float]]]:
    """Returns seconds by variant, one entry a round: whole steps, and `optimizer.step()` alone."""
    times: dict[str, tuple[list[float], list[float]]] = {each.name: ([], []) for each in variants}
    for number in range(WARM_UP_ROUNDS + rounds):
        first = number % len(variants)
        for each in variants[first:] + variants[:first]:
            whole, alone = turn(each, clock)
            if number >= WARM_UP_ROUNDS:
                times[each.name][0].append(whole)
                times[each.name][1].append(alone)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="measured steps of every variant")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--batch", type=int, default=500, help="rows of a batch")
    parser.add_argument(
        "--kept", type=float, default=0.1, help="share of the weights that masks keep: 0.1, or 0.02 for a compression rate of 50"
    )
    parser.add_argument("--foreach", action="store_true", help="foreach Adam for all variants instead of fused Adam")
    parser.add_argument("--wall", action="store_true", help="wall-clock time, on a quiet machine, instead of processor time")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    inputs, labels = torch.rand(options.batch, 784), torch.randint(10, (options.batch,))

    def make(name: str, method: Method | None = None, *, masked: bool = False, pruned: bool = False) -> Variant:
        return variant(name, inputs, labels, fused=not options.foreach, kept=options.kept, method=method, masked=masked, pruned=pruned)

    variants = [
        make("plain"),
        make("R-L1", RL1(alpha=1e-5)),
        make("R-L1, masks", RL1(alpha=1e-5), masked=True),
        make("DRR", DRR(alpha=1e-5)),
        make("DRR, masks", DRR(alpha=1e-5), masked=True),
        make("R-L1 proximal, masks", RL1(alpha=1e-5, proximal=True), masked=True),
        make("DRR proximal, masks", DRR(alpha=1e-5, proximal=True), masked=True),
        make("torch.nn.utils.prune", pruned=True),
    ]
    rounds = -(-options.steps // (STEPS_A_TURN - 1))
    times = measure(variants, rounds, time.perf_counter if options.wall else time.process_time)
    kind = "foreach" if options.foreach else "fused"
    print(f"LeNet-300-100, batch {options.batch}, {kind} Adam, {options.threads} thread(s), {options.steps} steps")
    print(f"masks keep {options.kept:g}")
    print("medians, ratios to plain")
    print(f"{'':24}{'whole step':>18}{'optimizer.step()':>24}")
    plain = times["plain"]
    for name, columns in times.items():
        cells = [
            f"{1e3 * statistics.median(own):9.3f} ms {statistics.median(a / b for a, b in zip(own, base, strict=True)):6.3f}"
            for own, base in zip(columns, plain, strict=True)
        ]
        print(f"{name:24}{cells[0]:>18}{cells[1]:>24}")


if __name__ == "__main__":
    main()
