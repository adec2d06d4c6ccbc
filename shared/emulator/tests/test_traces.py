"""Promise: the emulated GPU's allocator repeats the traces of real GPUs, event by event."""

import io
import pickle

import pytest
from conftest import NEEDS

from proof import records, rows, traces

pytestmark = NEEDS


@pytest.mark.parametrize("name", traces.STORED)
def test_every_event_of_a_real_gpu(name):
    real, emulated = traces.real(name), traces.emulated(name)
    known = {"equal", "order of frees"} if name.endswith("bf16") else {"equal"}
    assert traces.verdict(real, emulated) in known
    assert traces.equal(real, emulated) == len(real) == len(emulated) > 7000


def test_another_input_differs():
    """The comparison can fail: 129 tokens instead of 128."""
    real, emulated = traces.real("train-128"), traces.emulated("train-129")
    assert traces.verdict(real, emulated) == "different"
    assert traces.equal(real, emulated) < len(real)


def test_frees_are_compared_without_their_order():
    events = ["alloc 512", "alloc 1024", "free_completed 512", "free_completed 1024"]
    turned = [*events[:2], *events[:1:-1]]
    assert traces.verdict(events, events) == "equal"
    assert traces.verdict(events, turned) == "order of frees" and traces.equal(events, turned) == 4
    assert traces.verdict(events, [events[1], events[0], *events[2:]]) == "different"
    assert traces.verdict(events, [*events[:3], "free_completed 2048"]) == "different"


def test_a_snapshot_runs_no_code():
    class Code:
        def __reduce__(self):
            return print, ("ran",)

    with pytest.raises(pickle.UnpicklingError, match="print is not read"):
        traces.Numbers(io.BytesIO(pickle.dumps(Code()))).load()


def test_each_script_has_a_record():
    stored = records.read("traces")
    names = [row["name"] for source in rows.TRACES for row in source["rows"]]
    assert names == [r["name"] for r in stored]
    for r in stored:
        assert (r["verdict"] == "different") == (r["equal"] < r["events"])
        assert r["equal"] / r["events"] > 0.999
        assert r["emulated_reserved"] == pytest.approx(r["reserved"], rel=5e-3)
