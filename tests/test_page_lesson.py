"""Promise: the workshop page is enough to learn from: lessons and words, as the README.md say."""

import html as escaped
import re

import pytest
from conftest import ROOT
from workshop_page import written

from shared.common import scripts
from shared.common.errors import UserError
from shared.lessons import exercises, stored
from shared.memory.blocks import CATEGORIES
from shared.records.units import size
from shared.report import lesson, side_by_side, words

pytest_plugins = "browsing"

LESSON = pytest.mark.parametrize("folder", scripts.folders())
TITLES = ("Idea", "The diff", "Why the memory changes", "What it costs")
LONGEST = "the size of all tensors that exist at one time"


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    return (written(tmp_path_factory.getbasetemp()) / "index.html").read_text()


def article(html, name):
    (found,) = re.findall(
        rf'<article id="{name.replace("/", "-")}"[^>]*>.*?</article>', html, re.DOTALL
    )
    return found


def bare(html):
    """Returns what a reader sees of HTML, without spaces."""
    return "".join(escaped.unescape(re.sub(r"<[^>]*>", "", html)).split())


def without_marks(text):
    """Returns what Markdown shows, without spaces: no tables' lines, stars, backticks, links."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^```\w*$|^#+ |^- |<.*?>", "", text, flags=re.MULTILINE)
    return "".join(re.sub(r"[*`]", "", text).split())


@LESSON
def test_each_sentence_of_a_lesson_is_on_the_page(html, folder):
    page = (ROOT / folder / "README.md").read_text()
    shown = bare(article(html, f"{folder}/train")).replace("*", "")  # in code there are some
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    assert {*TITLES} <= {*sections}
    for title in (*TITLES, "Run it"):
        text = sections.get(title, "")
        text = re.sub(r"<!-- generated: diff -->.*?<!-- end -->", "", text, flags=re.DOTALL)
        text = re.sub(r"^\|(---\|)+$", "", text, flags=re.MULTILINE)
        for line in text.splitlines():
            for cell in line.split("|") if line.startswith("|") else [line]:
                assert without_marks(cell) in shown, cell
        assert not text or f'<h4 id="{folder}-train-{lesson.slug(title)}">{title}</h4>' in html
    for label in lesson.SHORT:
        (bullet,) = re.findall(rf"^- \*\*{label}:\*\* (.*)$", page, re.MULTILINE)
        assert without_marks(bullet) in shown
    (peak,) = re.findall("^\\*\\*Peak per GPU.*$", page, re.MULTILINE)
    assert without_marks(peak) in shown


def test_a_lesson_with_two_scripts_stands_once(html):
    before = article(html, "11_llm/before")
    assert '<a href="#11_llm-train">' in before and 'class="lesson"' not in before
    assert html.count('<h4 id="11_llm-train-idea">') == 1


def test_all_links_lead_somewhere(html):
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len({*ids})
    links = re.findall(r'<a [^>]*href="([^"]*)"', html)
    assert len(links) > 100
    inside = {link for link in links if not link.startswith("https://")}
    assert {link for link in inside if link[1:] not in ids and link != "#"} == set()
    for name in ("for", "aria-describedby", "aria-labelledby"):
        assert {*re.findall(rf'(?<![-\w]){name}="([^"]*)"', html)} <= {*ids}


def test_where_links_lead():
    assert lesson.target("../06_sgd/", "05_grad_accum") == "#06_sgd-train"
    assert lesson.target("../06_sgd/README.md", "05_grad_accum") == "#06_sgd-train"
    assert lesson.target("#exercise-3", "05_grad_accum") == "#05_grad_accum-train-exercise-3"
    assert lesson.target("../09_act_ckpt/#idea", "11_llm") == "#09_act_ckpt-train-idea"
    for link in ("#exercise-99", "#hf_acceleratepy", "../shared/README.md", "hf_accelerate.py"):
        assert lesson.target(link, "05_grad_accum") is None
    assert lesson.target("https://pytorch.org/#a", "05_grad_accum") == "https://pytorch.org/#a"


@LESSON
def test_no_markdown_is_left(folder):
    for section in lesson.sections(folder).values():
        text = re.sub(r"<(code|pre).*?</\1>", "", section.html, flags=re.DOTALL)
        assert not re.search(r"<!--|\*\*|`|\]\(|^\||^#", bare(text)), section.title
        assert "<img" not in text and "<p></p>" not in text
        assert text.count("<details") == text.count("</details>")
        assert text.count("<table") == text.count('<div class="wide">')


def test_the_docstring_is_in_no_diff(html):
    diffs = re.findall(r'<table class="diff">.*?</table>', html, re.DOTALL)
    assert len(diffs) > 20
    assert not any('"""Stage' in escaped.unescape(bare(diff)) for diff in diffs)
    assert not any('<td class="n">1</td>' in diff for diff in diffs)
    rows = side_by_side.rows("03_bf16/train", "04_batchsize/train")
    assert [(kind, n, m) for kind, n, _, m, _ in rows if kind == "changed"] == [("changed", 15, 15)]


