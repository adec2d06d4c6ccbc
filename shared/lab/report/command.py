"""Write the workshop page: one file that explains an error, says what fits, and teaches.

index.html contains everything that it shows, so it opens from a disk without a network.
"""

from shared.lab.records.atomic_files import write_text
from shared.run.cli import Parser, location, try_writing

FILE = "index.html"


def main(argv=None):
    parser = Parser(description=__doc__.splitlines()[0])
    out = "folder for index.html (default: out)"
    parser.add_argument("--out", type=location, default="out", metavar="DIR", help=out)
    file = parser.parse_args(argv).out / FILE
    # Checked before the page is made, which takes a while.
    try_writing(file)
    from shared.lab.report import page

    html = page.render()
    write_text(file, html)
    print(f"{file}: {len(html.encode()) / 1e6:.1f} MB")
