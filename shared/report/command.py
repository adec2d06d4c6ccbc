"""Write the workshop page: one file of diffs, timelines, predictions and exercises.

index.html contains everything that it shows, so it opens from a disk without a network.
"""

from shared.cli import Parser, UserError, location
from shared.predict import timeline
from shared.records import bars, stored
from shared.records.atomic_files import write_text
from shared.records.views import read
from shared.report import page, timelines


def parse(argv):
    """Parse the command line."""
    parser = Parser(description=__doc__.splitlines()[0])
    records = "measurements to show besides the repository's, such as out/ladder.jsonl"
    out = "folder for index.html (default: out)"
    add = parser.add_argument
    add("--records", type=location, nargs="+", default=[], metavar="FILE", help=records)
    add("--out", type=location, default="out", metavar="DIR", help=out)
    more = "timelines of other scripts and models, to compare: the timelines.json that python -m "
    more += "shared.predict --timeline DIR has written"
    add("--timelines", type=location, nargs="+", default=[], metavar="FILE", help=more)
    add("--slides", action="store_true", help="write pictures for slides beside the page")
    args = parser.parse_args(argv)
    for file in args.records:
        if not file.is_file() or not read(file)[0]:
            right = "pass what --record or the ladder has written, such as out/ladder.jsonl"
            raise UserError(f"--records {file}: it holds no records of scripts; {right}")
    return args


def main(argv=None):
    args = parse(argv)
    html, chosen = page.render(args.records, args.timelines)
    file = args.out / "index.html"
    write_text(file, html)
    print(f"{file}: {len(html.encode()) / 1e6:.1f} MB")
    if args.slides:
        print(f"{args.out}: {slides(chosen, args.out)} pictures for slides")


def slides(chosen, out):
    """Draw the charts of the ladder and the timelines into a folder; return their number."""
    for n, data in enumerate(chosen):
        bars.draw(data["records"], out / f"bars-{n + 1}.png")
    records = stored.predictions()
    for name, its in timelines.of_all().items():
        picture = out / f"timeline-{name.replace('/', '-')}.png"
        timeline.slide(records[name], its, picture)
    return len(chosen) + len(timelines.of_all())
