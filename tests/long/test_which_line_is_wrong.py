"""Promise: the table has the cost of each one-line mistake."""

from shared.lab.evidence import groups
from shared.lab.lessons import mistakes
from shared.lab.predict import cases

pytest_plugins = "helpers.browsing"
HARMLESS = {"`losses.append(loss)`", "two batches without `no_grad()`, `loss.detach()` added up"}


def test_which_of_them_cost_something():
    peak = {words: r["train"]["device_peak_gb"] for words, r in groups.variants().items()}
    asked = [v for v in cases.of("variants") if v.mend]
    free = {v.title for v in asked if peak[v.title] < 1.0001 * peak[v.against]}
    assert [peak[v.title] >= peak[v.against] for v in asked] == [True] * 9 and free == HARMLESS


def test_the_line_on_the_page(visit):
    page = visit()
    assert page.locator(".mistake:visible").count() == 1
    for n, (question, its) in enumerate(zip(mistakes.questions(), page.locator(".mistake").all())):
        assert its.is_visible()
        wrong = its.locator("[data-wrong]")
        assert wrong.count() == (2 if n == 3 else 1 if n != 4 else 3), question["title"]
        its.locator("button").first.click()
        assert not its.locator("p").first.is_visible()
        wrong.first.click()
        assert question["tiny"] in its.locator("p").first.inner_text()
        following = page.get_by_role("button", name="Next function")
        if following.is_enabled():  # all but after the last
            following.click()