def test_words_are_explained_as_in_the_glossary(html):
    """And in its words: what a table there says is what the page says."""
    text = (ROOT / "shared" / "README.md").read_text()
    section = text[text.index("## How memory is measured") : text.index("### The ladder, measured")]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    rows = [row for row in rows if row[1] not in ("means", "is") and "`" not in row[0]]
    shown = re.findall(r'<dt>(.*?)</dt><dd id="word-[\w-]+">(.*?)</dd>', html)
    assert {(bare(name), bare(meaning)) for name, meaning in shown} == {
        ("".join(name.split()), without_marks(meaning)) for name, meaning in rows
    }
    assert len(shown) == len(rows) >= 40 and {name for name, _ in rows} >= {*CATEGORIES}


@LESSON
def test_a_word_explains_itself_where_it_stands_first(folder):
    sections = lesson.sections(folder)
    for section in sections.values():
        buttons = re.findall(r'<button class="word".*?aria-describedby="(.*?)">', section.html)
        assert len(buttons) == len({*buttons})
        for tag in ("code", "pre", "a", "th", "h5", "summary", "details"):
            inside = re.findall(rf"<{tag}[ >].*?</{tag}>", section.html, re.DOTALL)
            assert not any("<button" in part for part in inside), tag
    assert "word-reserved" in sections["Why the memory changes"].html


def test_which_words_are_found():
    def found(text):
        return re.findall(r'describedby="word-(.*?)">(.*?)<', words.Marker().html(text))

    assert found("Gradients, a gradient & it") == [("gradients", "Gradients")]
    assert found("the meta device, then a device") == [
        ("meta-device", "meta device"),
        ("device", "device"),
    ]
    assert found("host-side, ghosts and bf16-true") == []
    assert found("the inputs of a block") == [("block", "block")]
    assert found("inputs") == [("inputs", "inputs")]
    assert str(words.Marker().html("a < b")) == "a &lt; b"


def test_a_glossary_without_a_table(tmp_path, monkeypatch):
    monkeypatch.setattr(words, "SOURCE", ROOT / "LICENSE")
    with pytest.raises(UserError, match=r"LICENSE has no table \| word \| means \|"):
        words.glossary.__wrapped__()


