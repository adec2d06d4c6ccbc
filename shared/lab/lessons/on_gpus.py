"""The tables of measurements on a real GPU, beside the same on an emulated GPU."""

import math

from shared.lab.evidence.calibrate import compare
from shared.lab.records import markdown, measured, scripts
from shared.lab.records.formats import LEAST, amount

NEAR = 0.01  # a relative error
# Of runs outside of this repository, which gave their emulated figures as GB with three decimals.
OTHERS = {
    "program": "programs of published figures and reports",
    "network": "networks of torchvision, fp16 mixed",
    "work": "programs of other kinds",
}


def errors(runs, key):
    """Return the relative errors of emulated peaks."""
    return [run["emulated_gb"][key] / run["measured_gb"][key] - 1 for run in runs]


def summary(folder):
    """Return a table of the errors of emulated peaks: of scripts of this repository, of OTHERS."""
    runs = measured.compared()
    table = [("", "runs", "allocated: equal", "within 1%", "worst", "reserved: equal")]
    table[0] += ("within 1%", "worst")
    groups = {"scripts of this repository": runs}
    for kind, title in OTHERS.items():
        groups[title] = others(kind)
    for title, group in groups.items():
        cells = []
        for key in compare.COUNTED:
            e = errors(group, key)
            equal, near = (sum(abs(x) <= limit for x in e) for limit in (0, NEAR))
            cells += [str(equal), str(near), f"{max(e, key=abs):+.1%}"]
        table.append((title, str(len(group)), *cells))
    off = [abs(x) for x in errors(runs, "allocated") if x]
    # Rounded up, since the text says "up to".
    most = math.ceil(max(off) * 1e4) / 1e4
    differ = f"{len(off)} of {len(runs)} peaks of our scripts differ, by up to {most:.2%}."
    return markdown.text(table, f"Because of *rounding*, {differ}")


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
    """Return the table of other programs whose emulated peak is not near, with both."""
    table = [("program", "allocated GB", "emulated", "reserved GB", "emulated")]
    for kind in OTHERS:
        for run in others(kind):
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
    """Return a sentence on the proof, for the first page."""
    gpu = measured.machines()[0]["gpu"].removeprefix("NVIDIA ")
    runs = measured.compared()
    # With expandable segments, some run a second time.
    stages = [run for run in runs if run["name"].endswith("/train") and not run["expandable"]]
    numbers = sorted({run["name"][:2] for run in stages})
    roads = {run["name"] for run in runs if scripts.get(run["name"]).side_road}
    worst, of_all = (max(map(abs, errors(group, "allocated"))) for group in (stages, runs))
    # Rounded up, since the text says "within".
    worst, of_all = math.ceil(worst * 1e4) / 1e4, math.ceil(of_all * 1e3) / 1e3
    most = max(run["devices"] for run in runs)
    return (
        f"**On a real {gpu}, [stages {numbers[0]} to {numbers[-1]}]"
        f"(shared/lab/evidence/measured.md) allocated what an emulated one says, within "
        f"{worst:.2%}**, and {len(roads)} side roads within {of_all:.1%}. Those for {most} GPUs "
        f"ran alone, as the first of {most}."
    )
