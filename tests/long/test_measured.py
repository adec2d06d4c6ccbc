"""Promise: the pages' statements about a real GPU agree with its records."""

import statistics

import pytest
import torch
from conftest import ROOT, run
from helpers import emulated
from helpers.today import some

from emulated_gpu import cards
from shared.lab.evidence.calibrate import compare, files, measure
from shared.lab.evidence.calibrate.runs import of_record
from shared.lab.lessons import times as lessons_times
from shared.lab.predict import tables
from shared.lab.predict.jobs import run_jobs
from shared.lab.records import measured, scripts
from shared.lab.records.reading import read
from shared.lab.records.time_errors import nine_of_ten

LINES = measured.lines()


def times(name, *sizes):
    return measured.updates(name, *sizes)


def slower(name, than):
    """Return the ratio of the times of an update of two scripts."""
    return times(name).median / times(than).median


def rate(name, *sizes):
    """Return the images per second beside those of 03."""
    return times(name, *sizes).per_second / times("03_bf16/train").per_second


def recomputed(*sizes):
    """Return the ratio of the times of an update with and without checkpointing, on one GPU."""
    return times("09_act_ckpt/one_gpu", *sizes).median / times(FIVE, *sizes).median


def at_most(name):
    return measured.most_per_second(name, 4)


ONE, TWO, THREE, FOUR, FIVE, SIX, _, EIGHT, NINE, TEN = scripts.ladder()
(GRAPHS,) = (r["figures"]["4x1"] for r in LINES if r["kind"] == "graphs")
OF_4090 = cards.CARDS["rtx4090"].rates.half / cards.CARDS["h200"].rates.half

# Statements of pages in words: page, sentence, the figure in it, and that of the records.
SAID = [
    ("README", "together also train seven times faster", 7, 1 / slower(THREE, ONE)),
    ("02_*/README", "six times as fast as 01", 6, 1 / slower(TWO, ONE)),
    ("02_*/README", "alone makes it three times as fast", 3, 1 / slower("01_baseline/tf32", ONE)),
    ("03_*/README", "saves a fifth", 0.2, 1 - slower(THREE, TWO)),
    (
        "03_*/README",
        "a quarter of all kernels",
        0.25,
        1 - times(THREE).kernels / times(TWO).kernels,
    ),
    ("08_*/README", "at most 127 images/s", 127, at_most(EIGHT)),
    ("09_*/README", "With 64 images at once, an update takes [a third", 4 / 3, recomputed(64, 64)),
    ("09_*/README", "checkpointing doubles an update", 2, recomputed(16, 4)),
    ("09_*/README", "127 images/s become 90", 90, at_most(NINE)),
    ("10_*/README", "90 images/s become 68", 68, at_most(TEN)),
    ("11_*/README", "four H200s process at most 96 texts/s", 96, at_most("11_llm/train")),
    ("11_*/README", "with `before.py` 236", 236, times("11_llm/before").per_second),
    ("04_*/README", "an epoch takes almost three times as long", 3, 1 / rate(FOUR)),
    ("05_*/README", "four times as many kernels", 4, times(FIVE).kernels / times(FOUR).kernels),
    *(
        ("05_*/README", "[three to five times as long]", said, slower(name, FOUR))
        for name, said in ((SIX, 3), (FIVE, 5))
    ),
    ("05_*/README", "*and* make training seven times faster", 7, 1 / slower(THREE, ONE)),
    ("05_*/README", "each of which takes the host about 30 µs", 30, measured.LAUNCH_US),
    ("05_*/README", "RTX 4090 gets by with 7", 7, times(THREE).enough * OF_4090),
    (
        "05_*/README",
        "a fifth of the time for 4 images",
        0.2,
        GRAPHS["graph_ms"][0] / GRAPHS["eager_ms"][0],
    ),
]


@pytest.mark.parametrize(("page", "words", "said", "true"), SAID, ids=[row[1] for row in SAID])
def test_sentences_on_time(page, words, said, true):
    (file,) = ROOT.glob(f"{page}.md")
    assert words in file.read_text()
    assert said == pytest.approx(true, rel=0.2)