def test_a_word_by_keyboard_and_mouse(visit):
    page = visit()
    tip = page.locator("#explanation")
    page.locator("#dataset").focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "activations":
            break
    assert tip.is_visible() and tip.inner_text().startswith("activations results of the forward")
    described = "document.getElementById(document.activeElement.getAttribute('aria-describedby'))"
    assert tip.inner_text().endswith(page.evaluate(f"{described}.textContent"))
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    page.keyboard.press("Enter")
    assert tip.is_visible()
    page.keyboard.press("Tab")
    assert tip.inner_text().startswith("recomputed ")
    page.locator("#theme").focus()
    assert tip.is_hidden()
    page.locator("#numbers a", has_text="06").click()
    word = page.locator("#\\30 6_sgd-train .lesson .word", has_text="optimizer states").first
    word.hover()
    assert "what the optimizer keeps" in tip.inner_text()
    tip.hover()  # it stays, so that one can read it with a magnifier
    page.wait_for_timeout(300)
    assert tip.is_visible()
    page.locator("h1").hover()
    tip.wait_for(state="hidden")


def test_words_by_touch_stay_on_a_small_screen(visit):
    page = visit(360, 640, place="#11_llm-train", has_touch=True, is_mobile=True)
    tip, in_lessons = page.locator("#explanation"), page.locator(".lesson .word:visible")
    longest = page.locator(".lesson [aria-describedby=word-allocated]:visible")
    for word in (in_lessons.first, longest.first, longest.last, in_lessons.last):
        word.tap()
        assert tip.is_visible()
        box, at = tip.bounding_box(), word.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360
        assert box["y"] >= 0 and box["y"] + box["height"] <= 640
        assert box["y"] >= at["y"] + at["height"] or box["y"] + box["height"] <= at["y"]
    longest.first.tap()
    assert LONGEST in tip.inner_text()
    page.locator("article.chosen h3").tap()
    assert tip.is_hidden()


def test_words_on_paper(visit):
    page = visit()
    page.locator(".lesson .word").first.focus()
    page.emulate_media(media="print")
    assert page.locator("#explanation").is_hidden()
    assert page.locator("#words dd").last.is_visible()
    line = "getComputedStyle(document.querySelector('.lesson .word')).textDecorationLine"
    assert page.evaluate(line) == "none"


def test_lines_can_be_read(visit):
    page = visit(1920, 1000)
    sizes = """
        ['.lesson code', '.lesson pre', '.diff', '.exercise pre'].map(what => parseFloat(
            getComputedStyle(document.querySelector(what)).fontSize) / parseFloat(
            getComputedStyle(document.documentElement).fontSize))"""
    assert all(size >= 0.9 for size in page.evaluate(sizes))
    width = """
        Math.max(...[...document.querySelectorAll('.lesson > p')].map(p => {
            const line = parseFloat(getComputedStyle(p).lineHeight);
            const lines = Math.round(p.getBoundingClientRect().height / line);
            return lines > 5 ? p.textContent.length / lines : 0;
        }))"""
    assert 50 < page.evaluate(width) <= 75


def test_exercises_are_still_there(html):
    for e in exercises.every():
        assert f'id="{e.folder}-train-exercise-{e.number}"' in html


def test_a_lesson_shows_either_diff_where_it_speaks_of_them(visit):
    page = visit(place="#02_mixed_precision-train")
    stage = page.locator("#\\30 2_mixed_precision-train")
    button = stage.get_by_role("button", name="Show the diffs in plain PyTorch")
    button.scroll_into_view_if_needed()
    switch, plain = stage.locator(".switch"), stage.locator("div.plain")
    for name, shown in (("with Fabric", True), ("in plain PyTorch", False)):
        before = switch.bounding_box()["y"]
        switch.click()
        assert plain.is_visible() == shown and switch.inner_text().endswith(name)
        assert abs(switch.bounding_box()["y"] - before) < 2


def test_a_lesson_does_not_give_the_quiz_away(visit):
    page = visit(place="#05_grad_accum-train")
    page.locator("#quiz-switch").click()
    stage = page.locator("#\\30 5_grad_accum-train")
    peak = size(stored.predictions()["05_grad_accum/train"]["train"]["device_peak_gb"])
    assert stage.locator(".lesson").first.is_visible()
    assert peak not in stage.inner_text()
    stage.get_by_role("button", name="Look").first.click()
    assert stage.locator(".short.tells").inner_text().count(peak) == 1
