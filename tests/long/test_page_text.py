"""Promise: the pages' links and commands have targets, and the workshop page has their words."""

import html as escaped
import re

import pytest
from conftest import ROOT

from shared.__main__ import COMMANDS
from shared.lab.lessons import pages
from shared.lab.records import scripts
from shared.lab.report import lesson, page

PAGES = [*pages.pages(), *ROOT.glob(".github/**/*.*")]
PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)


@pytest.fixture(scope="module")
def html():
    return page.render()


def bare(html):
    """Return the visible text of HTML, without spaces."""
    return "".join(escaped.unescape(re.sub(r"<[^>]*>", "", html)).split())


def without_marks(text):
    """Return the visible text of Markdown, without spaces, backticks, stars, links and comments."""
    text = re.sub(r"<!--.*?-->|!\[[^]]*\]\([^)]*\)", "", text, flags=re.DOTALL)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^```\w*$|^#+ |^- |<.*?>", "", text, flags=re.MULTILINE)
    return "".join(re.sub(r"[*`]", "", text).split())


@pytest.mark.parametrize("folder", scripts.folders())
def test_each_sentence_of_a_lesson_is_on_the_page(html, folder):
    source = (ROOT / folder / "README.md").read_text()
    (shown,) = re.findall(rf'<article id="{folder}-train".*?</article>', html, re.DOTALL)
    shown = bare(shown).replace("*", "")  # in code there are some
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", source, re.DOTALL | re.MULTILINE))
    for title in (title for title in sections if title in lesson.SECTIONS):
        text = lesson.without_pointers(lesson.DRAWN.sub("", sections[title]), folder)
        text = re.sub(r"^\|(---\|)+$", "", text, flags=re.MULTILINE)
        for line in text.splitlines():
            for cell in line.split("|") if line.startswith("|") else [line]:
                assert without_marks(cell) in shown, cell
    for section in lesson.sections(folder).values():
        text = re.sub(r"<(code|pre).*?</\1>", "", section["html"], flags=re.DOTALL)
        assert not re.search(r"<!--|\*\*|`|\]\(|^\||^#", bare(text)), section["title"]


def test_all_links_and_labels_of_the_page_lead_somewhere(html):
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len({*ids})
    links = {link for link in re.findall(r'<a [^>]*href="([^"]*)"', html) if link != "#"}
    assert {link for link in links if link[:8] != "https://" and link[1:] not in ids} == set()
    for name in ("for", "aria-describedby", "aria-labelledby"):
        assert {*re.findall(rf'(?<![-\w]){name}="([^"]*)"', html)} <= {*ids}
    assert lesson.target("../06_sgd/README.md", "05_grad_accum") == "#06_sgd-train"
    wrong = "../shared/memory/README.md#which-line-is-wrong"
    assert lesson.target(wrong, "05_grad_accum") == "#wrong"
    pointers = "It trains. [More](more.md). [Less](#less), and [06](../06_sgd/README.md)."
    kept = "It trains. [Less](#less), and [06](../06_sgd/README.md)."
    assert lesson.without_pointers(pointers, "05_grad_accum") == kept
    for link in ("#exercise-99", "#hf_acceleratepy", "../shared/README.md", "hf_accelerate.py"):
        assert lesson.target(link, "05_grad_accum") is None


@PAGE
def test_what_pages_name_exists(page):
    text = page.read_text()
    elsewhere = (
        r"http|\.\./\.\./(?:actions|deployments)/"  # the web, and what GitHub adds to a repository
    )
    for path, anchor in re.findall(rf"\]\((?!{elsewhere})([^)#]*)#?([^)]*)\)", text):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        if anchor:
            there = (target / "README.md" if target.is_dir() else target).read_text()
            there = re.sub(r"^```.*?^```$", "", there, flags=re.MULTILINE | re.DOTALL)
            titles = re.findall(r"^#+ (.*)$", there, re.MULTILINE)
            assert anchor in map(lesson.slug, titles), f"{path}#{anchor}"
    for path in re.findall(
        r"\b(?:\d\d_\w+|shared|tests)/[\w/.-]*\.(?:py|jsonl?(?:\.xz)?|png|md)\b", text
    ):
        assert (ROOT / path).exists(), path
    for command in re.findall(r"python -m shared ([a-z_]+)", text):
        assert any(command in commands for commands in COMMANDS.values()), command
    assert not re.findall(r"python -m shared\.\w+", text)
