"""Promise: the workshop page's chart and menu work in a browser, on a phone, too."""

import pytest
from conftest import NAMES
from helpers.workshop_page import WIDTH

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
    titles = page.locator("#dataset option").all_inner_texts()
    name = next(text for text in titles if text.startswith("vit_tiny"))
    page.locator("#dataset").select_option(label=name)
    measured = by_script(read(TINY_MEASURED)[0])
    for script in NAMES[:4]:
        gb = measured[script]["train"]["device_peak_gb"]
        assert bars(page, script).locator(".peak").inner_text() == size(gb)


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
    for name in ("#wrong", "#times"):
        button.click()
        menu.locator(f"a[href='{name}']").click()
        menu.wait_for(state="hidden")
        assert abs(page.locator(name).bounding_box()["y"]) < 200  # the page has gone there
    button.click()
    assert menu.get_by_role("button", name="Present").is_visible()
    wide = visit()
    assert wide.locator("#menu a").first.is_visible()
    assert not wide.get_by_role("button", name="Menu").is_visible()
