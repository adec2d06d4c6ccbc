"""Promise: work takes time on an emulated card, by its kind, and so does its launch on the host."""

import re

import pytest
from helpers.emulated import NEEDS, emulate

from emulated_gpu import cards
from shared.lab.predict import times
from shared.lab.records import stored, time_errors

pytestmark = NEEDS

# On an A100: 312 TFLOP/s in bf16, 19.5 in fp32, 2,039 GB/s.
WORK = """
import torch
from emulated_gpu import process
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
print("right")
"""


def test_work_takes_what_it_is_and_what_the_card_is(tmp_path):
    assert "right\n" in emulate(WORK, tmp_path)


def test_a_card_on_which_published_runs_were_not_near_has_a_range():
    time = {"ms": 100.0, "busy_ms": 99.0, "pieces": 10}
    for name, card in cards.CARDS.items():
        errors = [
            time_errors.error(r)
            for r in stored.read(stored.PUBLISHED)
            if r["card"] == card.title and r["devices"] == 1 and r.get("time") and r["published_ms"]
        ]
        said = times.line(time, 40, card, 1)
        if errors and time_errors.nine_of_ten(errors) > time_errors.NEAR:
            low, high = map(int, re.match(r"An update takes (\d+) to (\d+) ms:", said).groups())
            longest = 100 / (1 + min(errors))
            assert low <= 100 <= high and high == pytest.approx(max(longest, 100), abs=1), name
            assert f"one {card.title} took" in times.note(card)
        else:
            assert said.startswith("An update takes about 100 ms:") and not times.note(card)
    assert times.line(time, 40, cards.CARDS["h200"], 4).startswith("An update takes at least 100")
