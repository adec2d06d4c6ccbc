"""Take a picture of a part of the workshop page in a browser.

This needs Chromium, and playwright to drive it.
"""

import os
import shutil
from pathlib import Path

from shared.cli import Parser, UserError

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--no-first-run", "--disable-background-networking", "--disable-sync")
WIDTH, HEIGHT, SCALE = 1280, 1200, 1.5  # in CSS pixels; pixels of the picture per CSS pixel
ADDRESS, PART = "05_grad_accum-train", "article.chosen .moments"


def take(page, part=PART, state=ADDRESS):
    """Return a picture of a part of a page, as the bytes of a PNG file.

    The part is a CSS selector; the state is what follows # in the page's address.
    """
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        browser = started(playwright)
        size = {"width": WIDTH, "height": HEIGHT}
        shown = browser.new_page(viewport=size, device_scale_factor=SCALE, color_scheme="light")
        shown.goto(f"{page.resolve().as_uri()}#{state}")
        try:
            shown.locator(part).first.wait_for(timeout=2_000)
        except Error:
            raise UserError(f"--part {part}: no such part is visible in {page}") from None
        return shown.locator(part).first.screenshot()


def started(playwright):
    """Return a browser: the system's, or else the one that playwright has installed."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    # Chromium's sandbox does not start as root; the page is trusted.
    options = [*QUIET, "--no-sandbox"] if os.geteuid() == 0 else [*QUIET]
    return playwright.chromium.launch(executable_path=found, args=options)


def main(argv=None):
    parser = Parser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("file", type=Path, metavar="FILE.png", help="the picture")
    page = "the page (default: out/index.html)"
    add("--page", type=Path, default=Path("out/index.html"), metavar="FILE", help=page)
    state = f"what follows # in the page's address (default: {ADDRESS})"
    add("--state", default=ADDRESS, metavar="TEXT", help=state)
    part = f"CSS selector of the part; the first that it finds (default: {PART})"
    add("--part", default=PART, metavar="SELECTOR", help=part)
    args = parser.parse_args(argv)
    if not args.page.is_file():
        raise UserError(f"--page {args.page}: no such file; `python -m shared.report` writes it")
    args.file.write_bytes(take(args.page, args.part, args.state))
    print(f"{args.file}: {args.part} of {args.page}")


if __name__ == "__main__":
    main()
