"""Writes the workshop page: one file with diffs side by side, who holds the memory, what fits, and exercises.

index.html holds everything it shows and asks for nothing else, so that it opens from a disk without a network; the
pictures for slides lie beside it.
"""

import datetime
import functools
import json
import math
import sys
import tempfile
from pathlib import Path

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup

from shared import UserError, bars, cli, exercises, lessons, markdown, side_by_side, stages, tables, timeline
from shared.figures import by_model, counted, git_commit, setting, size, speed
from shared.ledger import CATEGORIES

VITS = stages.RESULTS / "predicted-vits.json"  # what `python -m shared.predict 01-10 --model ... --json` printed
TIMELINES = stages.RESULTS / "predicted-full-timelines.json"  # what `python -m shared.predict --timeline` left beside its pictures
CARDS = (8, 12, 16, 24, 40, 80, 141)  # GB
PAGE = Path(__file__).parent / "page"


def datasets(own=()):
    """Returns what the chart can show: a dictionary for each model of each file of records, predictions for a GPU first.

    Args:
        own: files of records besides those of the repository; one JSON object per line.
    """
    found = []
    for group in by_model(list(lessons.predictions().values())):
        published = lessons.PUBLISHED if stages.run_of(group[0]) in lessons.PUBLISHED else {}
        name = f"{setting(group[0])}, predicted for {'GPUs' if group[-1]['world_size'] > 1 else 'a GPU'}"
        found.append(dataset(group, name, markdown.prediction_origin(group, lessons.PREDICTED), published))
    for file, _ in lessons.results():
        found += measurements(file)
    for file in own:
        found += measurements(file, f" ({file.name})")
    return found


def measurements(file, name=""):
    """Returns a dictionary as in datasets() for each model of a file of records.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, OverflowError: what is in the file are no records.
    """
    last = {stages.run_of(r): r for r in stages.records(file)[0]}  # if one was measured twice, the later one
    groups = by_model([last[run] for run in sorted(last)])
    return [dataset(group, f"{setting(group[0])}, measured on {group[0]['device']}{name}", markdown.origin(file, group), {}) for group in groups]


def dataset(records, name, origin, published):
    """Returns one choice of the chart: name, origin, bars, and axes in both scales; positions are in % of the width."""
    marks = [gb for r in records for gb in (r["train"]["device_peak_gb"], r["train"]["device_reserved_gb"], published.get(stages.run_of(r))) if gb]
    top, decade = max(marks) * 1.02, math.floor(math.log10(min(marks)))

    def at(gb):
        return {"lin": 100 * gb / top, "log": 100 * max(0.0, math.log10(gb) - decade) / (math.log10(top) - decade)}

    unit, factor = tables.scale(records)
    step = 10 ** math.floor(math.log10(top * factor))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if top * factor / s <= 8)
    ticks = {"lin": [n * step / factor for n in range(int(top * factor / step) + 1)], "log": [10.0**n for n in range(decade, math.ceil(math.log10(top)))]}
    rows = []
    for r in records:
        m = r["train"]
        rows.append({
            "run": stages.run_of(r),
            "link": next((run for run in (stages.run_of(r), r["stage"]) if run in stages.runs(stages.names())), None),
            "peak": size(m["device_peak_gb"]),
            "at": at(m["device_peak_gb"]),
            "parts": [(label, gb, size(gb), gb / m["device_peak_gb"]) for label in CATEGORIES if (gb := m["breakdown_gb"].get(label, 0)) >= 5e-5 * m["device_peak_gb"]],
            "reserved": (size(m["device_reserved_gb"]), at(m["device_reserved_gb"])) if m["device_reserved_gb"] else None,
            "published": (size(published[stages.run_of(r)]), at(published[stages.run_of(r)])) if stages.run_of(r) in published else None,
            "loading": size(r["load"]["device_peak_gb"]),
            "host": size(m["host_peak_gb"]) if (m["host_peak_gb"] or 0) > 0.01 * m["device_peak_gb"] else None,
            "where": markdown.where(r) if "peak_at" in r else None,
        })
    marked = {scale: [(f"{gb:g} GB" if gb >= 1 else f"{gb * 1e3:g} MB" if gb else "0", at(gb)[scale] if gb else 0) for gb in values] for scale, values in ticks.items()}
    return {"name": name, "origin": origin, "rows": rows, "ticks": marked, "records": records}


def costs(run, before, chosen):
    """Returns what a script costs in speed and accuracy: rows of a table, with the script before, if there is one."""
    rows = []
    for data in chosen:
        records = {stages.run_of(r): r for r in data["records"]}
        for name in (before, run):
            if run in records and name in records and speed(records[name]):
                r = records[name]
                accuracy = "noise" if r["dataset"] == "fake" else f"{r['test_accuracy']:.1%}" if r["test_accuracy"] is not None else markdown.NOTHING
                rows.append((name, f"{speed(r):.0f} {counted(r)}/s", accuracy, size(r["train"]["device_peak_gb"]), data["name"]))
    return rows


