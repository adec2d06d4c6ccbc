"""Promise: Muon on shards makes the updates that it makes on whole matrices."""

import pytest
from conftest import read_json, run


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    out = tmp_path_factory.mktemp("muon") / "compared.json"
    run("tests/helpers/sharded_muon.py", out)
    return read_json(out)


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float32"])
def test_updates_are_those_of_one_process(compared, dtype):
    seen = compared[dtype]
    assert min(seen["change"]) > 0.005  # of weights below 0.2
    assert all(seen["equal"])


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float32"])
def test_pytorch_computes_shards_rightly(compared, dtype):
    """As the docstring says: up to rounding, which Newton-Schulz, in bf16, makes larger."""
    seen = compared[dtype]
    near = [off < 0.2 * change for off, change in zip(seen["of shards"], seen["change"])]
    assert all(near)
