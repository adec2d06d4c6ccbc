"""Promise: the workshop page's chart, comparison and card selection work in a browser."""

import pytest
from conftest import NAMES
from helpers.workshop_page import HOSTILE, WIDTH

from shared.lab.records import stored
from shared.lab.records.formats import size
from shared.lab.records.reading import by_script, read
from shared.lab.records.stored import TINY_MEASURED

pytest_plugins = "helpers.browsing"


def bars(page, name=""):
    """Return the visible bars of the ladder, or that of one script."""
    which = f"[data-script='{name}']" if name else ""
    return page.locator(f".dataset:not([hidden]) .bar{which}")


def width(found):
    return found.bounding_box()["width"]


def test_the_chart(visit):
    page, peaks = visit(), stored.predictions()
    linear = {name: width(bars(page, name).locator(".stack")) for name in NAMES[:6]}
    for name, drawn in linear.items():
        gb, most = (peaks[n]["train"]["device_peak_gb"] for n in (name, NAMES[0]))
        assert drawn / linear[NAMES[0]] == pytest.approx(gb / most, abs=0.01)
    assert bars(page).locator(".published").count() == len(stored.ARTICLE)
    titles = page.locator("#dataset option").all_inner_texts()
    name = next(text for text in titles if text.startswith("vit_tiny") and "side" not in text)
    page.locator("#dataset").select_option(label=name)
    measured = by_script(read(TINY_MEASURED)[0])
    for script in NAMES[:4]:
        gb = measured[script]["train"]["device_peak_gb"]
        assert bars(page, script).locator(".peak").inner_text() == size(gb)


def test_compare_any_two(visit):
    page, peaks, names = visit(), stored.predictions(), ["03_bf16/train", "08_fsdp/train"]
    compared = page.locator("#comparison")
    page.locator("#from").select_option(names[1])
    page.locator("#to").select_option(names[0])  # shown in the ladder's order
    assert compared.locator(".bar").count() == 2 and compared.locator(".ghost").count() == 1
    assert compared.locator("figcaption").all_inner_texts() == names
    ticks = [its.locator(".tick").all_inner_texts() for its in compared.locator(".canvas").all()]
    assert ticks[0] == ticks[1] and len(ticks[0]) >= 4
    sizes = [size(peaks[name]["train"]["device_peak_gb"]) for name in names]
    assert f"allocated: {sizes[0]} to {sizes[1]}, " in compared.locator(".moved").inner_text()
    assert compared.locator("ins", has_text="MICRO_BATCH_SIZE = 4").count() == 1
    page.get_by_label("in plain PyTorch").check()
    assert compared.locator("thead").inner_text().split() == ["03_bf16/plain", "08_fsdp/plain"]
    page.get_by_label("with Fabric").check()
    page.locator("#from").select_option("11_llm/before")  # of another model
    assert compared.locator(".bar").count() == 0 and compared.locator("ins").count() > 5
    page.locator("#to").select_option("11_llm/before")
    assert compared.inner_text() == "Choose two different scripts."


@pytest.mark.parametrize("pixels", [360, 1920])
def test_nothing_runs_over(visit, pixels):
    page = visit(pixels, 740)
    page.evaluate("document.documentElement.classList.remove('one-stage')")  # shows all stages
    page.get_by_label("in plain PyTorch").check()
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate(WIDTH) <= pixels
    over = """
        [...document.querySelectorAll('body *')].filter(e => e.checkVisibility()
            && e.getBoundingClientRect().right > innerWidth + 1
            && !e.closest('.wide, .source, .links, details, .skip')).map(e => e.className)"""
    assert page.evaluate(over) == []


def test_the_menu_of_a_phone(visit):
    page = visit(390, 844)
    menu, button = page.locator("#menu"), page.get_by_role("button", name="Menu")
    assert not menu.is_visible() and page.locator("#numbers").is_visible()
    for name in ("#compare", "#times"):
        button.click()
        menu.locator(f"a[href='{name}']").click()
        menu.wait_for(state="hidden")
        assert abs(page.locator(name).bounding_box()["y"]) < 200  # the page has gone there
    button.click()
    assert menu.get_by_role("button", name="Present").is_visible()
    wide = visit()
    assert wide.locator("#menu a").first.is_visible()
    assert not wide.get_by_role("button", name="Menu").is_visible()


def test_names_in_records_are_not_code(visit):
    page = visit()
    assert page.locator("img").count() == 0 and page.title() != "taken"
    titles = page.locator("#dataset option").all_inner_texts()
    own = next(title for title in titles if title.endswith("(mine.jsonl)"))
    assert HOSTILE in own
    page.locator("#dataset").select_option(label=own)
    names = bars(page).locator(".name").all_inner_texts()
    assert names == ["01_baseline/plain", "01_baseline/train", f"99_mine/{HOSTILE}"]
