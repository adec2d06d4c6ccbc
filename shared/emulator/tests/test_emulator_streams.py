"""Promise: streams share the card's multiprocessors and its link to the host."""

import json

from conftest import NEEDS, emulate

pytestmark = NEEDS

# Milliseconds of work on one stream, and of four times as much on four.
SHARED = """
import json
import torch

pinned = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)
on_gpu = torch.empty(2**28, dtype=torch.uint8, device="cuda")
matrix = torch.empty(8192, 8192, dtype=torch.bfloat16, device="cuda")
work = {
    "copies to the GPU": lambda: on_gpu.copy_(pinned, non_blocking=True),
    "copies to the host": lambda: pinned.copy_(on_gpu, non_blocking=True),
    "products": lambda: matrix @ matrix,
}

def ms(*pieces):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for piece in pieces:
        with torch.cuda.stream(torch.cuda.Stream()):
            piece()
    torch.cuda.synchronize()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)

alone = {name: ms(piece) for name, piece in work.items()}
four = {name: ms(*[piece] * 4) for name, piece in work.items()}
print(json.dumps([alone, four, ms(*work.values())]))
"""


def test_streams_share_the_card(tmp_path):
    printed = emulate(SHARED, tmp_path)
    alone, four, together = json.loads(printed.splitlines()[0])
    for name, ms in four.items():
        times = ms / alone[name]
        assert 3.8 < times <= 4.1, f"four {name} on four streams take {times:.2f} times one"
    longest = max(alone.values())
    assert together < 1.1 * longest, "copies in both directions and a product hinder each other"
