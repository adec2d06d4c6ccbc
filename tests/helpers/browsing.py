"""A browser that opens the workshop page, started once per file of tests."""

import os
import shutil

import pytest

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
    """The page's address."""
    folder = tmp_path_factory.mktemp("page")
    command.main(["--out", str(folder)])
    return (folder / "index.html").as_uri()


@pytest.fixture
def visit(browser, address):
    """Open the page behind the door of lessons, or at a place such as "#06_sgd-train".

    It must log no message and request nothing.
    """
    contexts, said, asked = [], [], []

    def open_page(width=1280, height=900, place="#ladder", **options):
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