def test_the_host_sets_the_pace_from_04_on():
    """The update ends when the host has started all of it; in 01 and 03 the GPU is the limit."""
    for run_ in measured.times():
        waits = run_.launch_ms > 0.97 * run_.median
        if run_.name.startswith(("01", "03")) or run_.name[:2] == "05" and run_.at_a_time == 64:
            assert not waits, run_
        elif run_.name.startswith(("04", "05", "06", "02_mixed_precision/train")):
            assert waits, run_
    paced = [r.launch_us for r in measured.times() if r.name[:2] in ("04", "05", "06")]
    assert measured.LAUNCH_US == pytest.approx(sorted(paced)[len(paced) // 2], abs=4)


def test_paces_of_the_host():
    """As the emulator's page says; in others the host computes, too, or runs hooks in Python."""
    busy = ("06_sgd/adam_on_host", "10_offload/train", "11_llm/train")
    busy += ("09_act_ckpt/one_gpu", "09_act_ckpt/train")
    paces = [run_.launch_us for run_ in measured.times() if run_.paced and run_.name not in busy]
    said = f"{min(paces):.0f} to {max(paces):.0f} [beside an H200]"
    assert said in (ROOT / "shared/emulator/README.md").read_text()


def test_scripts_of_the_same_kernels_have_one_speed():
    """05 to 07: the range of their medians, which the README has, and of all their updates."""
    ladder = scripts.ladder()
    shown = [measured.images_per_second(name, ladder) for name in ladder[:7]]
    assert len({*shown[4:]}) == 1 and len({*shown}) == 5
    medians = [times(name).per_second for name in ladder[4:7]]
    rates = [16e3 / ms for name in ladder[4:7] for ms in times(name).ms]
    ranges = [round(limit(figures)) for figures in (medians, rates) for limit in (min, max)]
    assert shown[-1] == "{} to {} ({}–{})".format(*ranges)
    page = (ROOT / "08_fsdp/README.md").read_text()
    assert "hardly more than one ({}–{})".format(*ranges[2:]) in page


def test_a_pass_costs_the_same_of_4_images_and_of_16():
    four, sixteen = times("06_sgd/train", 16, 4), times("06_sgd/train", 64, 16)
    assert four.passes == sixteen.passes == 4
    assert min(four.ms) <= max(sixteen.ms) and min(sixteen.ms) <= max(four.ms)


def test_allowances_are_those_measured():
    (steps,) = (r["steps"] for r in LINES if r["kind"] == "outside" and r["name"] == "context")
    assert cards.CONTEXT_GB == round(steps["convolution and its backward pass"] / 1e9, 2)
    nccl = steps["NCCL, one rank"] - steps["fft"]
    assert tables.NCCL_GB == round(nccl / 1e9, 2)


def test_stages_have_the_emulated_peaks():
    runs = measured.compared()
    by_run = {of_record(r): r for r in LINES if r["kind"] == "memory"}
    assert {*by_run} == {of_record(r) for r in runs}
    for r in runs:
        assert all(abs(gb) < 1e-5 for what, gb in r["more_gb"].items() if what != "rounding"), r
        assert r["measured_gb"] == compare.peaks(by_run[of_record(r)])
        for key in compare.COUNTED:
            assert r["emulated_gb"][key] == pytest.approx(r["measured_gb"][key], rel=0.013), r
        if r["name"] in scripts.stages():
            near = pytest.approx(r["measured_gb"]["allocated"], rel=3e-4)
            assert r["emulated_gb"]["allocated"] == near


def test_emulated_times_are_near():
    """Beside a host of another pace than theirs; a part of the runs set the rates of clock.c."""
    for key, half, most in (("busy_ms", 0.1, 0.25), ("ms", 0.15, 0.6)):
        off = lessons_times.emulated_errors(key)
        assert len(off) > 30
        assert statistics.median(off) < half and nine_of_ten(off) < most, f"{key}: {off}"


@pytest.mark.skipif(
    not torch.__version__.startswith("2.11.0"), reason="the record was made with PyTorch 2.11.0"
)
@emulated.NEEDS
def test_emulated_peaks_are_as_stored(tmp_path):
    """Under PyTorch 2.11 alone, with the other packages of requirements.txt."""
    runs = measured.compared()
    wanted = [r for r in runs if r["name"] in ("03_bf16/train", "06_sgd/train")]
    file = tmp_path / "emulated.jsonl"
    measure.append(file, measured.machines()[0])
    run_jobs([(measure.emulated, of_record(r), cards.CARDS["h200"], file) for r in wanted])
    found = {of_record(r): compare.peaks(r) for r in files.read(file)[1]}
    assert found == {of_record(r): r["emulated_gb"] for r in wanted} and len(found) == 3


def test_checkpointing_beats_small_micro_batches():
    """As page 09 says of 64 images at a time beside 06 with 16."""
    checkpointed, small = times("09_act_ckpt/one_gpu", 64, 64), times("06_sgd/train", 64, 16)
    assert checkpointed.peak_gb == pytest.approx(small.peak_gb / 2, rel=0.1)
    assert checkpointed.per_second == pytest.approx(1.6 * small.per_second, rel=0.1)


@pytest.mark.parametrize("name", some("learned", ["06_sgd/train", "11_llm/train"], 1))
def test_a_cpu_learns_what_the_gpu_has_learned(name, tmp_path):
    (there,) = (r["record"] for r in LINES if r["kind"] == "tiny" and r["name"] == name)
    words = ["--devices", 1] if name.startswith("11") else []
    file = tmp_path / "record.jsonl"
    run(f"{name}.py", "--preset", "tiny", "--max-steps", there["steps"], *words, "--record", file)
    ((here,), _) = read(file)
    for key in ("first_loss", "last_loss"):
        assert here[key] == pytest.approx(there[key], rel=0.01)
    for key in ("train_accuracy", "val_accuracy", "test_accuracy"):
        assert here[key] == pytest.approx(there[key], abs=0.01)
