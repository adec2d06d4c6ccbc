"""Tables that hold emulated figures to those of real GPUs: traces, published figures, reports.

The records are those of evidence.traces and evidence.published. Times are bounded.
"""

import json
import statistics

from shared.evidence.published import command
from shared.evidence.published.command import REPORTS, SOURCES, error, reached
from shared.records import markdown, stored, views
from shared.records.scripts import ROOT

NEAR = 0.02  # relative error


def timed():
    """Return the records with published times, those nearest to the bound first."""
    records = [r for r in json.loads(stored.PUBLISHED.read_text()) if r["published_ms"]]
    return sorted(records, key=reached, reverse=True)


def speeds(folder):
    """Return the table of published times beside the bound, in Markdown."""
    records = timed()
    fractions = [reached(r) for r in records]
    urls = {source["title"]: source["url"] for source in SOURCES}
    lines = [("", "GPU", *command.TIMES, "source")]
    for r in records:
        gpus = f"{r['devices']} x {r['card']}" if r["devices"] > 1 else r["card"]
        lines.append((r["what"], gpus, *command.times(r), f"[{r['source']}]({urls[r['source']]})"))
    summary = (
        f"Of {len(records)} published runs, the median reaches "
        f"{statistics.median(fractions):.0%} of the speed that the bound allows, the best "
        f"{max(fractions):.0%}, the last {min(fractions):.0%}."
    )
    notes = ["- {title}: {times}".format(**s) for s in SOURCES if "times" in s]
    return markdown.text(summary, lines, markdown.folded("What the published times include", notes))


def part(folder):
    """Return the tables of sizes of all sources, in Markdown."""
    records = json.loads(stored.PUBLISHED.read_text())
    pieces = []
    for source in SOURCES[: SOURCES.index(REPORTS)]:
        if rows := command.table([r for r in records if r["source"] == source["title"]]):
            pieces += ["[{title}]({url}). {note}".format(**source), [command.HEADING, *rows]]
    return markdown.text(*pieces, _origin(records))


def unedited(folder):
    """Return the table of third-party scripts: results of unedited runs, or why there are none."""
    records = [r for r in json.loads(stored.PUBLISHED.read_text()) if r["script"]]
    ran = [r for r in records if "why" not in r]
    sources = {s["title"]: s for s in SOURCES}
    lines = [command.SCRIPTS]
    for r, (script, *cells) in zip(records, command.scripts(records), strict=True):
        source = sources[r["source"]]
        link = f"[{script.partition(' ')[0]}]({source['repository']}/tree/{source['commit']})"
        lines.append((link, *cells))
    repositories = {s["repository"] for s in SOURCES if "commit" in s}
    summary = f"{len(ran)} of {len(records)} scripts of {len(repositories)} repositories run."
    return markdown.text(summary, lines, _origin(records))


def _origin(records):
    commands = views.listed(f"`{r['command']}`" for r in records)
    torch = views.listed(r["torch"] for r in records)
    dates, commits = (views.listed(r[key] for r in records) for key in ("date", "git_commit"))
    file = stored.PUBLISHED.relative_to(ROOT)
    made = f"Made with {commands}; torch {torch}, {dates}, commit {commits}"
    return markdown.folded(markdown.ORIGIN, [f"{made}; records in `{file}`."])


def how_right(folder):
    """Return the table of all that emulated figures were held to, in Markdown."""
    traces = json.loads(stored.TRACES.read_text())
    events, equal = (sum(r[key] for r in traces) for key in ("events", "equal"))
    same = sum(r["reserved"] == r["emulated_reserved"] for r in traces)
    lines = [("held to", "", "equal or near", "median error", "worst", "command")]
    of = f"{len(traces)} snapshots of {len({r['repository'] for r in traces})} repositories"
    near = f"{equal:,} of {events:,} events; {same} reserve the same bytes"
    share = f"{max(1 - r['equal'] / r['events'] for r in traces):.1%} of the events"
    lines.append(("[traces of GPUs](#traces-of-real-gpus)", of, near, "–", share, _code("traces")))
    records = _sized()
    complete = {s["title"] for s in SOURCES if s.get("complete", True)} - {REPORTS["title"]}
    groups = [
        (
            "[published figures](#published-measurements), settings known",
            [r for r in records if r["source"] in complete],
        ),
        (
            "the same, something not known, or FSDP1",
            [r for r in records if r["source"] not in {*complete, REPORTS["title"]}],
        ),
        (
            "[public reports](#public-reports)",
            [r for r in records if r["source"] == REPORTS["title"]],
        ),
    ]
    for words, group in groups:
        errors = {r["what"]: error(r) for r in group}
        worst = max(group, key=lambda r: abs(error(r)))
        near = sum(abs(error(r)) <= NEAR for r in group)
        median = statistics.median(abs(error(r)) for r in group)
        lines.append(
            (
                words,
                f"{len(group)} figures of {_sources(group)}",
                f"{near} within {NEAR:.0%}",
                f"{median:.1%}",
                f"{errors[worst['what']]:+.0%}, {worst['what']}",
                _code("published"),
            )
        )
    return markdown.text(lines)


def _code(module):
    return f"`python -m shared.evidence.{module} --folder DIR`"


def _sources(records):
    count = len({r["source"] for r in records})
    if count > 1:
        return f"{count} sources"
    urls = {row["url"].partition("#")[0] for row in REPORTS["rows"]}
    return f"{len(urls)} reports"


def _sized():
    """Return the records with published sizes; a size that was published twice counts once."""
    records = [r for r in json.loads(stored.PUBLISHED.read_text()) if r["published_gb"]]
    return [*{(r["source"], r["published_gb"]): r for r in reversed(records)}.values()][::-1]


def traces(folder):
    """Return the table of the scripts whose allocator's events were compared, in Markdown."""
    records = json.loads(stored.TRACES.read_text())
    lines = [("script of", "runs", "PyTorch", "events", "equal", "order", "reserved, error")]
    for r in records:
        link = f"[{r['name']}]({r['repository']}/tree/{r['commit']})"
        reserved = r["emulated_reserved"] / r["reserved"] - 1
        cells = (f"{r['events']:,}", f"{r['equal']:,}", r["verdict"])
        lines.append((link, r["what"], r["torch"], *cells, f"{reserved:+.2%}" if reserved else "0"))
    seconds = sum(r["seconds"] for r in records)
    dates, commits = (views.listed(r[key] for r in records) for key in ("date", "git_commit"))
    made = f"Made with {_code('traces')}, {seconds / 60:.0f} minutes, {dates}, commit {commits}"
    file = stored.TRACES.relative_to(ROOT)
    return markdown.text(lines, markdown.folded(markdown.ORIGIN, [f"{made}; records in `{file}`."]))


def reports(folder):
    """Return the table of public reports, in Markdown."""
    records = {r["what"]: r for r in json.loads(stored.PUBLISHED.read_text())}
    lines = [("report", "GPU, PyTorch there", "counter", "reported", "here", "error", "why")]
    for row in command.rows(REPORTS):
        r = records[row["words"]]
        sizes = [views.size(r[key]) for key in ("published_gb", "emulated_gb")]
        link = f"[{row['words']}]({row['url']})"
        why = row.get("why", "")
        lines.append((link, row["there"], row["counter"], *sizes, f"{error(r):+.1%}", why))
    mine = [r for r in records.values() if r["source"] == REPORTS["title"]]
    return markdown.text(lines, _origin(mine))
