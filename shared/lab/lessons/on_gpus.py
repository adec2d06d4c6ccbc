"""The tables of measurements on a real GPU, beside the same on an emulated GPU."""

import math
import statistics

from proof.rows import SOURCES
from shared.lab.evidence.calibrate import compare
from shared.lab.lessons.times import emulated_errors
from shared.lab.records import markdown, measured, scripts, stored, time_errors
from shared.lab.records.formats import LEAST, amount

NEAR = 0.02  # a relative error
# Of runs outside of this repository, which gave their emulated figures as GB with three decimals.
OTHERS = {
    "program": "programs of published figures and reports",
    "work": "programs of other kinds, before what they showed was mended",
}


def errors(runs, key):
    """Return the relative errors of emulated peaks."""
    return [run["emulated_gb"][key] / run["measured_gb"][key] - 1 for run in runs]


def groups():
    """Yield what was run: if rules were made from it, its name, runs, and errors of their times."""
    yield "used", "scripts of this repository", measured.compared(), emulated_errors("usual_ms")
    for kind, title in OTHERS.items():
        yield "used", title, others(kind), []
    for source in SOURCES:
        if "rules" in source:
            yield source["rules"], source["title"], *of_source(source["title"])


def summary(folder):
    """Return a table of the errors of emulated figures: of what rules were made from, and not."""
    near = f"within {NEAR:.0%}"
    table = [("rules", "what was run", "runs", f"allocated: {near}", "worst", f"reserved: {near}")]
    table[0] += ("worst", "time of an update: median", "worst")
    for rules, title, runs, off in sorted(groups(), key=lambda group: group[0], reverse=True):
        cells = []
        for key in compare.COUNTED:
            e = errors(runs, key)
            cells += [str(sum(abs(x) <= NEAR for x in e)), f"{max(e, key=abs):+.1%}"]
        off = [*map(abs, off)]
        cells += [f"{statistics.median(off):.0%}", f"{max(off):.0%}"] if off else ["", ""]
        table.append((rules, title, str(len(runs)), *cells))
    return markdown.text(table)


def of_source(title):
    """Return the runs of a source of the proof, like those of compared(), and errors of times."""
    runs = {}
    off = []
    for r in stored.read(stored.PUBLISHED):
        if r["source"] == title:
            name = r["what"].rpartition(", ")[0]
            run = runs.setdefault(name, {"name": name, "measured_gb": {}, "emulated_gb": {}})
            run["measured_gb"][r["counter"]] = r["published_gb"]
            run["emulated_gb"][r["counter"]] = r["emulated_gb"]
            off += [time_errors.error(r)] if r["published_ms"] else []
    return [*runs.values()], off


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
    rows = [(*row, at_the_peak(run)) for run, row in zip(runs, compare.rows(runs))]
    table = [(*compare.HEADING, "more at the peak"), *rows]
    return markdown.text(table, markdown.folded(markdown.ORIGIN, [*map(_origin, measured.FILES)]))


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
    table = [("program", "allocated GB", "emulated", "reserved GB", "emulated")]
    for run in (run for _, _, runs, _ in groups() for run in runs):
        if any(abs(errors([run], key)[0]) > NEAR for key in compare.COUNTED):
            table.append((run["name"], *compare.cells(run)))
    return markdown.text(table)


def outside(folder):
    """Return the table of memory outside of PyTorch's allocator, after each first use."""
    table = [(f"after, on {measured.gpu()}", "outside of the allocator")]
    for r in measured.lines():
        if r["kind"] == "outside":
            before = None
            for step, nbytes in r["steps"].items():
                if nbytes != before:  # this use took more
                    table.append((step, amount(nbytes / 1e9)))
                before = nbytes
    return markdown.text(table)


def learning(folder):
    """Return the tiny scripts that were trained on the GPU with real data."""
    losses = "first_loss", "last_loss"
    accuracies = "train_accuracy", "val_accuracy", "test_accuracy"
    table = [("script", "updates", *(key.replace("_", " ") for key in (*losses, *accuracies)))]
    for r in measured.lines():
        if r["kind"] == "tiny":
            record = r["record"]
            cells = [f"{record[key]:.4f}" for key in losses]
            cells += [f"{record[key]:.1%}" for key in accuracies]
            table.append((r["name"], str(record["steps"]), *cells))
    return markdown.text(table)


def gist(folder):
    """Return sentences on the proof, for the first page: on what no rule was made from."""
    kept = [group for group in groups() if group[0] == "not used"]
    runs = [run for _, _, runs, _ in kept for run in runs]
    off = {key: [abs(x) for x in errors(runs, key)] for key in compare.COUNTED}
    allocated, reserved = (sum(x <= NEAR for x in off[key]) for key in compare.COUNTED)
    # Rounded up, since the text says "within".
    worst = math.ceil(max(off["reserved"]) * 100) / 100
    times = [abs(x) for _, _, _, errors_of_times in kept for x in errors_of_times]
    where = "shared/lab/evidence/measured.md#how-right-on-what-was-not-used"
    return (
        f"**Of {len(runs)} runs on real GPUs [from which no rule was made]({where}), {allocated} "
        f"allocated what an emulated one says, within {NEAR:.0%}, and {reserved} reserved it,** "
        f"the others within {worst:.0%}. Times are rougher, because your host is not known: half "
        f"are within {statistics.median(times):.0%}, nine of ten within "
        f"{time_errors.nine_of_ten(times):.0%}."
    )
