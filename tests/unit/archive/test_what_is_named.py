"""Messages name one of many and count the others."""

import os
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from ellzero.archive.load import load_model
from ellzero.archive.save import model_bytes, save_file
from ellzero.archive.sources import find_network, tensors_of
from ellzero.quantise.grids import LogGrid


class Shared(nn.Module):
    """Parameters of which parts are buffers, too."""

    def __init__(self, count: int) -> None:
        super().__init__()
        for number in range(count):
            self.register_parameter(f"weight{number}", nn.Parameter(torch.arange(1.0, 13.0).reshape(3, 4)))
            self.register_buffer(f"row{number}", self.get_parameter(f"weight{number}").data[1])


@pytest.mark.parametrize(("missing", "others"), [(1, ""), (2, " and 1 more tensors"), (3, " and 2 more tensors")])
def test_tensors_that_a_file_lacks_are_counted(missing: int, others: str, tmp_path: Path) -> None:
    model = nn.ParameterDict({name: torch.ones(2) for name in "abcd"})
    save_file({name: torch.ones(2) for name in "abcd"[missing:]}, tmp_path / "x.l0")
    with pytest.raises(ValueError, match=rf"lacks 'a'{others} of the model"):
        load_model(model, tmp_path / "x.l0")


@pytest.mark.parametrize(("kept", "more"), [(1, ""), (8, ""), (9, " and 1 more"), (11, " and 3 more")])
def test_what_a_checkpoint_holds_beside_the_network_is_told(kept: int, more: str, tmp_path: Path) -> None:
    torch.save({"state_dict": nn.Linear(3, 2).state_dict(), **{f"value{number}": number for number in range(kept)}}, tmp_path / "x.pt")
    said: list[str] = []
    assert sorted(entry.name for entry in tensors_of(tmp_path / "x.pt", said.append)) == ["bias", "weight"]
    (line,) = said
    assert "'state_dict' is packed; left out: 'value0'" in line
    assert line.count("'value") == min(kept, 8)
    assert line.endswith(more or ")")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes with names")
def test_a_pipe_is_no_network(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match="is a pipe or a device"):
        find_network(tmp_path / "pipe")


@pytest.mark.parametrize(("count", "others"), [(1, ""), (2, " and 1 more"), (3, " and 2 more")])
def test_what_is_stored_exactly_is_counted(count: int, others: str) -> None:
    with pytest.warns(UserWarning, match=rf"shared with other tensors of the network: 'weight0'{others};"):
        model_bytes(Shared(count), quantise=LogGrid())
