"""Promise: on a CPU without bf16 instructions, bf16 is sped up and nothing else changes.

Environment variables of oneDNN and PyTorch hide the instructions from a process.
"""

import json

from conftest import paint, run

from shared.memory import bf16

WITHOUT = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
COMPUTE = """
import json
import torch
import torch.nn.functional as F
from shared.memory import bf16
from shared.memory.ledger import Ledger


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


def measured(dtype):
    ledger = Ledger()
    ledger.training()
    with ledger:
        found = results(dtype)
    return found, ledger.peak("cpu")


types = torch.bfloat16, torch.float32, torch.float64
before = [measured(dtype) for dtype in types]
bf16.speed_up(), bf16.speed_up()  # the second call changes nothing
found = [bf16.is_emulated(torch.device("cpu"))]
for dtype, (then, held) in zip(types, before):
    now, holds = measured(dtype)
    alike = all(a.dtype == b.dtype == dtype and a.stride() == b.stride() for a, b in zip(then, now))
    error = max(((a - b).float().norm() / a.float().norm()).item() for a, b in zip(then, now))
    found.append([error, alike, held == holds])
print(json.dumps(found))
"""


def test_results_are_rounded_as_bf16_rounds_and_the_rest_is_untouched():
    found = json.loads(run("-W", "error", "-c", COMPUTE, **WITHOUT).splitlines()[-1])
    slow, in_bf16, in_fp32, in_fp64 = found
    assert slow
    assert in_bf16[0] < 2**-8 and in_bf16[1:] == [True, True]  # the last bit, here and there
    assert in_fp32 == in_fp64 == [0, True, True]


def test_a_script_says_so_once_and_holds_the_same(tmp_path):
    file = tmp_path / "record.jsonl"
    for name in ("red", "blue"):
        paint(tmp_path / "few" / name, 24, name)  # few, because evaluation is slow
    options = ["--preset", "tiny", "--data", tmp_path / "few", "--max-steps", 3, "--record", file]
    printed = run("06_sgd/train.py", *options, **WITHOUT)
    assert printed.count(bf16.NOTE) == 1
    run("06_sgd/train.py", *options)
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    assert first["train"] == second["train"] and first["load"] == second["load"]
