"""Promise: one command compares a GPU with the emulated one of its kind, and writes one file.

Here the GPU is emulated, too, so both are equal in everything.
"""

import json

import emulated
import pytest
from conftest import ROOT, run

from shared.evidence.calibrate import command

STAGES = ("08_fsdp/train",)

pytestmark = emulated.NEEDS


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What `python -m shared.evidence.calibrate` has written, and what it has printed."""
    out = tmp_path_factory.mktemp("calibrate")
    words = ["-m", "shared.emulator", "--devices", 2, "-m", "shared.evidence.calibrate", "08"]
    printed = run(*words, "--preset", "tiny", "--out", out, limit=600, EMULATE="")
    return json.loads((out / "measured.json").read_text()), printed


def test_memory_is_equal(found):
    measured, same = ({r["script"]: r for r in found[0][key]} for key in ("measured", "emulated"))
    assert {*measured} == {*same} == {*STAGES}
    for name in STAGES:
        assert measured[name]["train"] == same[name]["train"]
        assert measured[name]["load"] == same[name]["load"]
    assert len(command.rows(measured, same)[0]) == len(command.HEADING)


def test_events_are_equal(found):
    assert {*found[0]["events"]} == {*STAGES}
    for same, there, here in found[0]["events"].values():
        assert same == there == here > 100


def test_what_is_outside_has_its_places(found):
    outside = found[0]["outside"]
    assert [*outside["context"]][1:] == [
        "first tensor",
        "matrix product",
        "attention and its backward pass",
        "convolution and its backward pass",
    ]
    assert len(outside["nccl"]) == 2
    assert {*outside["convolutions"]} == {
        f"{kind}, {n} images" for kind in ("fp32", "fp16", "bf16") for n in (4, 16)
    }
    assert "in one file to send" in found[1]


def test_without_a_gpu_a_line_says_so(tmp_path):
    said = run("-m", "shared.evidence.calibrate", "--out", tmp_path, cwd=ROOT, code=2)
    assert "there is no GPU here" in said
