"""Promise: at every moment of a timeline, the page tells what is in memory and what works."""

import json
import re

import pytest
from workshop_page import settled

from shared.common import scripts
from shared.lessons import stored
from shared.records.units import size

pytest_plugins = "browsing"

STORED = {moments["script"]: moments for moments in json.loads(stored.TIMELINES.read_text())}


def figure(page, script):
    return page.locator(f"article .moments[data-script='{script}']")


def slider(page, script, n=0):
    return figure(page, script).get_by_role("slider").nth(n)


def heights(page, script):
    """Returns how high each category of a timeline is drawn, in px."""
    shapes = figure(page, script).locator(".canvas").first.locator("[data-category]")
    return {
        shape.get_attribute("data-category"): shape.bounding_box()["height"]
        for shape in shapes.all()
    }


def test_one_scale_for_all_stages(visit):
    page = visit()
    page.evaluate("document.documentElement.classList.remove('one-stage')")  # all of them
    ours = {name: heights(page, name) for name in ("01_baseline/train", "06_sgd/train")}
    gb = stored.predictions()
    for label in ("parameters", "activations"):
        shares = [gb[name]["train"]["breakdown_gb"][label] for name in ours]
        drawn = [held[label] for held in ours.values()]
        assert drawn[1] / drawn[0] == pytest.approx(shares[1] / shares[0], abs=0.05)
    figure(page, "06_sgd/train").get_by_role("button", name="Its own scale").click()
    assert heights(page, "06_sgd/train")["activations"] > 3 * drawn[1]
    assert "ruler=own" in settled(page)
    ghosts = figure(page, "06_sgd/train").locator(".ghost")
    assert ghosts.count() == 1 and figure(page, "01_baseline/train").locator(".ghost").count() == 0


def test_scrubbing_by_keyboard(visit):
    page = visit(place="#05_grad_accum-train")
    script = "05_grad_accum/train"
    moments, here = STORED[script], slider(page, script)
    total = [sum(column) for column in zip(*moments["device"].values())]
    n = total.index(max(total))
    assert here.get_attribute("aria-valuenow") == str(n)  # first, the peak
    here.focus()
    lines = scripts.get(script).lines
    for key, to in (
        ("ArrowRight", n + 1),
        ("PageDown", n - 9),
        ("End", len(total) - 1),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        assert here.get_attribute("aria-valuenow") == str(to)
    for _ in range(4):
        page.keyboard.press("PageUp")
    told = here.get_attribute("aria-valuetext")
    running = moments["lines"][40]
    assert size(total[40] / 1e3) in told and moments["phases"][40] in told
    assert f"line {running}: {lines[running - 1].partition('  # ')[0].strip()}" in told
    lit = figure(page, script).locator(".source .runs")
    assert lit.get_attribute("data-line") == str(running)
    assert lit.locator("code").inner_text() == lines[running - 1]
    assert f"moment={script}@{moments['at'][40]}" in re.sub(
        "%2F", "/", settled(page).replace("%40", "@")
    )
    held = figure(page, script).locator(".held").inner_text()
    for label, sizes in moments["device"].items():
        assert re.search(rf"{label}\s+{re.escape(size(sizes[40] / 1e3))}", held)
    page.goto(page.url)  # the address alone brings the moment back
    page.reload()
    assert slider(page, script).get_attribute("aria-valuenow") == "40"


def test_scrubbing_by_pointer_and_touch(visit):
    page = visit(360, 740, place="#09_act_ckpt-train", has_touch=True, is_mobile=True)
    script = "09_act_ckpt/train"
    canvas = slider(page, script)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] * 0.75, box["y"] + box["height"] / 2)
    n = int(canvas.get_attribute("aria-valuenow"))
    moments = STORED[script]
    assert moments["at"][n] / moments["events"] == pytest.approx(0.75, abs=0.02)
    page.mouse.move(box["x"] + 1, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 5)
    page.mouse.up()
    n = int(canvas.get_attribute("aria-valuenow"))
    assert moments["at"][n] / moments["events"] == pytest.approx(0.25, abs=0.02)
    # Checkpointing is at work there, beside the line that runs.
    chosen = moments["chosen"][n]
    assert figure(page, script).locator(".source .chose").count() == bool(chosen)


