"""Promise: where the host's pace decides about memory, a prediction is a range, with the reason."""

import pytest
from conftest import run
from helpers.emulated import NEEDS
from helpers.own import answer

from emulated_gpu.why import pace

pytestmark = NEEDS

# Copies of 0.33 ms each: the host starts ten kernels between two, so a fast one runs ahead.
COPIES = """
import torch
side = torch.cuda.Stream()
small = torch.zeros(1, device="cuda")
for _ in range(64):
    x = torch.empty(1 << 21, device="cuda")
    for _ in range(KERNELS):
        small.add_(1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.empty(1 << 21, pin_memory=True).copy_(x, non_blocking=True)
    x.record_stream(side)
"""
REASON = "mine.py:12"


def test_a_range_where_the_pace_decides(tmp_path):
    text = COPIES.replace("KERNELS", "9")
    printed, record = answer(text, tmp_path)
    least, most = record["pace"]["device_reserved_gb"]
    assert least <= record["train"]["device_reserved_gb"] < 0.1 < 0.3 < most
    assert "device_peak_gb" not in record["pace"]  # the program itself holds one tensor
    (reason,) = record["kept_by"]
    assert reason.endswith(REASON)
    assert f"{least:.3g} to {most:.3g} GB reserved" in printed
    assert "GB reserved, depending on how fast the host is (5 to 60 µs for a kernel)" in printed
    assert f"your script needs {most + 0.74:.2f} GB with" in printed


def test_one_figure_where_it_does_not(tmp_path):
    """A copy ends before the next one begins, even beside the fast host."""
    text = COPIES.replace("KERNELS", "99")
    _, record = answer(text, tmp_path)
    assert record["kept_by"] and "pace" not in record and not pace.lines(record)


@pytest.mark.parametrize("name, decides", [("08_fsdp/fsdp1", True), ("08_fsdp/ddp", False)])
def test_of_this_repository(name, decides):
    printed = run("-m", "shared", "predict", name)
    assert ("depending on how fast the host is" in printed) is decides
    assert ("08_fsdp/fsdp1.py:" in printed) is decides
