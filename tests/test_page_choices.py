"""Promise: the workshop page tells what memory costs in time, and which way leads to a card."""

import json

from shared.lessons import stored
from shared.report import price
from shared.report.page import models

pytest_plugins = "browsing"


def test_memory_against_time(visit):
    page = visit()
    chart = {p["script"]: p for p in price.chart()["points"]}
    point = "#price .point[data-script='{}'] a".format
    page.locator(point("08_fsdp/zero2")).hover()
    tip = page.locator("#price .tip:visible")
    told, its = tip.inner_text(), chart["08_fsdp/zero2"]
    assert f"allocated {its['peak']}" in told and f"at least {its['per_image']}" in told
    assert all(f"{label} {gb}" in told for label, gb, _ in its["parts"])
    assert f"at least {its['whole']} ({its['times']})" in told
    assert f"beside it: {its['beside']}" in told
    page.locator(point("08_fsdp/zero2")).click()
    assert page.url.endswith("#08_fsdp-train")
    # With the Tab key to one of them, with the arrow keys to the next, and no key to all of them.
    page.locator("#price h2").hover()
    page.locator("#card").focus()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("!!document.activeElement.closest('.points')"):
            break
    reached = "document.activeElement.closest('.point')?.dataset.script"
    for key, axis in (("ArrowLeft", "ms"), ("ArrowDown", "gb")):
        order = sorted(chart, key=lambda name: chart[name][axis])
        for name in reversed(order[: order.index(page.evaluate(reached))]):
            page.keyboard.press(key)
            assert chart[page.evaluate(reached)][axis] == chart[name][axis]
        assert page.evaluate(reached) == order[0] and tip.inner_text().startswith(order[0])
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    assert tip.count() == 1
    name = page.evaluate(reached)
    page.keyboard.press("Escape")
    assert page.evaluate(reached) is None and tip.count() == 0
    page.locator("#price summary").click()
    assert page.locator("#price tbody tr:visible").count() == len(chart)
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(reached) == name  # where one was
    page.keyboard.press("Enter")
    assert page.url.endswith(f"#{chart[name]['link'].replace('/', '-')}")


def verdict(card, rows):
    """Returns what the page must say of a card, from the rows of page.models()."""
    said = []
    for gpus in sorted({row[1] for row in rows}):
        those = [(name, needs) for name, n, needs, *_ in rows if n == gpus]
        needed = dict(reversed(those))  # the first of a name is the last here
        spare = {name: card - needed[name] for name, _ in those}
        safe = [name for name, _ in those if spare[name] >= 2]
        perhaps = [f"{name}, perhaps" for name, _ in those if 0 <= spare[name] < 2]
        first = [*safe, *perhaps, "none of these"][0]
        on = "one GPU" if gpus == 1 else f"{gpus} GPUs, each"
        said.append(f"The first that fits on {on} of {card} GB: {first}.")
    return " ".join(said)


def test_which_way(visit):
    page = visit()
    stored_ways = {(w["setting"], w["card"]): w for w in json.loads(stored.WAYS.read_text())}
    shown = ".of-way:not([hidden]) "
    for n, m in list(enumerate(models()))[::2]:  # every second one
        page.get_by_label("Model").select_option(str(n))
        for card in (8, 24, 141):
            page.get_by_label("Card").select_option(str(card))
            assert page.locator("#verdict").inner_text() == verdict(card, m["rows"])
            short = page.locator(".model:not([hidden]) .fits.no")
            assert short.count() == sum(row[2] > card for row in m["rows"])
        ask = page.locator("#ask")
        told = f"python -m shared.predict --fits 141 --model {m['name']}"
        assert ask.locator("code:visible").last.inner_text() == told
        page.get_by_label("Card").select_option("l4")
        its = stored_ways.get((m["model"], "l4"))
        assert ask.is_visible() == (its is None)
        if its:
            assert page.locator(f"{shown} li").all_inner_texts() == its["advice"]
            assert page.locator(f"{shown} tbody tr").count() == len(its["ways"])
        else:
            told = f"python -m shared.predict --card l4 --model {m['name']}"
            assert ask.locator("code:visible").inner_text() == told
            assert page.locator(shown).count() == 0
