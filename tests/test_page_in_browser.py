"""Promise: the workshop page works in a real browser: by mouse, keyboard, touch and on paper."""

import re

import pytest
from conftest import NAMES, PLAIN
from workshop_page import HOSTILE

from shared.lessons import exercises, stored
from shared.records.units import size

pytest_plugins = "browsing"


def bars(page, name=""):
    """Returns the bars of the ladder that are shown, or that of one script."""
    which = f"[data-script='{name}']" if name else ""
    return page.locator(f".dataset:not([hidden]) .bar{which}")


def test_chart(visit):
    page = visit()
    predicted = stored.predictions()
    assert bars(page).count() == len(NAMES)

    def widths():
        found = {name: bars(page, name).locator(".stack").bounding_box() for name in NAMES[:6]}
        return {name: box["width"] for name, box in found.items()}

    linear = widths()
    first = predicted[NAMES[0]]["train"]["device_peak_gb"]
    for name, width in linear.items():
        share = predicted[name]["train"]["device_peak_gb"] / first
        assert width / linear[NAMES[0]] == pytest.approx(share, abs=0.01)
    page.get_by_label("logarithmic").check()
    assert widths()["06_sgd/train"] > 2 * linear["06_sgd/train"]
    assert bars(page).locator(".published").count() == len(stored.ARTICLE)
    titles = page.locator("#dataset option").all_inner_texts()
    measured = next(title for title in titles if "vit_tiny" in title and "AMD" in title)
    page.get_by_label("What").select_option(label=measured)
    assert page.locator(".dataset:not([hidden]) .peak").first.inner_text() == "117.2 MB"


def test_figures_by_keyboard_alone(visit):
    page = visit()
    for _ in range(60):
        page.keyboard.press("Tab")
        focused = "document.activeElement.closest('.bar')?.dataset.script"
        if page.evaluate(focused) == "06_sgd/train":
            break
    tip = bars(page, "06_sgd/train").locator(".tip")
    assert tip.is_visible() and "published in 2023: 2.02 GB" in tip.inner_text()
    held = stored.predictions()["06_sgd/train"]["train"]["breakdown_gb"]
    assert f"gradients {size(held['gradients'])}" in tip.inner_text()
    assert page.locator(".tip:visible").count() == 1
    page.keyboard.press("Enter")
    assert page.url.endswith("#06_sgd-train")
    page.locator("#theme").focus()
    background = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(background)
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.locator("#theme").inner_text() == "Theme: dark"
    assert page.evaluate(background) != before
    unreachable = """
        [...document.querySelectorAll('a, button, select, input, summary')]
            .filter(e => e.tabIndex < 0 && e.type !== 'radio' && !e.closest('.points')).length"""
    assert page.evaluate(unreachable) == 0


def test_switch_between_fabric_and_plain(visit):
    page = visit(place="#02_mixed_precision-train")
    stage = page.locator("article[id='02_mixed_precision-train']")
    assert "16-mixed" in stage.locator(".fabric").inner_text()
    assert not stage.locator(".plain").is_visible()
    page.get_by_label("in plain PyTorch").check()
    assert "GradScaler" in stage.locator(".plain").inner_text()
    assert not stage.locator(".fabric").is_visible()
    # Of 02 to 10; and 11 says that it has none.
    assert page.locator("article:has(.plain:not([hidden]))").count() == len(PLAIN) - 1 + 1
    assert page.locator(".chain-name").inner_text() == "in plain PyTorch"


@pytest.mark.parametrize(
    "first, second",
    [("06_sgd", "03_bf16"), ("04_batchsize", "05_grad_accum")],
)
def test_compare_any_two(visit, first, second):
    page = visit()
    page.locator("#from").select_option(f"{first}/train")
    page.locator("#to").select_option(f"{second}/train")
    compared = page.locator("#comparison")
    assert compared.locator(".bar").count() == 2
    names = sorted((first, second))
    assert compared.locator("thead").inner_text().split() == [f"{name}/train" for name in names]
    assert compared.locator("ins", has_text="MICRO_BATCH_SIZE = 4").count() == 1
    page.get_by_label("in plain PyTorch").check()
    assert compared.locator("thead").inner_text().split() == [f"{name}/plain" for name in names]
    page.locator("#from").select_option(f"{second}/train")
    assert compared.inner_text() == "Choose two different scripts."


