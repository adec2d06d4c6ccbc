"""Promise: what PyTorch compiles, pads or sends to another kernel, runs on an emulated GPU.

Inductor measures whether padding pays, so it runs operations while it traces. Sizes are no
multiples of 8, since others need no padding.
"""

import json

import pytest
from conftest import NEEDS, emulate

pytestmark = NEEDS

COMPILED = {
    "mm": "lambda: grow(2047, 513) @ grow(513, 1021)",
    "addmm": "lambda: torch.addmm(grow(1021), grow(2047, 513), grow(513, 1021))",
    "bmm": "lambda: torch.bmm(grow(8, 2047, 513), grow(8, 513, 1021))",
    "bmm of columns and rows": "lambda: torch.bmm(grow(8, 2047, 1), grow(8, 1, 1021))",
    "baddbmm": "lambda: torch.baddbmm(grow(8, 1, 1021), grow(8, 2047, 513), grow(8, 513, 1021))",
    "conv2d": "lambda: F.conv2d(grow(3, 5, 67, 67), grow(7, 5, 3, 3))",
    "conv_transpose2d": "lambda: F.conv_transpose2d(grow(3, 5, 67, 67), grow(5, 7, 3, 3))",
    "attention": "lambda: F.scaled_dot_product_attention(*(grow(2, 3, 513, 36) for _ in range(3)))",
    "by hand": "lambda: (grow(6, 513, 9) @ grow(6, 9, 513)).softmax(-1).bmm(grow(6, 513, 9))",
    "cat": "lambda: torch.cat([grow(1000, 513), grow(1000, 514)], 1).sin()",
}
SCRIPT = """
import json

import torch
from torch.nn import functional as F
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

grow = lambda *shape: torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
results = {}
for name, code in json.loads('CASES').items():
    try:
        torch.compile(eval(code), dynamic=False)().float().sum().backward()
        results[name] = "runs"
    except Exception as error:
        results[name] = repr(error)[:300]
# As Inductor does: a mode waits, and is not asked.
x = torch.ones(2, 2, 2, device="cuda")
calls = {"bmm": lambda: torch.bmm(x, x), "sum": lambda: x.sum(0), "topk": lambda: x.topk(1)}
calls |= {"scatter_add": lambda: x.scatter_add(0, x.long(), x), "copy_": lambda: x.copy_(x.cpu())}
calls |= {"rms_norm": lambda: F.rms_norm(x, (2,)), "mm": lambda: x[0] @ x[0]}
for call in calls.values():
    with TorchDispatchMode(), no_dispatch():
        call()
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return what each of COMPILED ends with, {name: "runs" or the error}."""
    folder = tmp_path_factory.mktemp("compiled")
    script = SCRIPT.replace("CASES", json.dumps(COMPILED))
    printed = emulate(script, folder, "--card", "h100", limit=400)
    return json.loads(next(line for line in printed.splitlines() if line.startswith("{")))


@pytest.mark.parametrize("name", COMPILED)
def test_it_is_compiled_forward_and_backward(name, results):
    assert results[name] == "runs"


def test_what_a_kernel_of_triton_writes_is_an_assumption(tmp_path):
    script = """
        import torch, triton
        from triton import language as tl

        @triton.jit
        def fold(most, x, BLOCK: tl.constexpr):
            row = tl.program_id(0)
            tl.store(most + row, tl.max(tl.load(x + row * BLOCK + tl.arange(0, BLOCK))))

        x = torch.ones(8, 128, device="cuda")
        most = torch.full((8,), -torch.inf, device="cuda")
        fold[(8,)](most, x, BLOCK=128)
        assert most.sum() == 8 and x.sum() == 8 * 128  # line 12
        assert x.sum() == 8 * 128  # which no kernel wrote
        """
    printed = emulate(script, tmp_path)
    assert "script.py:12  (a number)" in printed and "script.py:13" not in printed


@pytest.mark.parametrize("launched", [(), ("--alone", "--devices", "4")], ids=["alone", "launched"])
def test_what_compiled_functions_ask_breaks_no_graph(launched, tmp_path):
    """As models of transformers ask the environment; a broken graph needs an eager one's memory."""
    script = """
        import os
        import torch
        from torch import distributed as dist
        from torch.utils.checkpoint import checkpoint

        def forward(x):
            if os.environ.get("RANK") == "7" or "LOCAL_SIZE" in os.environ:
                return x
            if dist.is_initialized():
                x = x + dist.get_rank() + dist.get_world_size()
                dist.all_reduce(x)
            return checkpoint(torch.sin, x, use_reentrant=False)

        if "WORLD_SIZE" in os.environ:
            dist.init_process_group("nccl")
        x = torch.zeros(2, device="cuda", requires_grad=True)
        torch.compile(forward, fullgraph=True, backend="aot_eager")(x).sum().backward()
        """
    emulate(script, tmp_path, *launched)
