"""Tables that compare emulated figures with those of real GPUs: traces, published figures, reports.

The records are those of shared/emulator/proof, whose option --stored prints all of them.
"""

import statistics
from urllib.parse import urlsplit

from proof.rows import REPORTS, SOURCES, key, rows
from proof.show import error
from shared.lab.records import formats, markdown, reading, stored, time_errors
from shared.lab.records.columns import Column, in_markdown
from shared.run.record import ROOT

NEAR = 0.02  # relative errors
FAIR = 0.05
ROWS = {key(row): row for source in SOURCES for row in rows(source)}
HERE = {s["title"] for s in SOURCES if s.get("here")}  # measured by us, so not published


def how_right(folder):
    """Return the table of all that emulated figures were compared with, in Markdown."""
    traces = stored.read(stored.TRACES)
    events, equal = (sum(r[key] for r in traces) for key in ("events", "equal"))
    same = sum(r["reserved"] == r["emulated_reserved"] for r in traces)
    lines = [("compared with", "", "equal or near", "median error", "worst")]
    of = f"{len(traces)} snapshots of {len({r['repository'] for r in traces})} repositories"
    # Events may come in another order; the bytes reserved are what a card has to have.
    near = f"{equal:,} of {events:,} events; {same} reserve the same bytes"
    share = f"{max(1 - r['equal'] / r['events'] for r in traces):.1%} of the events"
    lines.append(("[traces of GPUs](#traces-of-real-gpus)", of, near, "–", share))
    # Where a source leaves a setting open, an error may be that of an assumption.
    complete = {s["title"] for s in SOURCES if s.get("complete", True)}

    def kind(record):
        # Of cases that surprised somebody, so they are counted apart.
        if record["source"] == REPORTS["title"]:
            return "public reports"
        known = record["source"] in complete
        return f"published, {'settings known' if known else 'something not known, or FSDP1'}"

    # Several figures may come from one report, and link to different comments of it.
    urls = {name: row["url"].partition("#")[0] for name, row in ROWS.items()}
    for name, group in reading.grouped(_sized(), kind).items():
        errors = [abs(error(r)) for r in group]
        near, fair = (sum(e <= limit for e in errors) for limit in (NEAR, FAIR))
        of = f"{len(group)} figures of {len({urls[key(r)] for r in group})} sources"
        within = f"{near} within {NEAR:.0%} and {fair} within {FAIR:.0%}"
        worst = max(map(error, group), key=abs)
        lines.append((name, of, within, f"{statistics.median(errors):.1%}", f"{worst:+.0%}"))
    return markdown.text(lines)


def misses(folder):
    """Return the table of the sizes that are not near, by cause, in Markdown."""
    far = [r for r in _sized() if abs(error(r)) > NEAR]
    # A KeyError here asks for the cause of a new miss.
    causes = reading.grouped(far, lambda r: ROWS[key(r)]["cause"])
    most_first = dict(sorted(causes.items(), key=lambda item: -len(item[1])))
    return markdown.text(_errors("cause", most_first, 0))


def part(folder):
    """Return the table of the sources of published sizes and of the reports, in Markdown."""
    links = {s["title"]: "[{title}]({url})".format(**s) for s in SOURCES}
    by_source = reading.grouped(_sized(), lambda r: links[r["source"]])
    origin = _origin("published", _published(), stored.PUBLISHED)
    return markdown.text(_errors("source", by_source, 1), origin)


def _errors(heading, groups, digits):
    """Return a table of {title: records}, with the lowest and highest error of each, as lines."""

    def span(title):
        errors = [*map(error, groups[title])]
        lowest, highest = (f"{limit:+.{digits}%}" for limit in (min(errors), max(errors)))
        return f"{lowest} to {highest}" if len(errors) > 1 else lowest

    columns = [
        Column(heading, str),
        Column("figures", lambda title: len(groups[title])),
        Column("errors", span),
    ]
    return in_markdown(columns, groups)


def compared(folder, source, heading="published"):
    """Return the table of the figures of one source, in Markdown."""
    records = [r for r in stored.read(stored.PUBLISHED) if r["source"].startswith(source)]
    origin = _origin(f"published {source}", records, stored.PUBLISHED)
    return markdown.text(sizes("GB", heading, records), origin)


def sizes(what, heading, records):
    """Return a table of published sizes beside emulated ones, as lines of Markdown."""
    columns = [
        Column(what, "what"),
        Column(heading, "published_gb", formats.number),
        Column("emulated", "emulated_gb", formats.number),
    ]
    return in_markdown(columns, records)


def traces(folder):
    """Return the table of the repositories whose allocators' events were compared, in Markdown."""
    records = stored.read(stored.TRACES)

    def link(runs):
        # To the commit that was run: the repository goes on.
        url = runs[0]["repository"]
        return f"[{urlsplit(url).path[1:]}]({url}/tree/{runs[0]['commit']})"

    columns = [
        Column("repository", link),
        Column("runs", lambda runs: formats.listed(r["what"] for r in runs)),
        Column("events", lambda runs: sum(r["events"] for r in runs), ","),
        # An empty cell in place of 0, so that the few numbers catch the eye.
        Column("not equal", lambda runs: sum(r["events"] - r["equal"] for r in runs) or None),
    ]
    rows = reading.grouped(records, lambda r: r["repository"]).values()
    duration = f", {sum(r['seconds'] for r in records) / 60:.0f} minutes"
    origin = _origin("traces", records, stored.TRACES, duration)
    return markdown.text(in_markdown(columns, rows), origin)


def unedited(folder):
    """Return how many scripts of others ran, in a sentence."""
    records = [r for r in stored.read(stored.PUBLISHED) if r["script"]]
    ran = [r for r in records if "why" not in r]
    repositories = {source["repository"] for source in SOURCES if "commit" in source}
    return f"{len(ran)} of {len(records)} scripts of {len(repositories)} repositories run."


def speeds(folder):
    """Return the errors of emulated times of published runs, in Markdown."""
    # A run that found no room here has no time.
    records = [r for r in _published() if r["published_ms"] and r.get("time")]
    groups = reading.grouped(records, lambda r: "{source}, {card}".format(**r))
    errors = {name: [*map(time_errors.error, group)] for name, group in groups.items()}
    sources = [
        Column("published, none of them fitted", str),
        Column("runs", lambda source: len(errors[source])),
        Column("median error", lambda source: statistics.median(errors[source]), "+.0%"),
        Column("nine of ten within", lambda s: time_errors.nine_of_ten(errors[s]), ".0%"),
    ]
    return markdown.text(in_markdown(sources, errors))


def _published():
    """Return the records of what others have published."""
    return [r for r in stored.read(stored.PUBLISHED) if r["source"] not in HERE]


def _sized():
    """Return the records with published sizes; a size that was published twice counts once."""
    by_size = {}
    for r in _published():
        if r["published_gb"]:
            by_size.setdefault((r["source"], r["published_gb"]), r)  # the first row stays
    return [*by_size.values()]


def _origin(words, records, file, duration=""):
    """Return how the records in a file were made, as a collapsible section.

    `words` are those of the command, which needs a folder besides.
    These records have one version, PyTorch's, where origin() expects several.
    """
    torch, dates, commits = (
        formats.listed(r[key] for r in records) for key in ("torch", "date", "git_commit")
    )
    command = f"python shared/emulator/proof {words} --folder DIR"
    made = f"Made with `{command}`, torch {torch}{duration}, {dates}, commit {commits}"
    return markdown.folded(markdown.ORIGIN, [f"{made}; records in `{file.relative_to(ROOT)}`."])
