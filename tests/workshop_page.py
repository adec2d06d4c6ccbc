"""The workshop page that several tests look at, written once."""

import functools
import json

from shared.records.record import TINY_MEASURED, read
from shared.report import command

RECORD = read(TINY_MEASURED)[0][0]
HOSTILE = "<img src=x onerror=document.title='taken'>"


@functools.cache
def written(base):
    """Writes the page with one more file of records, in which names are code.

    Args:
        base: pytest's folder for this session, a pathlib.Path.

    Returns:
        the folder with the page.
    """
    folder = base / "workshop_page"
    folder.mkdir()
    hostile = {**RECORD, "device": HOSTILE, "dataset": HOSTILE}
    odd = [
        {},
        {"script": "01_baseline/plain"},
        {"script": "99_mine/train", "test_accuracy": None},
        {"script": f"99_mine/{HOSTILE}"},
    ]
    lines = [json.dumps({**hostile, **change}) + "\n" for change in odd]
    (folder / "mine.jsonl").write_text("".join(lines))
    command.main(["--records", str(folder / "mine.jsonl"), "--out", str(folder)])
    return folder


def settled(page):
    """Returns the page's address when all its state is in there, which takes a moment."""
    page.wait_for_timeout(400)
    return page.url
