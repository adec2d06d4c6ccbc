"""The tables of measurements on a real GPU, beside emulated ones; pages.py passes the folder."""

import itertools
import math
import statistics

from emulated_gpu.why.times import OFF
from proof.rows import SOURCES
from shared.lab.evidence.calibrate import compare
from shared.lab.lessons.times import emulated_errors
from shared.lab.records import markdown, measured, reading, scripts, stored, time_errors
from shared.lab.records.columns import Column, in_markdown
from shared.lab.records.formats import LEAST, amount

NEAR = 0.02  # a relative error
# Of runs outside of this repository, which gave their emulated figures as GB with three decimals.
OTHERS = {
    "program": "programs of published figures and reports",
    "work": "programs of other kinds, before what they showed was mended",
}
PEAKS = [
    Column("allocated GB", "measured_gb.allocated", ".3f"),
    Column("emulated", "emulated_gb.allocated", ".3f"),
    Column("reserved GB", "measured_gb.reserved", ".3f"),
    Column("emulated", "emulated_gb.reserved", ".3f"),
]


def errors(runs, key):
    """Return the relative errors of emulated peaks."""
    return [run["emulated_gb"][key] / run["measured_gb"][key] - 1 for run in runs]


def groups():
    """Return what was run: whether rules came of it, its name, runs, and errors of their times."""
    used = [("used", title, others(kind), []) for kind, title in OTHERS.items()]
    ours = "used", "scripts of this repository", measured.compared(), emulated_errors("ms")
    sources = [
        (source["rules"], source["title"], *of_source(source["title"]))
        for source in SOURCES
        if "rules" in source
    ]
    return sorted([ours, *used, *sources], key=lambda group: group[0], reverse=True)


def summary(folder):
    """Return a table of the errors of emulated figures: of what rules were made from, and not."""

    def off(key):
        return lambda group: errors(group[2], key)

    def times(group):
        return [*map(abs, group[3])] or None

    columns = [
        Column("rules", lambda group: group[0]),
        Column("what was run", lambda group: group[1]),
        Column("runs", lambda group: len(group[2])),
    ]
    for key in compare.COUNTED:
        columns += [
            Column(f"{key}: within {NEAR:.0%}", off(key), num_near),
            Column("worst", off(key), lambda errors: f"{max(errors, key=abs):+.1%}"),
        ]
    columns += [
        Column(
            "time of an update: median", times, lambda errors: f"{statistics.median(errors):.0%}"
        ),
        Column("worst", times, lambda errors: f"{max(errors):.0%}"),
    ]
    return markdown.text(in_markdown(columns, groups()))


def num_near(errors):
    """Return how many relative errors are of at most NEAR, as text."""
    return str(sum(abs(error) <= NEAR for error in errors))


def of_source(title):
    """Return the runs of a source of the proof, like those of compared(), and errors of times."""
    records = [r for r in stored.read(stored.PUBLISHED) if r["source"] == title]
    runs = []
    for name, both in reading.grouped(records, lambda r: r["what"].rpartition(", ")[0]).items():
        measured_gb = {r["counter"]: r["published_gb"] for r in both}
        emulated_gb = {r["counter"]: r["emulated_gb"] for r in both}
        runs.append({"name": name, "measured_gb": measured_gb, "emulated_gb": emulated_gb})
    return runs, [time_errors.error(r) for r in records if r["published_ms"]]


def others(kind):
    """Return the runs of a kind in OTHERS, like those of compared()."""
    runs = []
    for r in measured.lines():
        if r["kind"] == kind and "emulated_gb" in r:
            # As many digits as the emulated figures have: more would count as a difference.
            gb = {key: round(r["counters"][key] / 1e9, 3) for key in compare.COUNTED}
            runs.append({**r, "measured_gb": gb})
    return runs


def part(folder):
    """Return the table of the scripts, measured beside emulated, with how it was made."""
    runs = sorted(
        measured.compared(), key=lambda run: (scripts.get(run["name"]).side_road, run["name"])
    )
    columns = [
        Column("script", compare.title),
        *PEAKS,
        Column("events equal", compare.events),
        Column("more at the peak", at_the_peak),
    ]
    origins = markdown.folded(markdown.ORIGIN, [*map(_origin, measured.FILES)])
    return markdown.text(in_markdown(columns, runs), origins)


def _origin(file):
    """Return how the figures of a file of measurements were made, and those beside them."""
    machine, runs = measured.read(file)
    header, _ = measured.comparison(file)
    count = sum(r["kind"] == "memory" for r in runs)
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"- {count} runs, measured "
        f"{machine.get('measured', 'by [the command](calibrate/README.md), alone')}: "
        f"{machine['gpu']}, {machine['host']}, {machine['date']}, commit {machine['git_commit']}; "
        f"{versions}. Emulated with `{header['command']}`, torch {header['versions']['torch']}, "
        f"{header['date']}, commit {header['git_commit']}."
    )


def at_the_peak(run):
    """Return what a run had more or less at its peak than the emulated one, as text."""
    amounts = sorted(run["more_gb"].items(), key=lambda item: -abs(item[1]))
    return ", ".join(f"{label} {gb * 1e3:+,.1f} MB" for label, gb in amounts if abs(gb) >= LEAST)


def elsewhere(folder):
    """Return the table of programs whose emulated peak is not near, with both."""
    runs = [run for _, _, runs, _ in groups() for run in runs]
    far = [r for r in runs if any(abs(errors([r], key)[0]) > NEAR for key in compare.COUNTED)]
    return markdown.text(in_markdown([Column("program", "name"), *PEAKS], far))


def outside(folder):
    """Return the table of memory outside of PyTorch's allocator, after each first use."""
    rows = []
    for r in measured.lines():
        if r["kind"] == "outside":
            # Of uses that end with the same bytes, the first took them.
            alike = itertools.groupby(r["steps"].items(), lambda step: step[1])
            rows += [next(steps) for _, steps in alike]
    columns = [
        Column(f"after, on {measured.gpu()}", lambda step: step[0]),
        Column("outside of the allocator", lambda step: amount(step[1] / 1e9)),
    ]
    return markdown.text(in_markdown(columns, rows))


def learning(folder):
    """Return the tiny scripts that were trained on the GPU with real data."""
    columns = [Column("script", "name"), Column("updates", "record.steps")]
    for time in ("first", "last"):
        columns.append(Column(f"{time} loss", f"record.{time}_loss", ".4f"))
    for part in ("train", "val", "test"):
        columns.append(Column(f"{part} accuracy", f"record.{part}_accuracy", ".1%"))
    runs = [r for r in measured.lines() if r["kind"] == "tiny"]
    return markdown.text(in_markdown(columns, runs))


def gist(folder):
    """Return sentences on the proof, for the first page: on what no rule was made from."""
    kept = [group for group in groups() if group[0] == "not used"]
    runs = [run for _, _, runs, _ in kept for run in runs]
    off = {key: [abs(x) for x in errors(runs, key)] for key in compare.COUNTED}
    allocated, reserved = (sum(x <= NEAR for x in off[key]) for key in compare.COUNTED)
    # Rounded up, since the text says "within".
    worst = math.ceil(max(off["reserved"]) * 100) / 100
    where = "shared/lab/evidence/measured.md#how-right-on-what-was-not-used"
    return (
        f"**Of {len(runs)} runs [kept apart from our rules]({where}), {allocated} allocated what "
        f"we say, within {NEAR:.0%}, and {reserved} reserved it,** the others within {worst:.0%}. "
        f"Half of their times are within {OFF[0]:.0%}, nine of ten within {OFF[1]:.0%}."
    )
