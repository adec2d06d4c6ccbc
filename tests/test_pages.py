"""Promise: what the pages say is what the code does: diffs, figures and commands."""

import json
import re
import subprocess

import pytest
from conftest import NAMES, ROOT, TEXT, arguments, code_blocks, page_commands
from PIL import Image

from shared import exercises, lessons, stages

SECTIONS = ["Idea", "The diff", "Why the memory changes", "Measured", "What it costs", "Try it", "Sources"]


@pytest.mark.parametrize("page", lessons.pages(), ids=lambda p: p.parent.name)
def test_generated_parts_are_fresh(page):
    assert lessons.fill(page) == page.read_text(), "python -m shared.lessons writes it anew"


def test_a_stale_part_would_be_noticed(tmp_path, monkeypatch):
    page = tmp_path / "06_sgd" / "README.md"
    page.parent.mkdir()
    page.write_text((ROOT / "06_sgd" / "README.md").read_text().replace("torch.optim.SGD", "torch.optim.SDG"))
    assert lessons.fill(page) != page.read_text()
    monkeypatch.setattr(lessons, "pages", lambda: [page])
    monkeypatch.setattr(lessons, "ROOT", tmp_path)
    with pytest.raises(SystemExit) as end:
        monkeypatch.setattr(lessons, "PARTS", {**lessons.PARTS, **dict.fromkeys(("diff", "predicted", "measured"), lambda stage: "fresh")})
        lessons.main(["--check"])
    assert end.value.code == 1 and "SDG" in page.read_text()


@pytest.mark.parametrize("stage", NAMES)
def test_lesson_pages_have_all_sections(stage):
    text = (ROOT / stage / "README.md").read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    if stage != NAMES[0]:
        assert f"(../{NAMES[NAMES.index(stage) - 1]}/)" in text  # names its parent
    assert len(code_blocks(ROOT / stage / "README.md")) == 2  # its exercises


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_records_were_made_with_code_that_is_committed():
    commits = {r["git_commit"] for file in (lessons.PREDICTED, lessons.TEXT, lessons.LATE, lessons.CHECKED) for r in json.loads(file.read_text())}
    for file in stages.RESULTS.glob("*.jsonl"):
        records, broken = stages.records(file)
        assert not broken and records
        assert [stages.run_of(r) for r in records] == NAMES + TEXT or not file.name.startswith("tiny")
        commits |= {r["git_commit"] for r in records}
    for commit in commits:
        found = subprocess.run(["git", "-C", ROOT, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True)
        assert found.returncode == 0, f"{commit} is not in the history"


def test_the_record_is_what_is_measured_today(ladder):
    """Same bytes as in the committed record; where PyTorch is another version, within 5 %."""
    recorded = {stages.run_of(r): r for r in stages.records(stages.RESULTS / "tiny-cpu.jsonl")[0]}
    assert list(recorded) == NAMES + TEXT
    for name, record in ladder[2].items():
        now, then = record["train"], recorded[name]["train"]
        if record["versions"]["torch"] == recorded[name]["versions"]["torch"]:
            assert now == then
        else:
            assert now["device_peak_gb"] == pytest.approx(then["device_peak_gb"], rel=0.05)


def test_pictures_are_of_the_records():
    measured = {stages.run_of(r): r for r in stages.records(stages.RESULTS / "tiny-cpu.jsonl")[0]}
    for picture, runs, records in (("tiny-cpu", NAMES + TEXT, measured), ("predicted-full", NAMES, lessons.predictions()), ("predicted-full-11", TEXT, lessons.predictions())):
        shown = json.loads(Image.open(stages.RESULTS / f"{picture}.png").info["Description"])
        assert shown == {run: records[run]["train"]["device_peak_gb"] for run in runs}


def test_full_size_on_a_cpu_was_as_predicted():
    records = json.loads(lessons.CHECKED.read_text())
    assert {"04_batchsize", "05_grad_accum", "06_sgd", *TEXT} <= {stages.run_of(r) for r in records}
    for r in records:
        assert r["preset"] == "full" and r["measured"]["model"] == r["model"] in ("vit_l_16", "distilbert-base-uncased")
        for phase in ("load", "train"):
            assert r[phase]["device_peak_gb"] == pytest.approx(r["measured"][phase]["device_peak_gb"], rel=0.01)


def test_first_command_is_the_ladder_of_these_tests(ladder):
    first, second = code_blocks(ROOT / "README.md")[:2]
    for command in (first, second):
        setup = [part.strip() for part in command.split("&&")[:-1]]
        assert setup == ["python3 -m venv .venv", ".venv/bin/pip install -q -r requirements.txt"]
    assert arguments(first) == ["-m", "shared.ladder", "--preset", "tiny"]
    assert arguments(second) == ["-m", "pytest", "-q", "tests"]


def test_every_command_runs(trained):
    """Once in all tests: here, in test_exercises.py, or in test_predict.py."""
    commands = [command for command in page_commands() if "&&" not in command]
    assert len(commands) >= 2 * len(NAMES)
    elsewhere = {"python -m shared.predict", *(e.command for e in exercises.EXERCISES)}
    for command in commands:
        assert command in elsewhere or command in trained, command
    assert len(trained) >= 3
    for command, (printed, _) in trained.items():
        assert "test accuracy" in printed or "-m" in arguments(command)


def test_scripts_named_on_the_pages_exist():
    for page in lessons.pages():
        for path in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / path).exists(), f"{page}: {path}"
        for path in re.findall(r"(?:python|torchrun)[^`\n]*? (\d\d_\w+/\w+\.py)", page.read_text()):
            assert (ROOT / path).exists(), f"{page}: {path}"
