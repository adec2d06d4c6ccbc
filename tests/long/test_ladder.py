"""Promise: the README's command measures the ladder, here half of it, and stages learn."""

import re

import pytest
from conftest import NAMES, ROOT, SHARDED, TEXT, arguments, code_blocks, page_commands, run
from helpers.emulated import NEEDS
from helpers.predictions import predicted
from helpers.single_process import TINY

from emulated_gpu import cards
from shared.lab.ladder import command as ladder_command
from shared.lab.ladder import fingerprint
from shared.lab.predict.jobs import run_jobs
from shared.lab.records.exercises import every
from shared.lab.records.reading import by_script, read

HALF = [NAMES[0], NAMES[2], NAMES[5], NAMES[-1], *TEXT]


@pytest.fixture(scope="module")
def ladder(tmp_path_factory):
    """Half of the ladder, measured by the README's command: (folder, output, records)."""
    out = tmp_path_factory.mktemp("ladder")
    command = code_blocks(ROOT / "README.md")[1]
    printed = run(*arguments(command), ",".join(HALF), "--out", out, limit=900)
    records, broken = read(out / "ladder.jsonl")
    assert broken == 0
    return out, printed, by_script(records)


def test_every_stage_has_a_record(ladder):
    _, printed, records = ladder
    assert list(records) == HALF
    several = {*SHARDED, "11_llm/train"}
    for name in HALF:
        assert re.search(rf"(?m)^{name} +starts$", printed)
        assert records[name]["world_size"] == (4 if name in several else 1)
        assert records[name]["steps"] > 3
    assert (ladder[0] / "ladder.png").read_bytes().startswith(b"\x89PNG")


def test_fine_tuning_works_at_every_stage(ladder):
    accuracy = [ladder[2][name]["test_accuracy"] for name in HALF if name in NAMES]
    assert min(accuracy) >= 0.93
    assert min(accuracy) >= accuracy[0] - 0.03
    assert min(ladder[2][name]["test_accuracy"] for name in TEXT) >= 0.8


def test_a_stage_that_fails_is_shown_and_the_others_run(tmp_path):
    options = [*TINY, "--devices", 8, "--max-steps", 4, "--out", tmp_path]
    printed = run("-m", "shared", "ladder", "08_fsdp/pipeline,06", *options, code=1)
    assert "08_fsdp/pipeline         FAILED" in printed
    assert "vit_tiny has only 4 blocks to divide" in printed
    assert "06_sgd/train             done" in printed
    assert [r["script"] for r in read(tmp_path / "ladder.jsonl")[0]] == ["06_sgd/train"]


def test_one_gpu_has_a_ladder_of_its_own(tmp_path):
    options = "--one-gpu --preset tiny --max-steps 2 --out".split()
    run("-m", "shared", "ladder", *options, tmp_path)
    records = by_script(read(tmp_path / "ladder.jsonl")[0])
    further = ["06_sgd/adam_on_host", "09_act_ckpt/one_gpu", "10_offload/activations_only"]
    assert sorted(records) == sorted([*NAMES[:7], *further])
    assert {r["world_size"] for r in records.values()} == {1}


def test_a_measurement_depends_on_no_table():
    """A change in one would repeat every measurement."""
    files = {file.name for file in fingerprint._files(NAMES[0])}
    assert {"train.py", "metrics.py", "ledger.py", "data.py", "running.py"} <= files
    assert not {"markdown.py", "formats.py", "ladder_table.py", "__main__.py"} & files


@NEEDS
def test_a_gpu_is_compared_with_the_prediction_for_its_kind():
    """The same as the predictor prints for the same options."""
    args = ladder_command.make_parser().parse_args(["--preset", "tiny"])
    chosen = ladder_command.choose(args, ["05_grad_accum/train", "11_llm/train"])
    jobs = ladder_command.prediction_jobs(args, chosen, cards.CARDS["l4"], devices=2)
    wanted = ["05", "11_llm/train", "--preset", "tiny", "--devices", "2"]
    printed = predicted(*wanted, "--card", "l4")
    for record in run_jobs(jobs):
        assert record["train"] == printed[record["script"]]["train"]


def test_every_command_on_the_pages_runs(tmp_path):
    """Commands of the exercises run in test_exercises.py, all others here."""
    commands = {command for command in page_commands() if "&&" not in command}
    assert len(commands) >= 2 * len(NAMES)
    for command in commands - {e.command for e in every()}:
        few = ["--max-steps", 2, "--record", tmp_path / "record.jsonl"]
        words = arguments(command)
        printed = run(*words, *([] if "-m" in words else few))
        assert "test accuracy" in printed or "-m" in words
