"""Promise: the page's first screen answers an error and a question, as the commands do.

Its reader of messages is a second program with the table of the first: each message that a test of
the emulator reads goes through both, and so do its folded, colored and cut forms.
"""

import re
import tomllib

import pytest
from conftest import ROOT

from emulated_gpu.cards import CARDS
from emulated_gpu.why import message
from emulated_gpu.why.advice import HOW
from emulated_gpu.why.fit import needs
from shared.lab.records import measured, stored
from shared.lab.records.reading import setting

pytest_plugins = "helpers.browsing"

FILE = ROOT / "shared" / "emulator" / "tests" / "messages.toml"
MESSAGES = [m["text"] for half in tomllib.loads(FILE.read_text("utf-8")).values() for m in half]
DOORS = "#error", "#fit", "#teach"
FORMS = {
    "as it is": lambda text: text,
    "folded, from Windows": lambda text: "\r\n".join(re.findall(".{1,40}", text)),
    "colored": lambda text: re.sub(r"(?m)^(.+)$", "\x1b[1;31m\\1\x1b[0m", text),
    "of a log": lambda text: re.sub("(?m)^", "2026-01-31 10:00:00,123 ERROR [rank0]: ", text),
    "its end": lambda text: text[len(text) // 2 :],
}


def in_python(text):
    try:
        return message.lines(text)
    except message.UserError:
        return None


@pytest.mark.parametrize("form", FORMS)
def test_the_page_answers_every_message_as_the_command_does(visit, form):
    texts = [*map(FORMS[form], MESSAGES)]
    read = "texts => texts.map(text => Messages.answer(text)?.lines ?? null)"
    answers = visit(place="").evaluate(read, texts)
    wrong = [text for text, said in zip(texts, answers, strict=True) if said != in_python(text)]
    assert not wrong, f"{len(wrong)} of {len(texts)} differ, the first of them: {wrong[0]}"


def test_a_pasted_message_opens_the_door_with_its_answer(visit):
    page, text = visit(place=""), MESSAGES[8]
    page.locator("#message").fill(text)
    assert page.locator("#answer > p").all_inner_texts() == in_python(text)
    assert page.locator("body").get_attribute("data-door") == "error"
    assert text[:20] not in page.url  # an address is shared, and a message is not
    remedies = page.locator("#answer .remedy")
    assert remedies.count() > 0
    for remedy in remedies.all():
        remedy.locator("summary").click()
        assert remedy.locator("ins:visible").count() > 0
    page.locator("#message").fill("ValueError: shapes differ")
    assert "no message about lacking memory" in page.locator("#answer").inner_text()


def test_every_example_has_an_answer_and_every_remedy_a_diff(visit):
    page = visit(place="")
    answers = []
    for button in page.locator(".examples button").all():
        button.click()
        said = page.locator("#answer > p").all_inner_texts()
        assert said == in_python(page.locator("#message").input_value())
        answers.append(" ".join(said))
    told = ("are little of the card", "Other processes hold", "Fragmentation may be", "killed")
    for words, answer in zip(told, answers, strict=True):
        assert words in answer
    there = "Object.values(data('remedies')).filter(r => document.getElementById(r.diff)).length"
    assert page.evaluate(there) == len(HOW)


@pytest.mark.parametrize("width, height", [(1280, 720), (390, 844)])
def test_the_first_screen_is_three_doors(visit, width, height):
    for scheme in ("light", "dark"):
        page = visit(width, height, place="", color_scheme=scheme)
        for door in DOORS:
            box = page.locator(door).bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width, door
            assert box["y"] + box["height"] <= height, door
        others = page.locator("body > :visible:not(header, #doors, .skip)")
        assert others.count() == 0 and page.locator(".door:visible").count() == 3
        assert page.evaluate("document.documentElement.scrollHeight") <= height


def test_doors_open_by_keyboard_and_by_address(visit):
    page = visit(place="")
    for door in DOORS:
        page.locator(f"{door} h2 a").focus()
        page.keyboard.press("Enter")
        page.wait_for_function(f"document.body.dataset.door === '{door[1:]}'")
        assert page.locator("#lessons").is_visible() == (door == "#teach")
    page.locator("h1 a").click()
    page.wait_for_function("document.body.dataset.door === ''")
    assert visit(place="#08_fsdp-train").locator("body").get_attribute("data-door") == "teach"


def test_what_fits_is_what_the_records_say(visit):
    page = visit(place="#fit")
    stages = stored.predicted(stored.STAGES, stored.ONE_GPU)
    alone = [r for r in stages if setting(r) == "vit_l_16 at 224 px" and r["world_size"] == 1]
    for card in ("rtx3050-laptop", "rtx3060", "h200"):
        page.locator("#card").select_option(card)
        fits = [r for r in alone if needs(r) <= CARDS[card].gb]
        said = page.locator("#fits .verdict").inner_text()
        assert f"{len(fits)} of {len(alone)} scripts fit" in said
        fastest = min(fits, key=lambda r: r["time"]["ms"] / r["batch_size"])
        assert f"{fastest['script']} is the fastest" in said
        assert f"{needs(fastest):.1f} GB" in page.locator("#fits tbody tr").first.inner_text()
        assert page.locator("#own-card").inner_text() == card
    page.locator("#model").select_option("meta-llama/Meta-Llama-3-8B, 512 tokens")
    page.locator("#card").select_option("rtx3060")
    assert "fit, but their time was not emulated" in page.locator("#fits .verdict").inner_text()
    page.locator("#card").select_option("rtx3050-laptop")
    assert "none of" in page.locator("#fits .verdict").inner_text()


def test_the_slider_multiplies_kernels_and_pace(visit):
    page = visit(place="#times")
    told = page.locator("#pace-said")
    for n, (images, at_once) in enumerate([(16, 4), (64, 16), (128, 32)]):
        run = measured.updates("06_sgd/train", images, at_once)
        passes = 64 // at_once
        page.locator("#micro-batch").fill(str(n))
        page.locator("#host-us").fill("30")
        kernels = round(run.kernels / run.passes * passes)
        busy_ms = round(run.busy_ms / run.passes * passes)
        assert f"{passes} passes and {kernels:,} kernels" in told.inner_text()
        host_ms = kernels * 30 / 1e3
        assert f"{host_ms:.0f} ms" in page.locator("#pace-host").inner_text()
        assert f"{busy_ms} ms" in page.locator("#pace-gpu").inner_text()
        assert ("the GPU waits" in told.inner_text()) == (host_ms > busy_ms)
        enough = measured.updates("03_bf16/train").enough  # as page 05 says
        assert f"takes about {enough:.0f} images at a time until" in told.inner_text()
    page.locator("#micro-batch").press("End")
    page.locator("#pace-card").select_option(label="RTX 3060 12 GB")
    assert "takes 1 pass and" in told.inner_text() and "the host waits" in told.inner_text()


def test_a_handout_has_at_most_eight_pages_and_every_answer(visit):
    page = visit()
    handout = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", handout)) <= 8
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".answer").count() == page.locator("article .exercise").count()
