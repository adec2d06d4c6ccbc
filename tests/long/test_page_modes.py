"""Promise: timelines and quiz work, and the page's address holds their state."""

import re

import pytest
from helpers.workshop_page import article, reopened

from shared.lab.records import scripts, stored
from shared.lab.records.formats import size

pytest_plugins = "helpers.browsing"

STORED = {moments["script"]: moments for moments in stored.timelines()}


def slider(page, script):
    return article(page, script).locator(".moments .canvas").first


def at(page, script):
    return int(slider(page, script).get_attribute("aria-valuenow"))


def area(page, script, label):
    """Return the height of a category in a timeline, in px."""
    return slider(page, script).locator(f"[data-category={label}]").bounding_box()["height"]


def drag(page, *places):
    page.mouse.move(*places[0])
    page.mouse.down()
    page.mouse.move(*places[1])
    page.mouse.up()


def test_a_timeline_by_keyboard(visit):
    script = "05_grad_accum/train"
    page, moments = visit(place="#05_grad_accum-train"), STORED[script]
    total = [sum(column) for column in zip(*moments["device"].values())]
    n, last = total.index(max(total)), len(total) - 1
    assert at(page, script) == n  # it starts at the peak
    most = slider(page, script).locator(".top").inner_text()
    assert most == f"▼ {size(total[n] / 1e3)} without rounding"
    slider(page, script).focus()
    for key, to in (("ArrowRight", n + 1), ("PageDown", n - 9), ("End", last), ("Home", 0)):
        page.keyboard.press(key)
        assert at(page, script) == to
    for _ in range(4):
        page.keyboard.press("PageUp")
    told = slider(page, script).get_attribute("aria-valuetext")
    running, lines = moments["lines"][40], scripts.get(script).lines
    assert size(total[40] / 1e3) in told and moments["phases"][40] in told
    assert f"line {running}: {lines[running - 1].partition('  # ')[0].strip()}" in told
    lit = article(page, script).locator(".source .runs")
    assert lit.locator("code").inner_text() == lines[running - 1]
    held = article(page, script).locator(".held").inner_text()
    for label, sizes in moments["device"].items():
        assert re.search(rf"{label}\s+{re.escape(size(sizes[40] / 1e3))}", held)
    reopened(page)  # the address alone restores the moment
    assert at(page, script) == 40


def test_a_timeline_by_pointer_and_touch(visit):
    script = "10_offload/train"
    page = visit(360, 740, place="#10_offload-train", has_touch=True, is_mobile=True)
    slider(page, script).scroll_into_view_if_needed()
    box, moments = slider(page, script).bounding_box(), STORED[script]
    x, y, whole = box["x"], box["y"] + 5, box["width"]
    page.touchscreen.tap(x + 0.75 * whole, y)
    assert moments["at"][at(page, script)] / moments["events"] == pytest.approx(0.75, abs=0.02)
    drag(page, (x + 1, y), (x + 0.25 * whole, y))
    assert moments["at"][at(page, script)] / moments["events"] == pytest.approx(0.25, abs=0.02)
    stage, chosen = article(page, script), moments["chosen"][at(page, script)]
    assert stage.locator(".source .chose").count() == bool(chosen)
    stage.locator(".held[data-part=device]").get_by_role("button", name="activations").click()
    reopened(page)
    assert stage.locator(".largest caption").inner_text() == "The ten largest of the activations"
    rows = stage.locator(".largest tbody tr")
    assert 1 <= rows.count() <= 10
    assert re.search(r"\d [GM]B$", rows.first.locator("td").last.inner_text())


def test_the_stage_before_is_behind_it_only_where_the_passes_match(visit):
    page = visit()
    page.evaluate("document.documentElement.classList.remove('one-stage')")  # shows all stages
    for script, ghosts in {"02_mixed_precision": 1, "05_grad_accum": 0, "06_sgd": 1}.items():
        stage = article(page, f"{script}/train")
        assert stage.locator(".ghost").count() == ghosts
        assert stage.locator(".of-ghost:not([hidden])").count() == ghosts
    # 11 has a scale of its own, since the stage before has 14 times it.
    assert min(area(page, "11_llm/train", x) for x in ("gathered", "workspaces")) > 40


def test_guess_then_look(visit):
    page, script = visit(place="#05_grad_accum-train"), "05_grad_accum/train"
    page.get_by_role("button", name="Quiz").click()
    stage, canvas = article(page, script), slider(page, script)
    panel, hidden = stage.locator(".moments .guess"), canvas.locator("[data-category=activations]")
    known, true = (
        stored.predictions()[name]["train"]["device_peak_gb"]
        for name in ("04_batchsize/train", script)
    )
    bar = page.locator(f".dataset:not([hidden]) .bar[data-script='{script}']")
    # Nothing gives the answer away: no picture, no text of the lesson, no label read aloud.
    assert size(known) in panel.inner_text() and not hidden.is_visible()
    assert size(true) not in stage.inner_text() and not bar.locator(".peak").is_visible()
    told = [bar.locator("a").get_attribute("aria-label"), canvas.get_attribute("aria-valuetext")]
    assert all(told) and not re.search(r"\d [GM]B", " ".join(told))
    # The guess can be dragged or set.
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, bottom, middle = box["x"] + 50, box["y"] + box["height"] - 2, box["y"] + box["height"] / 2
    drag(page, (x, bottom), (x, middle))
    assert stage.locator(".guess-line").bounding_box()["y"] == pytest.approx(middle, abs=4)
    panel.get_by_role("slider").fill(str(1.2 * true * 1e3))
    guessed = panel.locator("output").inner_text()
    reopened(page)
    assert panel.locator("output").inner_text() == guessed and not hidden.is_visible()
    # An exercise may reveal the peak of its stage, so it comes later.
    question = page.locator(".exercise[data-exercise='05_grad_accum/2']")
    heading = stage.get_by_role("heading", name="Exercises")
    assert question.is_hidden() and heading.is_hidden()
    panel.get_by_role("button", name="Look").click()
    told = panel.locator(".verdict").inner_text()
    assert f"it is {size(true)}" in told and re.search(r"(19|20|21) % too high", told)
    assert hidden.is_visible() and size(true) in bar.locator("a").get_attribute("aria-label")
    assert question.is_visible() and question.locator("details").is_hidden()
    assert heading.is_visible()
    question.get_by_role("button", name="Look").click()
    assert question.locator("details").is_visible()