def test_the_largest_tensors(visit):
    page = visit(place="#10_offload-train")
    script = "10_offload/train"
    host = figure(page, script).locator(".held[data-part=host]")
    host.get_by_role("button", name="parameters").click()
    table = figure(page, script).locator(".largest")
    assert table.locator("caption").inner_text() == "The ten largest of the parameters"
    first = table.locator("tbody tr").first.locator("td").all_inner_texts()
    assert first[0].endswith(".weight") and first[2] == "bfloat16"
    edges = [int(edge) for edge in first[1].split(" × ")]
    assert size(2 * edges[0] * edges[1] / 1e9) == first[3]
    device = figure(page, script).locator(".held[data-part=device]")
    device.get_by_role("button", name="activations").click()
    assert table.locator("tbody tr").count() == 10
    shown = settled(page)
    page.goto("about:blank")
    page.goto(shown)
    assert table.locator("caption").inner_text() == "The ten largest of the activations"
    device.get_by_role("button", name="activations").click()
    assert table.count() == 0


def test_a_click_in_the_picture_picks_what_lies_there(visit):
    script = "02_mixed_precision/train"
    page = visit(place="#02_mixed_precision-train")
    table = figure(page, script).locator(".largest")
    slider(page, script).scroll_into_view_if_needed()
    box = slider(page, script).bounding_box()
    x, y = box["x"] + 0.4 * box["width"], box["y"] + box["height"] - 5
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 30, y)
    page.mouse.up()
    assert table.count() == 0  # dragging does not
    page.mouse.click(x, y)
    assert table.locator("caption").inner_text() == "The ten largest of the parameters"
    page.mouse.click(x, y)
    assert table.count() == 0


def test_compare_two_timelines(visit):
    page = visit(place="#05_grad_accum-train")
    page.locator("#from").select_option("03_bf16/train")
    page.locator("#to").select_option("08_fsdp/train")
    compared = page.locator("#comparison")
    assert compared.locator("figcaption").all_inner_texts() == ["03_bf16/train", "08_fsdp/train"]
    ticks = [
        canvas.locator(".tick").all_inner_texts() for canvas in compared.locator(".canvas").all()
    ]
    assert ticks[0] == ticks[1] and len(ticks[0]) >= 4
    assert compared.locator(".ghost").count() == 1
    moved = compared.locator(".moved").inner_text()
    first, second = (
        stored.predictions()[name]["train"] for name in ("03_bf16/train", "08_fsdp/train")
    )
    sizes = [size(r["device_peak_gb"]) for r in (first, second)]
    assert f"allocated: {sizes[0]} to {sizes[1]}, falls to" in moved
    gone = second["breakdown_gb"]
    assert "optimizer states" not in gone and "optimizer states: gone" in moved
    assert "from=" in settled(page) and "to=" in page.url
    chosen = page.locator(".chain-name")
    assert "with Fabric" in chosen.inner_text()
    page.locator("article.chosen .switch").click()
    assert "plain PyTorch" in chosen.inner_text()
    assert "make_device" in compared.inner_text()


def test_names_of_marks_are_whole(visit):
    cut_off = """
        [...document.querySelectorAll('.canvas .top, .canvas .tick')].filter(mark => {
            const { x, right } = mark.getBoundingClientRect();
            return mark.checkVisibility() && (x < 0 || right > innerWidth);
        }).map(mark => mark.textContent)"""
    page = visit(360, 740)
    page.evaluate("document.documentElement.classList.remove('one-stage')")
    assert page.evaluate(cut_off) == []
