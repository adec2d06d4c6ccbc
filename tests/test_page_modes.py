"""Promise: the page asks before it tells, fits the room, and its address brings back its state."""

import re

import pytest
from conftest import NAMES, TEXT
from workshop_page import settled

from shared.lessons import exercises, stored
from shared.records.units import size
from shared.report import quiz

pytest_plugins = "browsing"


def article(page, script):
    return page.locator(f"article[data-script='{script}']")


def test_what_the_quiz_asks_is_what_was_recorded():
    asked, records = quiz.asked(), stored.predictions()
    assert {*NAMES[1:], TEXT[-1]} <= {*asked} and NAMES[0] not in asked
    for name in NAMES[1:]:
        assert asked[name]["now_mb"] == records[name]["train"]["device_peak_gb"] * 1e3
    others = {f"{e.folder}/{e.number}" for e in exercises.every() if e.phase != "cost"}
    assert {*asked} - {*NAMES, *TEXT} == others


def test_guess_then_look(visit):
    page = visit(place="#05_grad_accum-train")
    page.get_by_role("button", name="Quiz").click()
    stage = article(page, "05_grad_accum/train")
    panel = stage.locator(".moments .guess")
    true = stored.predictions()["05_grad_accum/train"]["train"]["device_peak_gb"]
    hidden = stage.locator(".canvas [data-category=activations]")
    assert "4.43 GB" in panel.inner_text() and not hidden.is_visible()
    assert size(true) not in stage.inner_text()
    bar = page.locator(".dataset:not([hidden]) .bar[data-script='05_grad_accum/train']")
    assert not bar.locator(".peak").is_visible() and not stage.locator(".ruler").is_visible()
    told = [bar.locator("a").get_attribute("aria-label")]
    told.append(stage.get_by_role("slider").nth(1).get_attribute("aria-valuetext"))
    assert all(told) and not re.search(r"\d [GM]B", " ".join(told))
    panel.get_by_role("slider").fill("2500")
    assert "2.5" in panel.locator("output").inner_text()
    line = stage.locator(".guess-line")
    canvas = stage.locator(".canvas").first
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 50, box["y"] + box["height"] - 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 50, box["y"] + box["height"] / 2)
    page.mouse.up()
    middle = line.bounding_box()["y"]
    assert middle == pytest.approx(box["y"] + box["height"] / 2, abs=4)
    guess = 1.2 * true * 1e3
    panel.get_by_role("slider").fill(str(guess))
    shared = settled(page)
    panel.get_by_role("button", name="Look").click()
    told = panel.locator(".verdict").inner_text()
    assert f"it is {size(true)}" in told and re.search(r"(19|20|21) % too high", told)
    assert hidden.is_visible() and bar.locator(".peak").is_visible()
    assert size(true) in bar.locator("a").get_attribute("aria-label")
    assert "1 of" in page.locator("#score").inner_text()
    page.goto("about:blank")
    page.goto(shared)  # before the look: the guess is there, the answer is not
    assert "3.7" in panel.locator("output").inner_text() and not hidden.is_visible()
    # An exercise may tell the peak of its stage, so it comes after it.
    question = page.locator(".exercise[data-exercise='05_grad_accum/2']")
    assert question.is_hidden()
    panel.get_by_role("button", name="Look").click()
    assert question.is_visible() and question.locator("details").is_hidden()
    question.get_by_role("button", name="Look").click()
    assert question.locator("details").is_visible()
    page.get_by_role("button", name="Quiz").click()
    assert hidden.is_visible() and page.locator(".guess:visible").count() == 0


