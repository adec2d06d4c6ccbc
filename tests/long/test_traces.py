"""Promise: the emulated GPU's allocator repeats the traces of real GPUs, event by event."""

import io
import pickle

import pytest
from helpers.emulated import NEEDS

from shared.lab.proof.traces import command, compare_events, unedited
from shared.lab.records import stored

pytestmark = NEEDS


@pytest.mark.parametrize("name", command.SOURCES)
def test_every_event_of_a_real_gpu(name):
    real, emulated = command.real(name), command.emulated(name)
    known = {"equal", "order of frees"} if name.endswith("bf16") else {"equal"}
    assert compare_events.verdict(real, emulated) in known
    assert compare_events.equal(real, emulated) == len(real) == len(emulated) > 7000


def test_another_input_differs():
    """The comparison can fail: 129 tokens instead of 128."""
    real, emulated = command.real("train-128"), command.emulated("train-129")
    assert compare_events.verdict(real, emulated) == "different"
    assert compare_events.equal(real, emulated) < len(real)


def test_frees_are_compared_without_their_order():
    events = ["alloc 512", "alloc 1024", "free_completed 512", "free_completed 1024"]
    turned = [*events[:2], *events[:1:-1]]
    assert compare_events.verdict(events, events) == "equal"
    assert (
        compare_events.verdict(events, turned) == "order of frees"
        and compare_events.equal(events, turned) == 4
    )
    assert compare_events.verdict(events, [events[1], events[0], *events[2:]]) == "different"
    assert compare_events.verdict(events, [*events[:3], "free_completed 2048"]) == "different"


def test_a_snapshot_runs_no_code():
    class Code:
        def __reduce__(self):
            return print, ("ran",)

    with pytest.raises(pickle.UnpicklingError, match="print is not read"):
        unedited.Numbers(io.BytesIO(pickle.dumps(Code()))).load()


def test_each_script_has_a_record():
    rows, records = unedited.rows(), stored.read(stored.TRACES)
    assert [row["name"] for row in rows] == [r["name"] for r in records]
    for r in records:
        assert (r["verdict"] == "different") == (r["equal"] < r["events"])
        assert r["equal"] / r["events"] > 0.999
        assert r["emulated_reserved"] == pytest.approx(r["reserved"], rel=5e-3)
