"""Write the workshop page: one file of diffs, timelines, predictions and exercises.

index.html contains everything that it shows, so it opens from a disk without a network.
"""

from shared.lab.records.atomic_files import write_text
from shared.lab.report import charts, page
from shared.run.cli import Parser, location, try_writing
from shared.run.errors import UserError

FILE = "index.html"


def parse(argv):
    """Parse the command line."""
    parser = Parser(description=__doc__.splitlines()[0])
    records = "measurements to show besides the repository's, such as out/ladder.jsonl"
    out = "folder for index.html (default: out)"
    add = parser.add_argument
    add("--records", type=location, nargs="+", default=[], metavar="FILE", help=records)
    add("--out", type=location, default="out", metavar="DIR", help=out)
    more = "timelines of other scripts and models, to compare: the timelines.json that python -m "
    more += "shared predict --timeline DIR has written"
    add("--timelines", type=location, nargs="+", default=[], metavar="FILE", help=more)
    args = parser.parse_args(argv)
    # Checked before the page is made, which takes a while.
    try_writing(args.out / FILE)
    for file in args.records:
        try:
            shown = file.is_file() and charts.measurements(file)
        # A file may have other fields, and of other types, than a record.
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            shown = []
        if not shown:
            right = "pass what --record or the ladder has written, such as out/ladder.jsonl"
            raise UserError(f"--records {file}: it holds no records of scripts; {right}")
    return args


def main(argv=None):
    args = parse(argv)
    html = page.render(args.records, args.timelines)
    file = args.out / FILE
    write_text(file, html)
    print(f"{file}: {len(html.encode()) / 1e6:.1f} MB")
