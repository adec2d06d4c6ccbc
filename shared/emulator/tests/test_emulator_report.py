"""Promise: the report ends with the limits of its figures, and work takes time by its kind."""

import json
import re

from conftest import NEEDS, emulate

pytestmark = NEEDS

# Activations go to the host on a stream of its own. A layer takes ten kernels, and its copy 0.33 ms
# of the link: as long as the host takes at 33 microseconds a kernel.
COPIES = """
import torch
side = torch.cuda.Stream()
for _ in range(64):
    x = torch.empty(1 << 21, device="cuda")
    for _ in range(9):
        x.add_(1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.empty(1 << 21, pin_memory=True).copy_(x, non_blocking=True)
    x.record_stream(side)  # line 10
"""
NO_ROOM = """
import torch
free, _ = torch.cuda.mem_get_info()
half = torch.empty(free * 6 // 10, dtype=torch.int8, device="cuda")
del half
rest = torch.empty(free * 7 // 10, dtype=torch.int8, device="cuda")  # takes what the cache has
torch.cuda.reset_accumulated_memory_stats()
for _ in range(2):
    try:
        torch.empty(free, dtype=torch.int8, device="cuda")
    except torch.OutOfMemoryError:
        print("caught")
"""
# The allocator asks no event about pinned memory, nor about work that the program itself waits for.
ONE_STREAM = """
import torch
for _ in range(3):
    x = torch.ones(1 << 22).pin_memory().to("cuda", non_blocking=True)
    torch.empty(1 << 22, pin_memory=True).copy_(x * 2, non_blocking=True)
asked, done = 0, torch.cuda.Event()
done.record()
while not done.query():
    asked += 1
assert asked > 100  # a thousand microseconds of the link
"""


def reserved(printed):
    """Return the reserved MB."""
    return float(re.search(r"rank 0 .* (\S+) MB$", printed, re.MULTILINE)[1])


def test_a_line_that_records_a_stream_is_named(tmp_path):
    printed = emulate(COPIES, tmp_path)
    assert printed.splitlines()[-1] == (
        "reserved memory can depend on the host's pace, since blocks wait for other streams: "
        f"{tmp_path / 'script.py'}:10; --host 5 and --host 60 show the bounds"
    )
    fast = emulate(COPIES, tmp_path, "--host", "5")
    slow = emulate(COPIES, tmp_path, "--host", "60")
    assert reserved(slow) <= reserved(printed) < 60 < 300 < reserved(fast)


def test_memory_that_no_other_stream_uses_depends_on_no_pace(tmp_path):
    assert "pace" not in emulate(ONE_STREAM, tmp_path)


def test_a_lack_of_room_is_in_the_last_lines(tmp_path):
    printed = emulate(NO_ROOM, tmp_path)
    assert printed.count("caught\n") == 2
    assert printed.splitlines()[-2:] == [
        "PyTorch gave its cache back to make room, which takes time: 3 times",
        "allocations failed with an out-of-memory error: 2 times",
    ]


# On an A100: 312 TFLOP/s in bf16, 19.5 in fp32, 2,039 GB/s.
WORK = """
import torch
from emulated_gpu import process
from emulated_gpu.inside.work import HOOK
from torch.utils.checkpoint import checkpoint
def passed(work, times=1):
    torch.cuda.synchronize()
    before = process.times()
    for _ in range(times):
        work()
    return process.passed(before, process.times())
def rate(amount, work):
    return amount / passed(work)["busy_ms"] * 1e3
small = torch.zeros(8, device="cuda")
large = torch.empty(1 << 28, device="cuda")
torch.cuda.synchronize()
half, single = (large.to(t)[: 1 << 26].view(8192, 8192) for t in (torch.bfloat16, torch.float32))
flop = 2 * 8192**3
assert 200e12 < rate(flop, lambda: half @ half) < 312e12
assert 12e12 < rate(flop, lambda: single @ single) < 19.5e12
assert 1.2e12 < rate(2 * large.nbytes, lambda: large.add_(1)) < 2.039e12
assert rate(2 * single.nbytes, lambda: single.t().contiguous()) < 1.4e12  # it reads across
pairs = torch.empty(2, 32, 4096, 128, device="cuda", dtype=torch.bfloat16)
flop = 4 * 2 * 32 * 4096**2 * 128
attend = torch.nn.functional.scaled_dot_product_attention
assert 150e12 < rate(flop, lambda: attend(pairs, pairs, pairs)) < 312e12
images = torch.empty(64, 256, 56, 56, device="cuda", dtype=torch.half)
weights = torch.empty(256, 256, 3, 3, device="cuda", dtype=torch.half)
flop = 2 * 64 * 56 * 56 * 256 * 256 * 9
assert 60e12 < rate(flop, lambda: torch.nn.functional.conv2d(images, weights)) < 312e12
# The host sets the pace of small work, the card that of large work.
one = passed(lambda: small.add_(1), 100)
assert one["pieces"] == 100 and one["ms"] > 4 and one["busy_ms"] < 0.2
products = passed(lambda: half @ half, 100)
assert products["pieces"] == 100 and products["busy_ms"] > 0.99 * products["ms"]
# A graph is one piece for the host, and all of its work for the card.
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(100):
        small.add_(1)
replayed = passed(graph.replay)
assert replayed["pieces"] == 1 and abs(replayed["busy_ms"] / one["busy_ms"] - 1) < 0.01
# Hooks of what a forward pass saves take the host's time: three calls for each tensor.
weight = torch.ones(64, 64, device="cuda", requires_grad=True)
saving = lambda: weight.sin().sin().sum().backward()
again = lambda: checkpoint(lambda: weight.sin().sin(), use_reentrant=False).sum().backward()
plain, checkpointed = passed(saving, 100), passed(again, 100)
hooks = checkpointed["ms"] - plain["ms"] - 0.04 * (checkpointed["pieces"] - plain["pieces"])
calls = hooks / (0.04 * HOOK) / 100
assert abs(calls - 6) < 0.1, f"{calls} calls of hooks were timed, and two saved tensors have 6"
print("right")
"""


def test_work_takes_what_it_is_and_what_the_card_is(tmp_path):
    assert "right\n" in emulate(WORK, tmp_path)


def test_a_trace_shows_where_the_gpu_waits_for_the_host(tmp_path):
    script = """
        import os
        import torch
        if not os.fork():
            torch.zeros(8, device="cuda")
            os._exit(0)
        os.wait()
        x = torch.zeros(8, device="cuda")
        for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                for _ in range(10):
                    x.add_(1)
        """
    file = tmp_path / "trace.json"
    printed = emulate(script, tmp_path, "--trace", file, "--host", "50")
    assert "Error" not in printed
    events = json.loads(file.read_text())["traceEvents"][-20:]
    assert [event["tid"] for event in events] == [0] * 10 + [1] * 10
    begun = [event["ts"] for event in events]
    assert {round(b - a) for a, b in zip(begun, begun[1:])} == {50} and events[0]["dur"] < 5
