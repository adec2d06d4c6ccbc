"""Shared by the tests of the workshop page: its width, and parts of it."""

WIDTH = "document.documentElement.scrollWidth"


def article(page, script):
    """Return the part of the page about a stage."""
    return page.locator(f"article[data-script='{script}']")


def settle(page):
    """Wait until the page's address holds all state; it is written after 300 ms at most."""
    page.evaluate("new Promise(done => setTimeout(done, 350))")  # the page's clock, not ours


def reopened(page, url=None):
    """Open an address, by default that of the page, as a user who received it does."""
    settle(page)
    url = url or page.url
    page.goto("about:blank")
    page.goto(url)
