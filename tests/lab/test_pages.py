"""Promise: the diffs, figures and commands on the pages are those of the code."""

import json
import lzma
import re
import subprocess
import zlib

import pytest
from conftest import NAMES, ROOT, arguments, run
from helpers.emulated import NEEDS
from helpers.versions import installed, made_here
from packaging.version import Version
from PIL import Image

from shared.lab.lessons import pages, pictures, proof
from shared.lab.records import scripts, stored
from shared.lab.records.reading import read
from shared.lab.records.stored import RESULTS, TINY_MEASURED


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.parent.name)
def test_generated_parts_are_fresh(page):
    assert pages.fill(page) == page.read_text(), "python -m shared lessons writes it anew"


def words(page):
    """Return how many words a page has, in prose and in tables.

    Code, the targets of links and the texts in place of pictures do not count.
    """
    text = re.sub(r"```.*?```|<.*?>|!\[.*?\]|(?<=\])\(.*?\)", "", page.read_text(), flags=re.DOTALL)
    found = [0, 0]
    for line in text.splitlines():
        found[line.startswith("|")] += len(re.findall(r"\w[\w.,/%-]*", line))
    return found


def test_pages_are_short():
    """A page has room to explain, and is read in one go."""
    for folder in scripts.folders():
        prose, _ = words(ROOT / folder / "README.md")
        assert prose <= 900, folder
    assert sum(words(ROOT / "README.md")) <= 650


def test_the_first_page_says_how_many_published_figures_are_near():
    table = proof.how_right(ROOT / "shared" / "lab" / "evidence")
    known = r"settings known \| (\d+) figures .* \| (\d+) within 2% "
    figures, near = re.search(known, table).groups()
    text = (ROOT / "README.md").read_text("utf-8")
    assert f"Of {figures} [published figures]" in text
    assert f"with known settings, {near} come out within 2 %" in text
    large = [r for r in stored.read(stored.PUBLISHED) if r["source"] == "torchtitan 2024"]
    assert f"torchtitan's {len(large)}, on 8 to 512 GPUs, all within 2 %" in text
    assert all(abs(proof.error(r)) < 0.02 for r in large)
    page = (ROOT / "shared/lab/evidence/README.md").read_text("utf-8")
    assert "18 published rows say, within 2 %" in page


def test_the_page_of_shared_names_all_that_is_there():
    page = (ROOT / "shared" / "README.md").read_text()
    folders = ROOT / "shared", ROOT / "shared" / "lab"
    there = {path.name for folder in folders for path in folder.glob("[!._R]*")}  # no __init__.py
    assert {*re.findall(r"^\| \**\[`(.+?)/?`\]\(", page, re.MULTILINE)} == there


def test_every_record_names_its_commit():
    for file in [*RESULTS.glob("*.json*"), *stored.PROOF.iterdir()]:
        opened = lzma.open if file.suffix == ".xz" else open
        with opened(file, "rt", encoding="utf-8") as text:
            commits = re.findall(r'"git_commit": ?("[^"]+"|null)', text.read())
        assert commits, file
        assert all(re.fullmatch(r'"[0-9a-f]{12}"', commit) for commit in commits), file


def test_the_records_stay_small():
    """Each clone of the repository fetches all versions of them, compressed by git."""
    files = [*RESULTS.iterdir(), *stored.PROOF.iterdir()]
    fetched = [len(zlib.compress(file.read_bytes())) for file in files]
    assert sum(fetched) <= 400_000


@pytest.mark.parametrize("records", [[{"b": 1, "a": 2}, {"a": None}], [{"ü": [1]}], []])
@pytest.mark.parametrize("name", ["records.jsonl", "records.jsonl.xz"])
def test_what_is_stored_is_read_again(name, records, tmp_path):
    stored.write(tmp_path / name, records)
    assert stored.read(tmp_path / name) == records


def test_page_01_shows_the_update_of_its_script():
    page, script = ((ROOT / "01_baseline" / name).read_text() for name in ("README.md", "train.py"))
    update, measures = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert update in script
    compile(measures, "README.md", "exec")


def test_pictures_are_of_the_records():
    shown = {file: tells for file, tells, _ in pictures.every()}
    assert {*shown} == {*RESULTS.parent.glob("*/*.png")}
    for file, tells in shown.items():
        assert json.loads(Image.open(file).info["Description"]) == tells, file


def test_the_readme_shows_what_its_command_prints(tmp_path):
    """Its peaks to the byte, under the versions of the record; other figures differ."""
    page = (ROOT / "README.md").read_text()
    blocks = r"```bash\n([^\n]* && [^\n]*)\n```\n\n```text\n(.*?)```"
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


@NEEDS
@pytest.mark.parametrize("folder", (".", "shared/emulator"))
def test_pages_show_why(folder, tmp_path):
    """Word by word under the PyTorch that they name, but for the memory of the host."""
    page = (ROOT / folder / "README.md").read_text()
    blocks = r"```python\n(.*?)```.*?\nemulated-gpu (why .*?)\n```\n\n```text\n(.*?)```"
    script, command, shown = re.search(blocks, page, re.DOTALL).groups()
    file = tmp_path / re.search(r"(\w+)/train.py:", shown)[1] / "train.py"
    file.parent.mkdir()
    file.write_text(script)
    package = str(ROOT / "shared" / "emulator")
    printed = run("-m", "emulated_gpu", *command.split(), cwd=file.parent, PYTHONPATH=package)
    said = [re.sub(r"(held at most) \S+", r"\1", " ".join(x.split())) for x in (printed, shown)]
    torch = re.search(r"with torch (\S+)", said[1])[1]
    assert said[1] in said[0] or installed("torch") != Version(torch)


def test_the_readme_shows_the_diff_of_its_command():
    page = (ROOT / "README.md").read_text()
    command, shown = re.search(r"`(diff [^`]*)`[^`]*```diff\n(.*?)```", page, re.DOTALL).groups()
    _, before, after = command.split()
    assert (before.removesuffix(".py"), after.removesuffix(".py")) in zip(NAMES, NAMES[1:])
    done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == shown
