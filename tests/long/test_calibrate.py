"""Promise: one command measures a GPU, writes a file, and compares it with an emulated GPU.

Here the GPU is emulated, too, so both are equal in everything.
"""

import dataclasses

import pytest
from conftest import ROOT, run
from helpers import emulated

from shared.lab.evidence.calibrate import compare, files, runs
from shared.lab.records import stored

pytestmark = emulated.NEEDS
COMMAND = ["-m", "shared", "calibrate"]


NAMES = ["08_fsdp/ddp", "08_fsdp/train"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder in which scripts were measured on an emulated GPU, and each output."""
    out = tmp_path_factory.mktemp("calibrate")
    words = ["-m", "emulated_gpu", *COMMAND, "--out", out]
    return out, [run(*words, name, limit=600, EMULATE="") for name in NAMES]


@pytest.fixture(scope="module")
def folder(measured):
    """The same folder, with a comparison."""
    out, _ = measured
    run(*COMMAND, "--compare", out / "measured.jsonl.xz", "--out", out, limit=600)
    return out


def test_it_resumes(measured):
    """A run that the file has, here of no script, is not measured again."""
    _, (first, second) = measured
    for said in (first, second):
        assert ("- outside" in said) == (said is first) and "in one file to send" in said


def test_every_run_is_in_the_file(folder):
    _, lines = files.read(folder / "measured.jsonl.xz")
    assert {*map(runs.of_record, lines)} == {*runs.every(NAMES, set())}
    timed = [r for r in lines if r["kind"] == "time"]
    assert [len(r["update_ms"]) for r in timed] == [len(r["launch_ms"]) for r in timed] == [10, 10]
    tiny = next(r["record"] for r in lines if r["kind"] == "tiny")
    assert tiny["dataset"] == "digits" and tiny["steps"] > 50


def test_what_is_outside_grows_with_each_library(folder):
    _, lines = files.read(folder / "measured.jsonl.xz")
    steps = [*next(r["steps"] for r in lines if r["name"] == "context").values()]
    numbers = steps[:9]  # then come NCCL's own counts
    assert len(numbers) == 9 and numbers == sorted(numbers) and numbers[0] > 0


def test_memory_and_events_are_equal(folder):
    """Rank 0 beside fake ranks has the bytes of rank 0 beside copies of it.

    At the very end all ranks exchange their records, by other tensors where ranks are fake.
    """
    _, *compared = stored.read(folder / "measured-emulated.jsonl.xz")
    # Not of DDP: what PyTorch's thread still holds of its buckets depends on that thread.
    compared = [r for r in compared if r["name"] == NAMES[1]]
    assert {(r["devices"], r["expandable"]) for r in compared} == {
        (1, False),
        (4, False),
        (4, True),
    }
    for r in compared:
        assert r["measured_gb"] == r["emulated_gb"]
        equal, there, here = r["events"]
        other = 0 if r["devices"] == 1 else 20
        assert there > 1000 and there - equal <= other and here - equal <= other


def test_a_difference_is_counted():
    assert compare.equal_events("a 1\nf 1\na 2", "a 1\nf 1\na 2") == (3, 3, 3)
    assert compare.equal_events("a 1\nf 1\nf 2\na 2", "a 1\nf 2\nf 1\na 2") == (4, 4, 4)
    assert compare.equal_events("a 1\na 3\nf 1\na 2", "a 1\nf 1\na 2") == (3, 4, 3)


def test_the_stored_measurement_can_be_read():
    machine, lines = files.read(ROOT / "shared/lab/evidence/results/h200.jsonl.xz")
    assert compare.card_of(machine) == "h200"
    known = [field.name for field in dataclasses.fields(runs.Run) if field.name != "large"]
    assert all({*known} <= {*r} for r in lines)


def test_mistakes_are_told_in_one_line(tmp_path):
    said = run(*COMMAND, "--out", tmp_path, cwd=ROOT, code=2)
    assert "there is no GPU here" in said
    assert "there is no file" in run(*COMMAND, "--compare", tmp_path / "x", cwd=ROOT, code=2)
    (tmp_path / "other.xz").write_text("no")
    said = run(*COMMAND, "--compare", tmp_path / "other.xz", cwd=ROOT, code=2)
    assert "is not a file of a calibration" in said
