"""Promise: every page has its parts where a reader expects them, and what it names exists."""

import functools
import importlib.util
import os
import re
from unittest import mock

import pytest
from conftest import ROOT, arguments, code_blocks

from shared.common import scripts
from shared.lessons import exercises, pages
from shared.predict import command as predictor

SECTIONS = [
    "Idea",
    "The diff",
    "Why the memory changes",
    "Measured",
    "What it costs",
    "Try it",
    "Sources",
]
BULLETS = ("Idea", "Change", "Memory", "Cost", "Builds on")
ALL = pages.pages()
PAGE = pytest.mark.parametrize("page", ALL, ids=lambda page: page.parent.name)
LESSON = pytest.mark.parametrize("folder", scripts.folders())


def lesson(folder):
    return (ROOT / folder / "README.md").read_text()


@functools.cache
def headings(page):
    """Returns a page's headings, {level: [text]}, without what is in code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = {}
    for level, title in re.findall(r"^(#+) (.*)$", text, re.MULTILINE):
        found.setdefault(len(level), []).append(title)
    return found


def test_the_pages_are_those_of_repository_lessons_and_rooms():
    rooms = [ROOT / "shared" / "README.md", ROOT / "shared" / "report" / "README.md"]
    lessons = [ROOT / folder / "README.md" for folder in scripts.folders()]
    assert ALL == [ROOT / "README.md", *lessons, *rooms]


def test_the_first_page_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 1350  # with the map of side roads
    assert text.count("```bash\n") == len(code_blocks(ROOT / "README.md")) == 3


@LESSON
def test_a_lesson_begins_with_what_it_is_in_short(folder):
    bullets = "".join(rf"- \*\*{bullet}:\*\* .+\n" for bullet in BULLETS)
    peak = r"<!-- generated: peak -->\n.+\n<!-- end -->\n"
    title = f"# {folder[:2]} · .+\n"
    assert re.match(rf"{title}\n{bullets}\n{peak}\n## Idea\n", lesson(folder))


@LESSON
def test_a_lesson_names_its_parent(folder):
    before = scripts.folders()[: scripts.folders().index(folder)]
    (builds_on,) = re.findall(r"^- \*\*Builds on:\*\* (.*)$", lesson(folder), re.MULTILINE)
    assert f"(../{before[-1]}/)" in builds_on if before else "](" not in builds_on


@LESSON
def test_lesson_pages_have_all_sections(folder):
    further = ["Run it"] if folder == "08_fsdp" else []
    beside = ["Side roads"] if scripts.side_roads([folder]) else []
    page = ROOT / folder / "README.md"
    assert headings(page)[2] == [*SECTIONS[:2], *further, *SECTIONS[2:5], *beside, *SECTIONS[5:]]
    for part in ("peak", "diff", "predicted", "measured", "cost"):
        assert lesson(folder).count(f"<!-- generated: {part} -->") == 1
    # Its commands are those of its exercises, and in blocks of their own.
    own = exercises.of_page(folder)
    assert code_blocks(page) == [e.command for e in own]
    assert lesson(folder).count("```bash\n") == len(own) >= 2


@pytest.mark.parametrize("name", scripts.side_roads())
def test_a_side_road_has_its_section(name):
    folder, file = name.split("/")
    part = f"<!-- generated: side_road file={file} -->"
    section = rf"\n### {file}\.py\n\n(?:(?!##).+\n+)+\*\*Cost:\*\* .+\n\n{part}\n"
    assert re.search(section, lesson(folder))
    assert lesson(folder).count("<!-- generated: side_roads -->") == 1
    assert f"({folder}/README.md#{file}py)" in (ROOT / "README.md").read_text()  # the map


@PAGE
def test_what_pages_name_exists(page):
    text = page.read_text()
    for path in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", text):
        assert (page.parent / path).exists(), path
    for path in re.findall(r"\b(?:\d\d_\w+|shared|tests)/[\w/.-]*\.(?:py|jsonl?|png|md)\b", text):
        assert (ROOT / path).exists(), path
    for module in re.findall(r"python -m (shared\.[a-z][\w.]*)", text):
        assert importlib.util.find_spec(module), module


@PAGE
def test_links_lead_to_headings(page):
    for path, anchor in re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", page.read_text()):
        target = (page.parent / path).resolve() if path else page
        target = target / "README.md" if target.is_dir() else target
        titles = [title for level in headings(target).values() for title in level]
        # As GitHub makes them: without punctuation, with hyphens for spaces.
        there = [re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles]
        assert anchor in there, f"{path}#{anchor}"


@PAGE
def test_commands_outside_of_exercises_are_understood(page, tmp_path, monkeypatch):
    """Those in ```text and in lines are not run; their options are those that there are."""
    monkeypatch.chdir(tmp_path)  # some make a folder
    lines = code_blocks(page, "text") + re.findall(r"`([^`\n]+)`", page.read_text())
    commands = [re.sub(r" +#.*", "", line) for line in lines if line.startswith("python ")]
    for command in commands:
        first, *options = arguments(command)
        name = first.removesuffix(".py")
        if re.search(r"\b[A-Z]{4,}\b", command):  # YOURS, FOLDER
            continue
        if options[:1] == ["shared.predict"]:
            assert predictor.parse(options[1:]).names, command
        elif name in scripts.every():
            module = scripts.get(name).load()
            argv = [*options, "--no-pretrained"]  # a configuration that is known is not fetched
            sizes = {"batch_size": module.BATCH_SIZE, "devices": module.DEVICES}
            with mock.patch.dict(os.environ):  # plain.py finds there what torchrun would set
                args = module.cli.parse(first, argv, **sizes)
            assert args.script == name
        else:
            assert first == "-m" or (ROOT / first).exists(), command
    assert commands or page.parent.name in scripts.folders()
