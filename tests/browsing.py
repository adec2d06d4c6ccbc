"""A browser that opens the workshop page, for the tests of the page."""

import shutil

import pytest
from workshop_page import written

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM:
        pytest.skip("no Chromium here: the page is not looked at in a browser")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        started = p.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return (written(tmp_path_factory.getbasetemp()) / "index.html").as_uri()


@pytest.fixture
def visit(browser, address):
    """Opens the page, at a place if one is given, such as "#06_sgd-train".

    In the end it must not have complained, nor asked for anything.
    """
    contexts, said, asked = [], [], []

    def open_page(width=1280, height=900, scheme="light", place="", **options):
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, color_scheme=scheme, **options)
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
