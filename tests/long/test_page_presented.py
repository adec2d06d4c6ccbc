"""Promise: Present has an opening and an end, and every screen fits into the window."""

import pytest
from conftest import NAMES, TEXT
from helpers.workshop_page import reopened

from shared.lab.records import stored
from shared.lab.records.formats import size

pytest_plugins = "helpers.browsing"

OPENING, END = "The ladder", "Which technique first?"
# What is larger than the window, or than the box that it could be scrolled in.
OVER = """[document.documentElement,
    ...document.querySelectorAll('.on-screen .wide, .on-screen pre')]
    .filter(e => e.checkVisibility() && (e.scrollWidth > e.clientWidth
        || e === document.documentElement && e.scrollHeight > innerHeight))
    .map(e => [e.className, e.scrollWidth, e.scrollHeight])"""
SMALL = """[...document.querySelectorAll('body *')].filter(e =>
    e.checkVisibility({visibilityProperty: true})
    && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())
    && parseFloat(getComputedStyle(e).fontSize) < 20).map(e => [e.className, e.textContent])"""
# The rows of the tables and diffs on a screen.
ALONE = """[...document.querySelectorAll('.on-screen :is(.diff, .wide) tbody tr')]
    .filter(e => e.checkVisibility()).length"""
SEEN = """document.querySelectorAll('.on-screen :is(.diff, .wide) tbody tr').forEach(row => {
    if (row.checkVisibility()) row.dataset.seen = 'yes'; })"""


def start(page, short=False):
    page.get_by_role("button", name="Present").click()
    if short:
        page.get_by_label("short").check()
    page.keyboard.press("Home")


def screens(page):
    """Go through the screens from the one that is shown; yield the name of each."""
    before, where = None, page.locator("#where")
    while (told := where.inner_text()) != before:
        yield told
        before = told
        page.keyboard.press("ArrowRight")


@pytest.mark.parametrize("short", [False, True])
def test_every_screen_fits_the_window(visit, short):
    page, seen = visit(1280, 720), []
    start(page, short)
    for told in screens(page):
        assert page.evaluate(OVER) == [], told
        assert page.locator("[data-slide]:visible").count() == 1
        assert page.evaluate(ALONE) != 1, f"{told}: one row stands alone"
        page.evaluate(SEEN)
        seen.append(told)
    assert (seen[0], seen[-1]) == (OPENING, END)
    if short:
        assert len(seen) <= 15
        return
    assert {told.partition(":")[0] for told in seen} >= {*NAMES, *TEXT}
    # What did not fit on a screen is on the next: no row of a diff or of an answer is missing.
    slides = "article :is([data-slide] > .fabric, .exercise details)"
    assert sum(told.startswith("Time") for told in seen) == 3
    assert page.locator(f"{slides} tbody tr[data-seen]").count() > 100
    assert page.locator(f"{slides} tbody tr:not([data-seen], .skipped)").count() == 0


def test_type_can_be_read_from_a_distance(visit):
    """The last stages: the timeline appears after the question, as do the answers."""
    names, page, seen = (NAMES + TEXT)[-3:], visit(1920, 1080), {}
    page.locator(f"#numbers a[data-script='{names[0]}']").click()
    page.get_by_role("button", name="Present").click()
    for told in screens(page):
        assert page.evaluate(SMALL) == [], told
        answers = page.locator(".exercise details:visible").count()
        seen[told] = page.locator(".canvas [data-category=activations]:visible").count(), answers
    assert list(dict.fromkeys(told.partition(":")[0] for told in seen)) == [*names, END]
    of_first = [state for told, state in seen.items() if told.startswith(names[0])]
    assert of_first.index((0, 0)) < of_first.index((1, 0)) < of_first.index((0, 1))


def test_the_address_and_the_keys(visit):
    page = visit(1280, 720)
    start(page)
    where = page.locator("#where")
    for told in (f"{NAMES[0]}: 1 of ", f"{NAMES[0]}: 2 of "):
        page.keyboard.press("ArrowRight")
        assert where.inner_text().startswith(told)
    reopened(page)
    assert where.inner_text().startswith(f"{NAMES[0]}: 2 of ")
    page.keyboard.press("End")
    assert where.inner_text() == END
    page.keyboard.press("Escape")
    assert page.locator("#presenter").is_hidden() and page.locator("#ladder").is_visible()


def test_a_short_show(visit):
    """Ten minutes: the error, diffs and timelines of five stages, time, and what to try first."""
    page, shown = visit(1280, 720), {}
    start(page, short=True)
    for told in screens(page):
        heading = page.locator("[data-slide]:visible :is(h2, h4)")
        named = heading.first.inner_text() if heading.count() else "time"
        shown[told[:2], named] = page.locator("[data-slide]:visible .of-ghost:visible").count()
    timeline, change = "What holds the memory during one update", "The change"
    assert {n for n, named in shown if named == timeline} == {"01", "02", "05", "08", "09"}
    assert {n for n, named in shown if named == change} == {"02", "05", "08", "09"}
    assert shown["02", timeline] == shown["09", timeline] == 1  # whose the dashed outline is


def test_a_quiz_gives_nothing_away(visit):
    page = visit(1280, 720)
    page.get_by_role("button", name="Quiz").click()
    start(page)
    names, records = [], stored.predictions()  # only 01 has nothing to compare with
    peaks = {name: size(records[name]["train"]["device_peak_gb"]) for name in NAMES[1:6]}
    for told in screens(page):
        assert page.locator("[data-slide]:visible").count() == 1, told
        assert page.evaluate(OVER) == [], told
        if peak := peaks.get(told.partition(":")[0]):
            assert peak not in page.locator("main").inner_text()
        names.append(told)
    assert (names[0], names[-1]) == (OPENING, END)
    assert not [name for name in names if name.startswith("Time")]
