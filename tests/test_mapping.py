"""Promise: weights that are larger than memory can be mapped, and training never changes the file.

tests/sharded.py and sharded_text.py map files in this way, too: what test_equivalence.py and
test_text.py compare holds for it.
"""

import hashlib

import psutil
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from shared.common import mapping, scripts
from shared.common.errors import UserError
from shared.common.mapping import mappable


@pytest.fixture
def flags():
    """PyTorch's own setting, before and after."""
    before = torch.serialization.get_default_mmap_options()
    yield before
    torch.serialization.set_default_mmap_options(before)


def test_a_file_larger_than_memory(tmp_path, flags):
    memory = psutil.virtual_memory().total + psutil.swap_memory().total
    width = memory // 4 // 3 + 2**28  # of three tensors in fp32, together 3 GiB too many
    file = tmp_path / "large.pt"
    with FakeTensorMode(), torch.serialization.skip_data(materialize_fake_tensors=True):
        torch.save({f"weight{i}": torch.empty(width) for i in range(3)}, file)
    assert file.stat().st_size > memory and file.stat().st_blocks < 1000  # no room is used
    state = torch.load(mappable(file), weights_only=True, mmap=True)
    assert {name: len(t) for name, t in state.items()} == {f"weight{i}": width for i in range(3)}
    with torch.device("meta"):
        last = torch.nn.Linear(4, 1, bias=False)
    last = last.to_empty(device="cpu")
    last.load_state_dict({"weight": state["weight2"][-4:].view(1, 4)})
    assert last.weight.tolist() == [[0, 0, 0, 0]] and file.stat().st_size > memory
    torch.save({"weight": torch.zeros(4)}, tmp_path / "small.pt")
    mappable(tmp_path / "small.pt")
    assert torch.serialization.get_default_mmap_options() == flags


@pytest.mark.parametrize("name", ["07_init_module/train", "07_init_module/plain"])
def test_a_shared_mapping_leaves_the_file_as_it_is(monkeypatch, flags, name):
    monkeypatch.setattr(mapping, "_private_is_refused", lambda path: True)
    module, files = scripts.get(name).load(), []
    monkeypatch.setattr(
        module.models, "checkpoint", seeing(module.models.checkpoint, files), raising=True
    )
    module.main(["--preset", "tiny", "--data", "fake", "--max-steps", "2"])
    assert torch.serialization.get_default_mmap_options() != flags
    file, before = files[0]
    assert hashlib.sha256(file.read_bytes()).digest() == before


def seeing(checkpoint, files):
    """Returns checkpoint(), made to note each file and its hash before it is used."""

    def wrapper(args):
        file = checkpoint(args)
        files.append((file, hashlib.sha256(file.read_bytes()).digest()))
        return file

    return wrapper


def test_a_large_file_that_cannot_be_mapped(tmp_path, monkeypatch, flags):
    torch.save({}, tmp_path / "a.pt")
    monkeypatch.setattr(mapping, "_private_is_refused", lambda path: True)
    monkeypatch.setattr(mapping.os, "access", lambda path, mode: False)  # root may do anything
    with pytest.raises(UserError, match="a.pt is larger than this computer's memory.*chmod u\\+w"):
        mappable(tmp_path / "a.pt")
