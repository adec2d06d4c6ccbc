"""Promise: what the pages say is what the code does: diffs, figures and commands."""

import json
import re
import subprocess

import pytest
from conftest import NAMES, ROOT, arguments, code_blocks, run
from PIL import Image
from versions import made_here

from shared.lessons import pages, pictures
from shared.predict.tables import needs
from shared.records import markdown, scripts, stored
from shared.records.views import RESULTS, TINY_MEASURED, read


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.parent.name)
def test_generated_parts_are_fresh(page):
    assert pages.fill(page) == page.read_text(), "python -m shared.lessons writes it anew"


def words(page):
    """Return how many words a page has, in prose and in tables; diffs and links do not count."""
    text = re.sub(r"```.*?```|<.*?>|(?<=\])\(.*?\)", "", page.read_text(), flags=re.DOTALL)
    found = [0, 0]
    for line in text.splitlines():
        found[line.startswith("|")] += len(re.findall(r"\w[\w.,/%-]*", line))
    return found


def test_pages_are_short():
    """A page of 08 and 11 may be longer: sharding and language models are several ideas."""
    lessons = {folder: words(ROOT / folder / "README.md") for folder in scripts.folders()}
    for folder, (prose, _) in lessons.items():
        assert prose <= (1200 if folder in ("08_fsdp", "11_llm") else 700), folder
    assert sum(map(sum, lessons.values())) <= 12_550 and sum(words(ROOT / "README.md")) <= 800
    assert sum(sum(words(page)) for page in pages.pages()) <= 24_750


def test_the_page_of_shared_names_all_that_is_there():
    page = (ROOT / "shared" / "README.md").read_text()
    there = {path.name for path in (ROOT / "shared").glob("[!._R]*")}  # no __init__.py, README.md
    assert {*re.findall(r"^\| \[`(.+?)/?`\]\(.+?\) \|", page, re.MULTILINE)} == there


def test_every_record_names_its_commit():
    for file in [*RESULTS.glob("*.json"), *RESULTS.glob("*.jsonl")]:
        commits = set(re.findall(r'"git_commit": ("[^"]+"|null)', file.read_text()))
        assert all(re.fullmatch(r'"[0-9a-f]{12}"', commit) for commit in commits), file


def test_pictures_are_of_the_records():
    shown = {file: tells for file, tells, _ in pictures.every()}
    assert {*shown} == {*RESULTS.parent.glob("*/*.png")}
    for file, tells in shown.items():
        assert json.loads(Image.open(file).info["Description"]) == tells, file


def test_the_two_commands_install_and_run():
    first, second = code_blocks(ROOT / "README.md")[:2]
    for command in (first, second):
        setup = [part.strip() for part in command.split("&&")[:-1]]
        install = ".venv/bin/pip install -q -r requirements.txt"
        assert setup == ["python3 -m venv .venv", install]
    assert arguments(first) == ["-m", "shared.ladder", "--preset", "tiny"]
    assert arguments(second)[:2] == ["-m", "pytest"] and arguments(second)[-1] == "tests"


def test_the_readme_shows_what_its_command_prints(tmp_path):
    """Its peaks to the byte, under the versions of the record; other figures differ."""
    page = (ROOT / "README.md").read_text()
    blocks = r"```bash\n(python .*)\n```\n\n```text\n(.*?)```"
    command, shown = re.search(blocks, page, re.DOTALL).groups()
    printed = run(*arguments(command), "--record", tmp_path / "record.jsonl")
    recorded = read(TINY_MEASURED)[0][0]
    peaks = 0
    for line in shown.splitlines():
        pattern = re.escape(line.replace(recorded["device"], "...")).replace(r"\.\.\.", ".*")
        if "peak" in line and made_here(recorded):
            peaks += 1
        else:
            pattern = re.sub(r"\d+(\\\.\d+)?", r"[\\d.]+", pattern)
        assert re.search(f"^{pattern}$", printed, re.MULTILINE), line
    assert peaks == 2 or not made_here(recorded)


def test_the_readme_begins_with_figures_of_its_table():
    train = [stored.predictions()[name]["train"] for name in NAMES]
    lines = [markdown.changed(*pair) for pair in zip(NAMES, NAMES[1:])]
    text, end = (ROOT / "README.md").read_text().split("\n\n")[2], train[-1]
    cards = [needs(stored.predictions()[name]) for name in (NAMES[0], NAMES[-1])]
    assert f"a card with {cards[0]:.0f} GB" in text
    on = f"{cards[1]:.1f} GB on each of four GPUs, {end['device_peak_gb']:.2f} GB of it for tensors"
    assert f"{on}, with {end['host_peak_gb']:.1f} GB of host memory" in text
    assert f" {min(lines)} to {max(lines)} lines " in text


def test_the_readme_shows_the_diff_of_its_command():
    page = (ROOT / "README.md").read_text()
    command, shown = re.search(r"`(diff [^`]*)`[^`]*```diff\n(.*?)```", page, re.DOTALL).groups()
    _, before, after = command.split()
    assert (before.removesuffix(".py"), after.removesuffix(".py")) in zip(NAMES, NAMES[1:])
    done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == shown
