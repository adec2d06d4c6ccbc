"""Promise: pieces of work are the same each time, and their overlap is as shown."""

import pytest

from shared.lab.evidence import streams as made
from shared.lab.lessons import streams
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict_work


@pytest.fixture(scope="module")
def runs():
    """The results of predict_work() for 07, 08 and 10, tiny, and for 08 again."""
    names = "07_init_module/train", "08_fsdp/train", "10_offload/train", "08_fsdp/train"
    options = Wanted("tiny", host_us=made.LAUNCH_US)
    jobs = [(predict_work, name, options) for name in names]
    one, *several, again = run_jobs(jobs)
    return one, *several, again


def test_no_time_of_this_machine_is_in_it(runs):
    _, sharded, _, again = runs
    assert sharded == again


def test_kinds_and_streams(runs):
    one, sharded, offloaded, _ = runs
    assert {kind for kind, *_ in one} == {"product", "kernel"}
    assert {stream for _, stream, *_ in one} == {0}
    for pieces in (sharded, offloaded):
        sends = {stream for kind, stream, *_ in pieces if kind == "send"}
        (computes,) = {stream for kind, stream, *_ in pieces if kind == "product"}
        assert len(sends) == 2 and computes not in sends
    copies = [sum(kind == "copy" for kind, *_ in pieces) for pieces in (sharded, offloaded)]
    assert copies[1] > 2 * copies[0]


def test_work_of_a_stream_does_not_overlap(runs):
    for pieces in runs:
        ends = {}
        for _, stream, begin, end in pieces:
            assert ends.get(stream, 0) <= begin + 1e-9 and begin < end
            ends[stream] = end


def test_overlap_and_joining():
    """Worked out by hand: of 3 ms sent, 1 is beside products, 1 beside a kernel, 1 alone."""
    pieces = [["product", 0, 0, 2], ["send", 1, 1, 4], ["kernel", 0, 2, 3]]
    assert streams.hidden(pieces, "send") == pytest.approx(2 / 3)
    assert streams.hidden(pieces, "copy") is None
    assert made.busy(pieces)["send"] == 3
    assert streams.by_stream(pieces) == {0: 3, 1: 3}
    near = [["send", 1, 0, 1], ["product", 0, 0, 1], ["send", 1, 1.01, 2], ["send", 1, 3, 4]]
    assert made.joined(near) == [["send", 1, 0, 2], ["product", 0, 0, 1], ["send", 1, 3, 4]]


def test_the_stored_pieces_are_current():
    """Their number may differ with PyTorch, but not the kinds that overlap."""
    options = Wanted("full", host_us=made.LAUNCH_US)
    jobs = [(predict_work, name, options) for name in made.SHOWN]
    for entry, pieces in zip(streams.stored_entries(), run_jobs(jobs), strict=True):
        now = made.joined(pieces)
        assert len(pieces) * made.LAUNCH_US / 1e3 < 0.9 * entry["ms"]  # the GPU sets the pace
        for kind in ("send", "copy"):
            both = streams.hidden(now, kind), streams.hidden(entry["pieces"], kind)
            assert both[0] == pytest.approx(both[1], abs=0.1)
        assert max(end for *_, end in now) == pytest.approx(entry["ms"], rel=0.1)
