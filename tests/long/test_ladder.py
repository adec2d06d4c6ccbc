"""Promise: the README's command measures the ladder, here two scripts of it, and stages learn."""

import dataclasses
import re

import pytest
from conftest import NAMES, ROOT, SHARDED, TEXT, arguments, code_blocks, page_commands, run
from helpers.emulated import NO_COMPILER
from helpers.single_process import TINY
from helpers.today import DAY, some

from emulated_gpu import cards
from shared.lab.ladder import command as ladder_command
from shared.lab.ladder import fingerprint
from shared.lab.predict import options, selection
from shared.lab.records import scripts, stored
from shared.lab.records.exercises import every
from shared.lab.records.reading import by_script, read

PART = [*some("images", NAMES, 1), *some("texts", TEXT, 1)]


@pytest.fixture(scope="module")
def ladder(tmp_path_factory):
    """A part of the ladder, measured by the README's command: (folder, output, records)."""
    out = tmp_path_factory.mktemp("ladder")
    command = code_blocks(ROOT / "README.md")[1]
    words = *arguments(command), ",".join(PART), "--out", out
    printed = run(*words, limit=900, **NO_COMPILER)  # which it does not need
    records, broken = read(out / "ladder.jsonl")
    assert broken == 0
    return out, printed, by_script(records)


def test_every_stage_has_a_record(ladder):
    _, printed, records = ladder
    assert list(records) == PART
    several = {*SHARDED, "11_llm/train"}
    for name in PART:
        assert re.search(rf"(?m)^{name} +starts$", printed)
        assert records[name]["world_size"] == (4 if name in several else 1)
        assert records[name]["steps"] > 3
    assert (ladder[0] / "ladder.png").read_bytes().startswith(b"\x89PNG")


def test_fine_tuning_works_at_every_stage(ladder):
    """As the stored records say of all stages."""
    records = {**stored.measurements(stored.TINY_MEASURED), **ladder[2]}
    first = records[NAMES[0]]["test_accuracy"]
    for name, record in records.items():
        least = 0.8 if name in TEXT else max(0.93, first - 0.03)
        assert record["test_accuracy"] >= least, name


def test_a_stage_that_fails_is_shown_and_the_others_run(tmp_path, capsys):
    options = [*TINY, "--devices", "8", "--max-steps", "4", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as end:
        ladder_command.main(["08_fsdp/pipeline,06", *options])
    assert end.value.code == 1
    printed = capsys.readouterr().out
    assert "08_fsdp/pipeline         FAILED" in printed
    assert "vit_tiny has only 4 blocks to divide" in printed
    assert "06_sgd/train             done" in printed
    assert [r["script"] for r in read(tmp_path / "ladder.jsonl")[0]] == ["06_sgd/train"]


def test_one_gpu_has_a_ladder_of_its_own(tmp_path, monkeypatch):
    asked = []

    def measure(args, chosen):
        asked.extend((args.devices, name) for name in chosen)
        return []

    monkeypatch.setattr(ladder_command, "measure", measure)
    with pytest.raises(SystemExit):  # since nothing is measured
        ladder_command.main([*"--one-gpu --preset tiny --out".split(), str(tmp_path)])
    assert sorted(asked) == sorted((1, name) for name in [*NAMES[:7], *scripts.ON_ONE_GPU])


def test_a_measurement_depends_on_no_table():
    """A change in one would repeat every measurement."""
    files = {file.name for file in fingerprint._files(NAMES[0])}
    assert {"train.py", "metrics.py", "ledger.py", "data.py", "running.py"} <= files
    assert not {"markdown.py", "formats.py", "ladder_table.py", "__main__.py"} & files


def test_a_gpu_is_compared_with_the_prediction_for_its_kind():
    """With the run that the predictor makes of the same options."""
    args = ladder_command.make_parser().parse_args(["--preset", "tiny"])
    chosen = ladder_command.choose(args, ["05_grad_accum/train", "11_llm/train"])
    jobs = ladder_command.prediction_jobs(args, chosen, cards.CARDS["l4"], devices=2)
    wanted = ["05", "11_llm/train", "--preset", "tiny", "--devices", "2"]
    runs = selection.runs(options.parse([*wanted, "--card", "l4"]))
    for (_, *job), (script, settings), data in zip(jobs, runs, ("digits", "reviews"), strict=True):
        assert job == [script, dataclasses.replace(settings, words=("--data", data))]


def test_commands_on_the_pages_run(tmp_path):
    """Some of them, other ones each day; those of the exercises run in test_records_of_today.py."""
    commands = {command for command in page_commands() if "&&" not in command}
    assert len(commands) >= 2 * len(NAMES)
    for command in some("commands", sorted(commands - {e.command for e in every()})):
        few = ["--max-steps", 2, "--record", tmp_path / "record.jsonl"]
        words = arguments(command)
        printed = run(*words, *([] if "-m" in words else few))
        assert "test accuracy" in printed or "-m" in words, f"{command}, of {DAY}"
