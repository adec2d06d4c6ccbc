"""Promise: what a real GPU's allocator did, event by event, is what the emulated one does."""

import pytest
from emulated import NEEDS

from shared.evidence.traces import command

pytestmark = NEEDS


@pytest.mark.parametrize("name", command.SOURCES)
def test_every_event_of_a_real_gpu(name):
    same, there, here = command.equal(name)
    assert same == there == here > 7000


def test_another_input_differs(monkeypatch):
    """The comparison can fail: 101 tokens instead of 100."""
    real = command.real("2025-train-100")
    monkeypatch.setattr(command, "real", lambda _: real)
    same, there, _ = command.equal("2025-train-101")
    assert same < there
