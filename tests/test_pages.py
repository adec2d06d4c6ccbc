"""Promise: what the pages say is what the code does: diffs, figures and commands."""

import json
import re
import subprocess

import pytest
from conftest import NAMES, ROADS, ROOT, TEXT, arguments, code_blocks, page_commands
from PIL import Image

from shared.lessons import exercises, pages, stored
from shared.records.record import RESULTS, TINY_MEASURED, by_script, read, read_list


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.parent.name)
def test_generated_parts_are_fresh(page):
    assert pages.fill(page) == page.read_text(), "python -m shared.lessons writes it anew"


def test_a_stale_part_would_be_noticed(tmp_path, monkeypatch, capsys):
    page = tmp_path / "06_sgd" / "README.md"
    page.parent.mkdir()
    fresh = pages.fill(ROOT / "06_sgd" / "README.md")
    page.write_text(re.sub(r"(\n\+ .*)torch\.optim\.SGD", r"\1torch.optim.SDG", fresh))
    assert pages.fill(page) == fresh != page.read_text()
    monkeypatch.setattr(pages, "pages", lambda: [page])
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    with pytest.raises(SystemExit) as end:
        pages.main(["--check"])
    assert end.value.code == 1 and "SDG" in page.read_text()
    assert "06_sgd/README.md is stale: python -m shared.lessons" in capsys.readouterr().out
    pages.main([])
    assert page.read_text() == fresh


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_records_were_made_with_code_that_is_committed():
    for file in RESULTS.glob("*.jsonl"):
        records, broken = read(file)
        assert not broken and records
        names = [r["script"] for r in records]
        whole = ROADS if file == stored.TINY_SIDE_ROADS else NAMES + TEXT
        assert names == whole or not file.name.startswith("tiny")
    files = {
        stored.PREDICTED,
        stored.TEXT,
        stored.PUBLISHED,
        stored.CARDS,
        stored.TENSORS,
        stored.CHECKED,
        stored.VITS,
    }
    files |= {stored.TIMELINES, stored.EXERCISES, *RESULTS.glob("*.jsonl")}
    files |= {stored.SIDE_ROADS, stored.VARIANTS, stored.LOST_UPDATES, stored.ONE_GPU, stored.GUIDE}
    for file in files:
        commits = set(re.findall(r'"git_commit": ("\w+"|null)', file.read_text()))
        assert commits and "null" not in commits, file
        for commit in commits:
            command = ["git", "-C", ROOT, "cat-file", "-e", commit.strip('"') + "^{commit}"]
            found = subprocess.run(command, capture_output=True)
            assert found.returncode == 0, f"{file}: {commit} is not in the history"


def test_the_record_is_what_is_measured_today(ladder):
    """Same bytes as in the committed record; where PyTorch is another version, within 5 %."""
    recorded = by_script(read(TINY_MEASURED)[0])
    assert list(recorded) == NAMES + TEXT == list(ladder[2])
    for name, record in ladder[2].items():
        now, then = record["train"], recorded[name]["train"]
        if record["versions"]["torch"] == recorded[name]["versions"]["torch"]:
            assert now == then
        else:
            assert now["device_peak_gb"] == pytest.approx(then["device_peak_gb"], rel=0.05)


def test_pictures_are_of_the_records():
    measured = by_script(read(TINY_MEASURED)[0])
    for picture, names, records in (
        ("tiny-cpu", NAMES + TEXT, measured),
        ("predicted-full", NAMES, stored.predictions()),
        ("predicted-full-11", TEXT, stored.predictions()),
    ):
        shown = json.loads(Image.open(RESULTS / f"{picture}.png").info["Description"])
        # As in records, older ones tell the folder alone.
        shown = {name if "/" in name else f"{name}/train": gb for name, gb in shown.items()}
        assert shown == {name: records[name]["train"]["device_peak_gb"] for name in names}


def test_full_size_on_a_cpu_was_as_predicted():
    records = by_script(read_list(stored.CHECKED))
    compared = {"04_batchsize/train", "05_grad_accum/train", "06_sgd/train", *TEXT}
    assert compared <= records.keys()
    for r in records.values():
        assert r["preset"] == "full"
        assert r["measured"]["model"] == r["model"] in ("vit_l_16", "distilbert-base-uncased")
        for phase in ("load", "train"):
            there = r["measured"][phase]["device_peak_gb"]
            assert r[phase]["device_peak_gb"] == pytest.approx(there, rel=0.01)


def test_first_command_is_the_ladder_of_these_tests(ladder):
    first, second = code_blocks(ROOT / "README.md")[:2]
    for command in (first, second):
        setup = [part.strip() for part in command.split("&&")[:-1]]
        install = ".venv/bin/pip install -q -r requirements.txt"
        assert setup == ["python3 -m venv .venv", install]
    assert arguments(first) == ["-m", "shared.ladder", "--preset", "tiny"]
    assert arguments(second) == ["-m", "pytest", "-q", "tests"]


def test_every_command_runs(trained):
    """Once in all tests: here, or in test_exercises.py."""
    commands = [command for command in page_commands() if "&&" not in command]
    assert len(commands) >= 2 * len(NAMES)
    in_exercises = {e.command for e in exercises.every()}
    for command in commands:
        assert command in in_exercises or command in trained, command
    assert len(trained) >= 3
    for command, (printed, _) in trained.items():
        assert "test accuracy" in printed or "-m" in arguments(command)


def test_the_readme_shows_what_its_command_prints(trained):
    """Its peaks to the byte, where PyTorch is of the record's version; other figures differ."""
    page = (ROOT / "README.md").read_text()
    blocks = r"```bash\n(python .*)\n```\n\n```text\n(.*?)```"
    command, shown = re.search(blocks, page, re.DOTALL).groups()
    printed, records = trained[command]
    recorded = read(TINY_MEASURED)[0][0]
    same = records[-1]["versions"]["torch"] == recorded["versions"]["torch"]
    peaks = 0
    for line in shown.splitlines():
        pattern = re.escape(line.replace(recorded["device"], "...")).replace(r"\.\.\.", ".*")
        if "peak" in line and same:
            peaks += 1
        else:
            pattern = re.sub(r"\d+(\\\.\d+)?", r"[\\d.]+", pattern)
        assert re.search(f"^{pattern}$", printed, re.MULTILINE), line
    assert peaks == 2 or not same


def test_the_readme_shows_the_diff_of_its_command():
    page = (ROOT / "README.md").read_text()
    command, shown = re.search(r"`(diff [^`]*)`[^`]*```diff\n(.*?)```", page, re.DOTALL).groups()
    _, before, after = command.split()
    assert (before.removesuffix(".py"), after.removesuffix(".py")) in zip(NAMES, NAMES[1:])
    done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == shown
