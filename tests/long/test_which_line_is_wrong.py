"""Promise: the table has the cost of each one-line mistake, predicted as measured."""

import functools

from versions import only_here

from shared.evidence import variants
from shared.lessons import mistakes
from shared.predict.jobs import run_jobs
from shared.records import stored
from shared.records.views import read_list

pytest_plugins = "browsing"
HARMLESS = {"`losses.append(loss)`", "without it, but `loss.detach()` added up"}


def test_predicted_is_measured_to_the_byte():
    measured = variants.simulated(variants.MEASURED, variants.measure)
    jobs = [
        (functools.partial(variants.simulate, input_shapes=measured[v.words]["input_shapes"]), v)
        for v in variants.MEASURED
    ]
    for record, (words, its) in zip(run_jobs(jobs), measured.items(), strict=True):
        # Except for loading: a simulated model.to() frees a parameter when it converts the next.
        assert record["train"] == its["train"], words
    there = read_list(stored.TINY_VARIANTS)
    only_here(there[0])
    assert [r["train"] for r in there] == [r["train"] for r in measured.values()]


def test_which_of_them_cost_something():
    peak = {words: r["train"]["device_peak_gb"] for words, r in variants.recorded().items()}
    asked = [v for v in variants.MEASURED if v.mend]
    free = {v.words for v in asked if peak[v.words] < 1.0001 * peak[v.against]}
    assert [peak[v.words] >= peak[v.against] for v in asked] == [True] * 9 and free == HARMLESS


def test_the_line_on_the_page(visit):
    page = visit()
    for n, (question, its) in enumerate(zip(mistakes.asked()[0], page.locator(".mistake").all())):
        wrong = its.locator("[data-wrong]")
        assert wrong.count() == (2 if n == 3 else 1 if n != 4 else 3), question["words"]
        its.locator("button").first.click()
        assert not its.locator("p").first.is_visible()
        wrong.first.click()
        assert question["tiny"] in its.locator("p").first.inner_text()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")  # the handout has all answers
    assert page.locator(".answer").count() == page.locator(".exercise").count()