def test_compare_takes_bars_where_there_are_some(visit):
    page = visit()
    for first, second, n in (
        ("11_llm/before", "11_llm/train", 2),
        ("01_baseline/train", "11_llm/train", 0),
    ):
        page.locator("#from").select_option(first)
        page.locator("#to").select_option(second)
        assert page.locator("#comparison .bar").count() == n
        assert page.locator("#comparison ins").count() > 10
        peak = size(stored.predictions()["11_llm/train"]["train"]["device_peak_gb"])
        assert (f"11_llm/train: {peak}" in page.locator("#said").inner_text()) == (n == 2)


def test_a_touch_shows_figures_first(visit):
    page = visit(360, 740, has_touch=True, is_mobile=True)
    bar = bars(page, "04_batchsize/train")
    bar.locator("a").tap()
    assert bar.locator(".tip").is_visible() and "#" not in page.url
    bar.locator("a").tap()
    assert page.url.endswith("#04_batchsize-train")
    point = page.locator(".point[data-script='10_offload/train']")
    point.locator("a").tap()
    assert point.locator(".tip").is_visible() and page.url.endswith("#04_batchsize-train")
    point.locator("a").tap()
    assert page.url.endswith("#10_offload-train")


@pytest.mark.parametrize("width, scheme", [(360, "light"), (768, "dark"), (1920, "dark")])
def test_nothing_runs_over(visit, width, scheme):
    page = visit(width, 740, scheme)
    page.evaluate("document.documentElement.classList.remove('one-stage')")  # all of them
    page.get_by_label("in plain PyTorch").check()
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    over = """
        [...document.querySelectorAll('body *')].filter(e => e.checkVisibility()
            && e.getBoundingClientRect().right > innerWidth + 1
            && !e.closest('.wide, .source, .links, details, .skip')).length"""
    assert page.evaluate(over) == 0
    covered = """
        [...document.querySelectorAll('.stage .mark')].filter(mark => {
            const { x, y, right, bottom } = mark.getBoundingClientRect();
            return [...document.querySelectorAll('.stage .mark, .tick')].some(e => {
                const other = e.getBoundingClientRect();
                return e.textContent !== mark.textContent && other.x < right - 2
                    && other.right > x + 2 && other.y < bottom - 2 && other.bottom > y + 2;
            });
        }).map(mark => mark.textContent)"""
    assert page.evaluate(covered) == []  # the labels of the points
    old = page.locator("article[id='05_grad_accum-train'] .plain .same .old")
    assert old.count() and old.first.is_hidden() == (width == 360)  # narrow, one below the other
    found = page.evaluate(
        "['backgroundColor', 'color'].map(c => getComputedStyle(document.body)[c])"
    )
    light, dark = (sum(map(float, re.findall(r"[\d.]+", color)[:3])) for color in found)
    assert (light > dark) == (scheme == "light")


def test_on_paper(visit, tmp_path):
    page = visit()
    file = tmp_path / "page.pdf"
    page.pdf(path=file, print_background=False, prefer_css_page_size=True)
    assert 5 < len(re.findall(rb"/Type\s*/Page\b", file.read_bytes())) <= 15
    # The answers are at the end, and only there.
    assert page.locator("details[open]").count() == 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#answers-at-the-end .answer").count() == len(exercises.every())
    assert page.locator("main > :last-child#answers-at-the-end").count() == 1
    page.get_by_text("Show all answers").click()
    assert page.locator(".exercise details:not([open])").count() == 0
    page.locator("#price summary").click()
    page.locator("#theme").click()
    page.locator("#theme").click()
    assert page.locator("#theme").inner_text() == "Theme: dark"
    page.set_viewport_size({"width": 703, "height": 1000})  # A4 with margins
    page.emulate_media(media="print")
    scheme = "getComputedStyle(document.documentElement).colorScheme"
    assert page.evaluate(scheme) == "light"
    cut_off = """
        [...document.querySelectorAll('main *')].filter(e => e.checkVisibility()
            && e.getBoundingClientRect().right > innerWidth + 4).length"""
    assert page.evaluate(cut_off) == 0
    assert page.locator(".dataset:not([hidden]) .paper").is_visible()
    assert page.locator("nav").is_hidden() and page.locator("#compare").is_hidden()
    assert page.locator("article[id='05_grad_accum-train'] .diff").first.is_visible()


def test_names_in_records_are_not_code(visit):
    page = visit()
    assert page.locator("img").count() == 0 and page.title() != "taken"
    titles = page.locator("#dataset option").all_inner_texts()
    own = next(title for title in titles if title.endswith("(mine.jsonl)"))
    assert HOSTILE in own
    page.get_by_label("What").select_option(label=own)
    names = bars(page).locator(".name").all_inner_texts()
    assert names[:3] == ["01_baseline/plain", "01_baseline/train", f"99_mine/{HOSTILE}"]