def test_present(visit):
    page = visit(1920, 1080)
    page.get_by_role("button", name="Present").click()
    where = page.locator("#where")
    assert where.inner_text().startswith("01_baseline/train: 1 of ")
    small = """
        [...document.querySelectorAll('body *')].filter(e =>
            e.checkVisibility({visibilityProperty: true})
            && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())
            && parseFloat(getComputedStyle(e).fontSize) < 24
            ).map(e => e.className + ': ' + e.textContent.slice(0, 30))"""
    seen, last = set(), None
    for _ in range(200):
        text = where.inner_text()
        script, at = text.split(": ")
        seen.add(script)
        if script == "10_offload/train":  # with a host
            assert page.evaluate(small) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= 1920
            assert page.locator("article:visible").count() == 1
            assert page.locator("[data-slide]:visible").count() == 1
        if text == last:
            break
        last = text
        page.keyboard.press("ArrowRight")
    assert seen == {*NAMES, *TEXT}
    page.keyboard.press("Home")
    assert where.inner_text().startswith("01_baseline/train: 1 of ")
    page.keyboard.press("ArrowRight")
    assert "present=" in settled(page)
    page.reload()
    assert where.inner_text().startswith("01_baseline/train: 2 of ")
    page.keyboard.press("Escape")
    assert page.locator("#presenter").is_hidden() and page.locator("#ladder").is_visible()


def test_present_reveals_step_by_step(visit):
    page = visit(1920, 1080, place="#06_sgd-train")
    stage = article(page, "06_sgd/train")
    page.get_by_role("button", name="Present").click()
    areas = stage.locator(".canvas [data-category=parameters]")
    answers = stage.locator(".exercise details")
    states = []
    for _ in range(30):
        if not page.locator("#where").inner_text().startswith("06_sgd/train"):
            break
        states.append((areas.is_visible(), sum(a.is_visible() for a in answers.all())))
        page.keyboard.press("PageDown")
    assert (True, 0) in states and (False, 1) in states
    assert states.index((True, 0)) < states.index((False, 1))


def test_present_a_quiz(visit):
    """What is hidden until one has guessed is no slide; looked at, it is."""
    page = visit(1920, 1080, place="#06_sgd-train;quiz=on;present=06_sgd%2Ftrain@0")
    counts = [page.locator("#where").inner_text()]
    script = counts[0].partition(":")[0]
    while page.locator("#where").inner_text().startswith(script):
        assert page.locator("[data-slide]:visible").count() == 1
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    article(page, script).get_by_role("button", name="Look").first.click()
    page.keyboard.press("ArrowRight")
    counts.append(page.locator("#where").inner_text())
    assert [count.partition(":")[0] for count in counts] == [script, script]
    before, after = (int(count.rpartition(" ")[2]) for count in counts)
    assert after > before + 3
    # A key of the browser or of an explanation is none of the presenter.
    page.keyboard.press("Control+ArrowLeft")
    assert page.locator("#where").inner_text() == counts[-1]


def test_the_way_back_keeps_what_was_guessed(visit):
    page = visit(place="#02_mixed_precision-train;quiz=on")
    for script in NAMES[1:3]:
        page.locator(f"#numbers a[data-script='{script}']").click()
        article(page, script).locator(".moments .guess input").fill("2500")
        settled(page)
    page.go_back()
    assert NAMES[1].replace("/", "-") in settled(page)
    assert all(name.replace("/", "%2F") in page.url for name in NAMES[1:3])


def test_the_address_brings_back_the_state(visit, address):
    page = visit()
    page.get_by_label("logarithmic").check()
    page.get_by_label("in plain PyTorch").check()
    page.locator("#theme").click()
    page.locator("#card").select_option("l4")
    shown = settled(page)
    assert "#" in shown
    page.goto("about:blank")
    page.goto(shown)
    assert page.get_by_label("logarithmic").is_checked()
    assert page.get_by_label("in plain PyTorch").is_checked()
    assert page.locator("#theme").inner_text() == "Theme: light"
    assert page.locator("#card").input_value() == "l4"
    # What it does not know is left out.
    page.goto("about:blank")
    page.goto(
        address
        + "#nowhere%;scale=oblique;chart=99;moment=x@y;quiz=maybe;guesses=a:b,:;present=?@?;from=%2"
    )
    assert page.locator("article.chosen .canvas").count() == 1
    assert page.get_by_label("linear").is_checked() and page.locator("#presenter").is_hidden()
    parts = "moment=06_sgd%2Ftrain@0@texts@activations;present=06_sgd%2Ftrain@1.5;theme=blue"
    page.goto("about:blank")
    page.goto(f"{address}#01_baseline-train;{parts}")
    assert page.locator("#where").inner_text().startswith("06_sgd/train: 2 of ")
    page.keyboard.press("Escape")
    assert page.locator("#theme").inner_text() == "Theme: automatic"
