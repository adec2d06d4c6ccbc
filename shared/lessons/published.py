"""Tables of predictions beside published measurements, as stored by evidence.published.

Sizes are predicted, and times are bounded.
"""

import json
import statistics

from shared.evidence.published import command
from shared.evidence.published.command import SOURCES, error, reached
from shared.records import markdown, stored, views
from shared.records.scripts import ROOT


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
    for source in SOURCES:
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
    torch = views.listed(r["versions"]["torch"] for r in records)
    dates, commits = (views.listed(r[key] for r in records) for key in ("date", "git_commit"))
    file = stored.PUBLISHED.relative_to(ROOT)
    made = f"Predicted with {commands}; torch {torch}, {dates}, commit {commits}"
    return markdown.folded(markdown.ORIGIN, [f"{made}; records in `{file}`."])


def summary(folder):
    """Return a sentence on the errors for the sources whose settings are known."""
    records = [r for r in json.loads(stored.PUBLISHED.read_text()) if r["published_gb"]]
    complete = {s["title"] for s in SOURCES if s.get("complete", True)}
    # A figure that was published for two runs counts once.
    once = {(r["source"], r["published_gb"]): r for r in records if r["source"] in complete}
    errors = [abs(error(r)) for r in once.values()]
    near = sum(e <= 0.05 for e in errors)
    sources = len({r["source"] for r in records})
    return (
        f"{len(records)} figures of {sources} sources. Of the {len(errors)} whose "
        f"settings are known or nearly so, {near} are predicted within 5 %; the median error is "
        f"{statistics.median(errors):.1%}."
    )
