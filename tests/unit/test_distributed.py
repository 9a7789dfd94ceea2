"""Workers of ADMM in two gloo processes against one process that holds both copies; masks compared and evaluations averaged."""

import datetime
import multiprocessing
import queue
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ellzero.attaching._attach import attach
from ellzero.distributed import WorkerMean, assert_same_masks, masks_hash, mean_evaluation
from ellzero.methods import ADMM, geometric, z_step
from ellzero.params import everything

WORKERS, ROUNDS, EVERY, LR = 2, 50, 3, 0.1
ALPHA, TAU = 2e-3, geometric(0.5, 0.1)


def model() -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(6, 4, dtype=torch.float64)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return linear


def loss(network: Callable[[Tensor], Tensor], rank: int, step: int) -> Tensor:
    """Each worker has data of its own, of which three inputs of six matter."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    inputs = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    outputs = network(inputs)
    return (outputs - inputs[:, :3].sum(dim=1, keepdim=True).tanh()).square().mean()


def trained(rank: int) -> dict[str, Tensor]:
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=LR)
    method = ADMM(alpha=ALPHA, tau=TAU, every=EVERY, mean_over_workers=WorkerMean())
    sparsifier = attach(optimizer, network, method, select=everything, total_steps=ROUNDS * EVERY)
    for step in range(ROUNDS * EVERY):
        optimizer.zero_grad()
        loss(network, rank, step).backward()
        optimizer.step()
    found = {f"x.{name}": parameter.detach() for name, parameter in network.named_parameters()}
    return {**found, **{name: tensor for name, tensor in sparsifier.state.state_dict().items() if name.endswith((".z", ".u"))}}


def helpers(rank: int) -> dict[str, Tensor]:
    """What the other functions do where processes agree, and where they do not."""
    masks = {"module.a.weight": torch.tensor([True, False, True]), "b": torch.ones(2, 2, dtype=torch.bool)}
    assert_same_masks(masks)
    message = ""
    try:
        assert_same_masks({**masks, "b": torch.full((2, 2), rank == 0)})
    except AssertionError as error:
        message = str(error)
    wide = torch.full((5, 3), float(rank + 1), dtype=torch.float32).t()
    WorkerMean()([wide])
    mean = mean_evaluation(lambda network: 0.1 + 0.2 * rank)(nn.Identity())
    return {
        "message": torch.tensor(list(message.encode()), dtype=torch.uint8),
        "wide": wide.contiguous(),
        "mean": torch.tensor(mean, dtype=torch.float64),
    }


def worker(rank: int, folder: str, results: Any) -> None:
    try:
        torch.set_num_threads(1)
        store = dist.FileStore(f"{folder}/store", WORKERS)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=WORKERS, timeout=datetime.timedelta(seconds=120))
        found = {name: tensor.tolist() for name, tensor in {**trained(rank), **helpers(rank)}.items()}
        dist.destroy_process_group()
        results.put((rank, found))
    except BaseException:
        results.put((rank, traceback.format_exc()))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What every process answers; they are started once, as most of the time goes into their start."""
    folder = tmp_path_factory.mktemp("workers")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=worker, args=(rank, str(folder), results), daemon=True) for rank in range(WORKERS)]
    for process in processes:
        process.start()
    try:
        found = dict(results.get(timeout=240) for _ in processes)
    except queue.Empty:
        pytest.fail("the processes did not answer")
    finally:
        for process in processes:
            process.join(timeout=10)
            process.kill()
    for answer in found.values():
        assert not isinstance(answer, str), answer
    return [found[rank] for rank in range(WORKERS)]


def copies_in_one_process() -> list[dict[str, Tensor]]:
    """Eq. 36 and 37 written out for all workers together, with the pure z-step of the price `N * alpha`."""
    networks = [model() for _ in range(WORKERS)]
    names = [name for name, _ in networks[0].named_parameters()]
    x = [dict(network.named_parameters()) for network in networks]
    z = {name: x[0][name].detach().clone() for name in names}
    u = [{name: torch.zeros_like(z[name]) for name in names} for _ in networks]
    last = 0.0
    for step in range(ROUNDS * EVERY):
        tau = TAU(step / (ROUNDS * EVERY))
        rho = 2 * ALPHA / tau**2
        for rank, network in enumerate(networks):
            network.zero_grad()
            loss(network, rank, step).backward()
            with torch.no_grad():
                for name in names:
                    x[rank][name] -= LR * x[rank][name].grad  # type: ignore[operator]
                    x[rank][name].copy_((x[rank][name] + LR * rho * (z[name] - u[rank][name])) / (1 + LR * rho))
        if (step + 1) % EVERY == 0:
            for name in names:
                r = torch.stack([x[rank][name].detach() + last / rho * u[rank][name] for rank in range(WORKERS)])
                z[name] = z_step(r.flatten(1), alpha=WORKERS * ALPHA, rho=rho).z.view(z[name].shape)
                for rank in range(WORKERS):
                    u[rank][name] = r[rank] - z[name]
            last = rho
    return [
        {
            **{f"x.{name}": x[rank][name].detach() for name in names},
            **{f"splits.{i}.z": z[name] for i, name in enumerate(names)},
            **{f"splits.{i}.u": u[rank][name] for i, name in enumerate(names)},
        }
        for rank in range(WORKERS)
    ]


def test_two_processes_equal_one_with_two_copies(answers: list[dict[str, Any]]) -> None:
    """50 rounds in float64. The workers' weights differ, their z does not, in a single bit."""
    found, expected = answers, copies_in_one_process()
    for own, other in zip(found, expected, strict=True):
        assert other.keys() <= own.keys()
        for name, tensor in other.items():
            torch.testing.assert_close(torch.tensor(own[name], dtype=torch.float64), tensor, rtol=0, atol=1e-12)
    assert found[0]["splits.0.z"] == found[1]["splits.0.z"]
    assert found[0]["x.weight"] != found[1]["x.weight"]
    kept = torch.tensor(found[0]["splits.0.z"]).count_nonzero()
    assert 12 <= int(kept) < 24


def test_helpers_agree_on_all_processes(answers: list[dict[str, Any]]) -> None:
    first, second = ({name: answer[name] for name in ("message", "wide", "mean")} for answer in answers)
    assert first == second
    assert bytes(first["message"]).decode().startswith("the masks differ between processes (rank 0: ")
    assert first["wide"] == [[1.5] * 5] * 3
    assert first["mean"] == (0.1 + (0.1 + 0.2)) / 2


def test_hashes_see_names_shapes_and_bits_alone() -> None:
    mask = torch.tensor([[True, False], [False, True]])
    base = masks_hash({"a": mask, "b": mask})
    assert masks_hash({"b": mask.float(), "a": mask.t().contiguous().t()}) == base
    for other in ({"a": mask, "c": mask}, {"a": mask, "b": ~mask}, {"a": mask, "b": mask.flatten()}, {"a": mask}):
        assert masks_hash(other) != base


def test_without_a_process_group_the_remedy_is_named() -> None:
    calls: list[Callable[[], Any]] = [
        lambda: WorkerMean()([torch.zeros(1)]),
        lambda: assert_same_masks({"a": torch.ones(1, dtype=torch.bool)}),
        lambda: mean_evaluation(lambda network: 0.0)(nn.Identity()),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="there is no process group: call"):
            call()
