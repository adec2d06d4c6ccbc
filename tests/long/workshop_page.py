"""What the tests of the workshop page share: a record, a name that is code, and parts of it."""

from shared.records.views import TINY_MEASURED, read

RECORD = read(TINY_MEASURED)[0][0]
HOSTILE = "<img src=x onerror=document.title='taken'>"
WIDTH = "document.documentElement.scrollWidth"


def article(page, script):
    """Returns the part of the page that is about a stage."""
    return page.locator(f"article[data-script='{script}']")


def settle(page):
    """Waits until all state is in the page's address, which is written after 300 ms at most."""
    page.evaluate("new Promise(done => setTimeout(done, 350))")  # the page's clock, not ours


def reopened(page, url=None):
    """Opens an address, or the page's own, as somebody does who was sent it."""
    settle(page)
    url = url or page.url
    page.goto("about:blank")
    page.goto(url)
