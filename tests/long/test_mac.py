"""Promise: --mps takes a Mac's GPU where it can, and says in one line where not. By a stand-in."""

import pytest
import torch

from shared.cli import UserError
from shared.images import cli
from shared.memory.phases import Phases
from shared.records import scripts

HERE = str(scripts.get("06_sgd/train").path)


def test_a_macs_gpu(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"^--mps: needs a Mac's GPU [^\n]*$"):
        cli.parse(HERE, ["--mps"], 16)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert cli.parse(HERE, ["--mps"], 16).accelerator == "mps"
    assert cli.parse(HERE, [], 16).accelerator == "cpu"
    with pytest.raises(UserError, match="one device, so 01 to 07"):
        cli.parse(HERE, ["--mps"], 16, 4)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 3_000_000_000)
    phases = Phases(torch.device("mps"))
    with phases.load():
        pass
    nothing = {"device_peak_gb": 0, "host_peak_gb": None, "breakdown_gb": {}}
    assert phases.found["load"] == {**nothing, "device_reserved_gb": 3}