@functools.cache
def timelines():
    """Returns the timeline of every predicted script, {run: (SVG as Markup, which categories are in it)}."""
    records, found = lessons.predictions(), {}
    for moments in json.loads(TIMELINES.read_text()):
        shown = {*moments["device"], *(moments["host"] if tables.on_host(records[moments["run"]]) else ())}
        found[moments["run"]] = Markup(timeline.svg(records[moments["run"]], moments)), [label for label in CATEGORIES if label in shown]
    return found


def cards():
    """Returns what each model needs of a card in each stage: a list of (model, origin, rows of (name, GPUs, GB needed))."""
    found = []
    for file in (lessons.PREDICTED, VITS, lessons.TEXT):
        for group in by_model([r for r in json.loads(file.read_text()) if file is not lessons.PREDICTED or "image_px" in r]):
            rows = [(tables.name(r), r["world_size"], tables.needs(r), size(r["train"]["host_peak_gb"]) if tables.on_host(r) else "") for r in group]
            found.append((setting(group[0]), markdown.prediction_origin(group, file), rows))
    return found


@functools.cache
def diffs():
    """Returns the rows of the diff between every two scripts with Fabric, and every two without: {(before, after): rows}."""
    pairs = [(f"{stages.chain()[0]}/plain", stages.chain()[0])]
    for runs in (stages.runs(stages.names()), stages.plain(stages.chain())):
        pairs += [(a, b) for i, a in enumerate(runs) for b in runs[i + 1 :]]
    return {pair: side_by_side.rows(*pair) for pair in pairs}


def page(files):
    """Returns the page, and datasets() that it shows.

    Args:
        files: of measured records, besides those of the repository.
    """
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(PAGE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = MarkdownIt("commonmark", {"html": False}).enable("table")
    environment.filters["markdown"] = lambda source: Markup(text.render(source))
    environment.filters["inline"] = lambda source: Markup(text.renderInline(source))
    environment.filters["id"] = lambda run: run.replace("/", "-")
    chosen = datasets(files)
    parts, pictures, predicted = [], timelines(), lessons.predictions()
    for run in stages.runs(stages.names()):
        stage = run.partition("/")[0]
        before = next((other for other in lessons.beside(stage) if other < run), None)  # a folder's first script has none
        parts.append({
            "run": run,
            "stage": stage,
            "idea": stages.idea(stages.path(run)).split(", ", 1)[1].rstrip("."),
            "before": before,
            "peak": f"peak {size(predicted[run]['train']['device_peak_gb'])}, {markdown.where(predicted[run])}",
            "timeline": pictures[run][0],
            "held": pictures[run][1],
            "costs": costs(run, before, chosen),
            "exercises": exercises.all_of(stage) if run == stages.runs([stage])[-1] else [],
        })
    neighbours = {(p["before"] + end, p["run"] + end) for p in parts if p["before"] for end in ("", "/plain")}
    html = environment.get_template("index.html.jinja").render(
        parts=parts,
        datasets=chosen,
        diffs=diffs(),
        plain_runs=stages.plain(stages.chain()),
        neighbours=neighbours,
        cards=cards(),
        sizes=CARDS,
        allowance=tables.ALLOWANCE_GB,
        categories=CATEGORIES,
        colors={label: timeline.variable(label) for label in CATEGORIES},
        hexes={label: timeline.hex_color(label) for label in CATEGORIES},
        commit=git_commit(),
        date=datetime.date.today().isoformat(),
        style=Markup((PAGE / "style.css").read_text()),
        script=Markup((PAGE / "script.js").read_text()),
    )
    return html, chosen


def parse(argv):
    """Parses the command line.

    Raises:
        UserError: a file holds no records, or the folder cannot be written to.
    """
    parser = cli.Parser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--records", type=Path, nargs="+", default=[], metavar="FILE", help="measurements to show besides those of the repository, such as out/ladder.jsonl")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="folder for index.html and the pictures (default: out)")
    args = parser.parse_args(argv)
    for file in args.records:
        try:
            records, broken = stages.records(file)
            for data in measurements(file):
                for row in data["rows"]:
                    costs(row["run"], None, [data])
        except (OSError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UserError(f"--records {file}: {error.strerror if isinstance(error, OSError) else 'these are no records of stages'}; pass what --record or the ladder has written, such as out/ladder.jsonl") from None
        if not records:
            raise UserError(f"--records {file}: there are no records in it; pass what --record or the ladder has written, such as out/ladder.jsonl")
        if broken:
            print(f"- {broken} unreadable line{'s' * (broken > 1)} in {file} left out")
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=args.out).close()
    except OSError as error:
        raise UserError(f"--out {args.out}: {error.strerror}; choose another folder") from None
    return args


def main(argv=None):
    args = parse(sys.argv[1:] if argv is None else argv)
    html, chosen = page(args.records)
    for n, data in enumerate(chosen):
        bars.draw(data["records"], args.out / f"bars-{n + 1}.png")
    records = lessons.predictions()
    for moments in json.loads(TIMELINES.read_text()):
        timeline.slide(records[moments["run"]], moments, args.out / f"timeline-{moments['run'].replace('/', '-')}.png")
    (args.out / "index.html").write_text(html)
    print(f"{args.out / 'index.html'}: {len(html) / 1e6:.1f} MB, with {len(list(args.out.glob('*.png')))} pictures for slides beside it")


if __name__ == "__main__":
    cli.run(main)
