"""Promise: the emulator's report ends with the limits of its figures, and failed allocations."""

import re

from helpers.emulated import NEEDS, emulate

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
