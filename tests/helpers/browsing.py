"""A browser that opens the workshop page, started once per file of tests."""

import json
import os
import shutil

import pytest

from helpers.workshop_page import HOSTILE, RECORD
from shared.lab.report import command

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--no-first-run", "--disable-background-networking", "--disable-sync")
NONE = "needs playwright and a Chromium that starts; the page is not tested in a browser"


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason=NONE)
    with api.sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, BROWSERS)), None)
        try:  # Chromium refuses to start its sandbox for root
            options = [*QUIET, *["--no-sandbox"] * (os.geteuid() == 0)]
            found = playwright.chromium.launch(executable_path=found, args=options)
        except api.Error:
            pytest.skip(NONE)
        yield found
        found.close()


@pytest.fixture(scope="module")
def address(browser, tmp_path_factory):
    """The page's address, with one more file of records, whose names are code."""
    folder = tmp_path_factory.mktemp("page")
    hostile = {**RECORD, "device": HOSTILE, "dataset": HOSTILE}
    odd = [{}, {"script": "01_baseline/plain"}, {"script": f"99_mine/{HOSTILE}"}]
    lines = [json.dumps({**hostile, **change}) + "\n" for change in odd]
    (folder / "mine.jsonl").write_text("".join(lines))
    command.main(["--records", str(folder / "mine.jsonl"), "--out", str(folder)])
    return (folder / "index.html").as_uri()


@pytest.fixture
def visit(browser, address):
    """Open the page, which must log no message and request nothing; place: "#06_sgd-train"."""
    contexts, said, asked = [], [], []

    def open_page(width=1280, height=900, place="", **options):
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address + place)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert {url.partition("#")[0] for url in asked if not url.startswith("data:")} <= {address}
