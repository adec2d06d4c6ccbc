"""Promise: bf16 is quick on a CPU without bf16 instructions, and everything else stays as it was.

The instructions are hidden from a process with the variables of oneDNN and PyTorch for that.
"""

import json

import pytest
from conftest import paint, run

from shared.memory import bf16, torch_private

WITHOUT = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
COMPUTE = """
import json, sys
import torch
import torch.nn.functional as F
from shared.memory import bf16
from shared.memory.ledger import Ledger

torch.manual_seed(0)


def results(dtype):
    def new(*shape):
        return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()

    generator = torch.Generator().manual_seed(1)
    a, w, b = new(70, 24), new(40, 24), new(40)
    x, y, z = new(3, 7, 5), new(3, 5, 6), new(3, 7, 6)
    q, k, v = new(2, 3, 17, 8), new(2, 3, 17, 8), new(2, 3, 17, 8)
    out = [F.linear(a, w, b), torch.mm(x[0], y[0]), torch.bmm(x, y)]
    out += [torch.baddbmm(z, x, y, beta=0.5, alpha=2), torch.addmm(z[0], x[0], y[0], beta=2)]
    out += [F.scaled_dot_product_attention(q, k, v)]
    out += [F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)]
    total = sum(t.float().square().mean() for t in out)
    out += torch.autograd.grad(total, [a, w, b, x, y, z, q, k, v])
    return out


def bytes_of(dtype):
    ledger = Ledger()
    ledger.training()
    with ledger:
        results(dtype)
    return ledger.peak("cpu")


before = {str(d): (results(d), bytes_of(d)) for d in (torch.bfloat16, torch.float32, torch.float64)}
slow = bf16.speed_up()
assert bf16.speed_up() == slow  # twice is as once
found = {"slow": slow}
for dtype in (torch.bfloat16, torch.float32, torch.float64):
    then, held = before[str(dtype)]
    now = results(dtype)
    found[str(dtype)] = {
        "same type": all(a.dtype == b.dtype == dtype for a, b in zip(then, now)),
        "same layout": all(a.stride() == b.stride() for a, b in zip(then, now)),
        "error": max(((a - b).float().norm() / a.float().norm()).item() for a, b in zip(then, now)),
        "same bytes": held == bytes_of(dtype),
    }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def without():
    """What a process finds that has no bf16 instructions: before and after speed_up()."""
    return json.loads(run("-W", "error", "-c", COMPUTE, **WITHOUT).splitlines()[-1])


def test_results_are_rounded_as_bf16_rounds(without):
    found = without["torch.bfloat16"]
    assert without["slow"] and found["same type"] and found["same layout"]
    assert found["error"] < 2**-8  # a last digit of bf16, here and there


def test_other_types_are_untouched(without):
    for dtype in ("torch.float32", "torch.float64"):
        assert without[dtype]["error"] == 0 and without[dtype]["same type"]


def test_the_ledger_counts_the_same_bytes(without):
    for dtype in ("torch.bfloat16", "torch.float32", "torch.float64"):
        assert without[dtype]["same bytes"], dtype


def test_a_script_says_so_once_and_holds_the_same(tmp_path):
    file = tmp_path / "record.jsonl"
    for name in ("red", "blue"):
        paint(tmp_path / "few" / name, 24, name)  # few to evaluate, slowly
    options = ["--preset", "tiny", "--data", tmp_path / "few", "--max-steps", 3, "--record", file]
    printed = run("06_sgd/train.py", *options, **WITHOUT)
    assert printed.count(bf16.NOTE) == 1
    run("06_sgd/train.py", *options, **(WITHOUT if torch_private.cpu_multiplies_bf16() else {}))
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    assert first["train"] == second["train"] and first["load"] == second["load"]


def test_a_build_without_onednn_is_left_alone(monkeypatch):
    monkeypatch.setattr(torch_private.torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(torch_private.torch.ops, "mkldnn", None)  # as on some Macs
    assert torch_private.cpu_multiplies_bf16() and bf16.speed_up() is False


def test_nothing_changes_where_the_cpu_has_the_instructions(monkeypatch):
    monkeypatch.setattr(bf16, "cpu_multiplies_bf16", lambda: True)
    monkeypatch.setattr(bf16.torch.library, "Library", None)  # would fail
    assert bf16.speed_up() is False
