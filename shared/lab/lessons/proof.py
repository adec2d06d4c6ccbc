"""Tables that compare emulated figures with those of real GPUs: traces, published figures, reports.

The records are those of shared/emulator/proof, whose option --stored prints all of them.
"""

import statistics
from urllib.parse import urlsplit

from proof.rows import REPORTS, SOURCES, key, rows
from proof.show import error
from shared.lab.records import formats, markdown, stored, time_errors
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
    groups = {}
    for r in _sized():
        known = "settings known" if r["source"] in complete else "something not known, or FSDP1"
        # Reports are of cases that surprised somebody, so they are counted apart.
        is_report = r["source"] == REPORTS["title"]
        groups.setdefault("public reports" if is_report else f"published, {known}", []).append(r)
    # Several figures may come from one report, and link to different comments of it.
    urls = {name: row["url"].partition("#")[0] for name, row in ROWS.items()}
    for name, group in groups.items():
        errors = [abs(error(r)) for r in group]
        near, fair = (sum(e <= limit for e in errors) for limit in (NEAR, FAIR))
        worst = max(group, key=lambda r: abs(error(r)))
        lines.append(
            (
                name,
                f"{len(group)} figures of {len({urls[key(r)] for r in group})} sources",
                f"{near} within {NEAR:.0%} and {fair} within {FAIR:.0%}",
                f"{statistics.median(errors):.1%}",
                f"{error(worst):+.0%}",
            )
        )
    return markdown.text(lines)


def misses(folder):
    """Return the table of the sizes that are not near, by cause, in Markdown."""
    causes = {}
    for r in _sized():
        if abs(error(r)) > NEAR:
            # A KeyError here asks for the cause of a new miss.
            causes.setdefault(ROWS[key(r)]["cause"], []).append(error(r))
    lines = [("cause", "figures", "errors")]
    for cause, errors in sorted(causes.items(), key=lambda item: -len(item[1])):
        lines.append((cause, str(len(errors)), _span(errors, 0)))
    return markdown.text(lines)


def part(folder):
    """Return the table of the sources of published sizes and of the reports, in Markdown."""
    records = _sized()
    lines = [("source", "figures", "errors")]
    for source in SOURCES:
        errors = [error(r) for r in records if r["source"] == source["title"]]
        if not errors:
            continue  # it has published times alone
        link = "[{title}]({url})".format(**source)
        lines.append((link, str(len(errors)), _span(errors, 1)))
    return markdown.text(lines, _origin("published", _published(), stored.PUBLISHED))


def compared(folder, source, heading="published"):
    """Return the table of the figures of one source, in Markdown."""
    records = [r for r in stored.read(stored.PUBLISHED) if r["source"].startswith(source)]
    lines = [("GB", heading, "emulated")]
    for r in records:
        published = formats.number(r["published_gb"]) if r["published_gb"] else ""
        lines.append((r["what"], published, formats.number(r["emulated_gb"])))
    return markdown.text(lines, _origin(f"published {source}", records, stored.PUBLISHED))


def traces(folder):
    """Return the table of the repositories whose allocators' events were compared, in Markdown."""
    records = stored.read(stored.TRACES)
    lines = [("repository", "runs", "events", "not equal")]
    for repository in dict.fromkeys(r["repository"] for r in records):
        runs = [r for r in records if r["repository"] == repository]
        # To the commit that was run: the repository goes on.
        link = f"[{urlsplit(repository).path[1:]}]({repository}/tree/{runs[0]['commit']})"
        what = formats.listed(r["what"] for r in runs)
        events, equal = (sum(r[key] for r in runs) for key in ("events", "equal"))
        # An empty cell in place of 0, so that the few numbers catch the eye.
        lines.append((link, what, f"{events:,}", str(events - equal or "")))
    seconds = sum(r["seconds"] for r in records)
    duration = f", {seconds / 60:.0f} minutes"
    return markdown.text(lines, _origin("traces", records, stored.TRACES, duration))


def unedited(folder):
    """Return how many scripts of others ran, in a sentence."""
    records = [r for r in stored.read(stored.PUBLISHED) if r["script"]]
    ran = [r for r in records if "why" not in r]
    repositories = {source["repository"] for source in SOURCES if "commit" in source}
    return f"{len(ran)} of {len(records)} scripts of {len(repositories)} repositories run."


def speeds(folder):
    """Return the errors of emulated times of published runs, in Markdown."""
    sources = [("published, none of them fitted", "runs", "median error", "nine of ten within")]
    by_source = {}
    for r in _published():
        if r["published_ms"] and r.get("time"):  # a run that found no room here has none
            by_source.setdefault((r["source"], r["card"]), []).append(time_errors.error(r))
    for (source, card), errors in by_source.items():
        row = (f"{statistics.median(errors):+.0%}", f"{time_errors.nine_of_ten(errors):.0%}")
        sources.append((f"{source}, {card}", str(len(errors)), *row))
    return markdown.text(sources)


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


def _span(errors, digits):
    """Return the lowest and the highest of relative errors, as text."""
    lowest, highest = (f"{error:+.{digits}%}" for error in (min(errors), max(errors)))
    return f"{lowest} to {highest}" if len(errors) > 1 else lowest


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
