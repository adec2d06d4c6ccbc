"""Writes the workshop page: one file with diffs, who holds the memory, what fits, and exercises.

index.html contains everything that it shows, so that it opens from a disk without a network. The
pictures for slides are beside it.
"""

from pathlib import Path

from shared.common.errors import UserError
from shared.common.files import writable_folder
from shared.common.options import Parser
from shared.lessons import stored
from shared.predict import timeline
from shared.records import bars
from shared.records.record import read
from shared.report import charts, page

WHAT = "pass what --record or the ladder has written, such as out/ladder.jsonl"
NO_RECORDS = (OSError, KeyError, TypeError, ValueError, AttributeError, OverflowError)


def parse(argv):
    """Parses the command line.

    Raises:
        UserError: a file holds no records, or the folder cannot be written to.
    """
    parser = Parser(description=__doc__.splitlines()[0])
    records = "measurements to show besides the repository's, such as out/ladder.jsonl"
    out = "folder for index.html and the pictures (default: out)"
    add = parser.add_argument
    add("--records", type=Path, nargs="+", default=[], metavar="FILE", help=records)
    add("--out", type=Path, default=Path("out"), metavar="DIR", help=out)
    args = parser.parse_args(argv)
    for file in args.records:
        _check(file)
    writable_folder(args.out, "--out")
    return args


def _check(file):
    try:
        records, broken = read(file)
        for data in charts.measurements(file):
            for row in data["rows"]:
                charts.costs(row["script"], None, [data])
    except NO_RECORDS as error:
        wrong = error.strerror if isinstance(error, OSError) else "these are no records of scripts"
        raise UserError(f"--records {file}: {wrong}; {WHAT}") from None
    if not records:
        raise UserError(f"--records {file}: there are no records in it; {WHAT}")
    if broken:
        print(f"- {broken} unreadable line{'s' * (broken > 1)} in {file} left out")


def main(argv=None):
    args = parse(argv)
    html, chosen = page.render(args.records)
    for n, data in enumerate(chosen):
        bars.draw(data["records"], args.out / f"bars-{n + 1}.png")
    records = stored.predictions()
    for moments in page.moments_of_all():
        name = moments["script"].replace("/", "-")
        timeline.slide(records[moments["script"]], moments, args.out / f"timeline-{name}.png")
    (args.out / "index.html").write_text(html)
    pictures = len(list(args.out.glob("*.png")))
    megabytes = f"{len(html) / 1e6:.1f} MB"
    file = args.out / "index.html"
    print(f"{file}: {megabytes}, with {pictures} pictures for slides beside it")
