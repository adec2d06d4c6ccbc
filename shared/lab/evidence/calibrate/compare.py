"""Runs on a real GPU beside the same runs on an emulated one of its kind: bytes, events, times."""

import statistics
import tempfile
from pathlib import Path

from emulated_gpu import cards
from proof.traces import in_order
from shared.lab.evidence.calibrate import files, measure
from shared.lab.evidence.calibrate.runs import of_record
from shared.lab.predict import stage
from shared.lab.predict.jobs import Failed, Wanted, run_jobs
from shared.lab.records import scripts
from shared.lab.records.running import git
from shared.run.errors import UserError

HEADING = ("script", "allocated GB", "emulated", "reserved GB", "emulated", "events equal")
TIMES = ("script", "images", "at a time", "ms", "emulated", "GPU busy, ms", "emulated")
COUNTED = {"allocated": "peak", "reserved": "reserved"}  # {counter: its name in a record}
# The packages whose versions decide how many bytes a script takes.
DECISIVE = ("torch", "torchvision", "transformers", "torchao", "bitsandbytes")


def card_of(machine):
    """Return the name in cards.csv of the GPU that a file was measured on.

    Of cards that differ in memory alone, the one with the nearest size is taken.

    Raises:
        UserError: the GPU is not known.
    """
    shape = tuple(machine["capability"]), machine["multiprocessors"]
    alike = {k: c for k, c in cards.CARDS.items() if (c.capability, c.multiprocessors) == shape}
    key = min(alike, key=lambda key: abs(alike[key].gib * 2**30 - machine["bytes"]), default=None)
    if not key:
        raise UserError(
            f"{machine['gpu']} is not in shared/emulator/emulated_gpu/cards.csv; add a line for it"
        )
    return key


def check_versions(machine):
    """Raise a UserError if packages that decide about bytes have other versions here."""
    # What follows the plus, such as cu128, names the build; the code is the same.
    installed, wanted = (
        {name: versions[name].partition("+")[0] for name in DECISIVE if name in versions}
        for versions in (files.versions(), machine["versions"])
    )
    if different := [name for name in wanted if wanted[name] != installed[name]]:
        install = " ".join(f"{name}=={wanted[name]}" for name in wanted)
        differ = ", ".join(f"{name} is {installed[name]}" for name in different)
        raise UserError(
            f"the file was measured with other versions ({differ} here); in an environment of its "
            f"own, install them: pip install {install} -r requirements.txt"
        )


def emulate(machine, runs, folder):
    """Return the lines of runs on an emulated GPU of the machine's kind; failures are printed."""
    card = cards.CARDS[card_of(machine)]
    file = folder / "emulated.jsonl"
    # Runs of another version of the emulator may be in it.
    file.unlink(missing_ok=True)
    wanted = [of_record(r) for r in runs if r["kind"] in ("memory", "out of memory")]
    measure.append(file, machine)
    try:
        run_jobs([(measure.emulated, run, card, file) for run in wanted])
    except Failed as error:
        print(f"- {error}", flush=True)
    return files.read(file)[1]


def times(machine, runs):
    """Return, for each timed run on one GPU, its ms and busy_ms, measured and emulated.

    The emulated host has the pace that is assumed for any: readers do not know theirs either.
    """
    card = cards.CARDS[card_of(machine)]
    # With faked ranks communication takes no time; a file of an emulated GPU has no profiles.
    timed = [r for r in runs if r["kind"] == "time" and r["devices"] == 1 and "profile" in r]
    jobs = []
    for r in timed:
        # Scripts from 08 on have several GPUs of their own.
        wanted = Wanted(
            "full",
            card=card,
            devices=1,
            batch_size=r["batch_size"],
            micro_batch_size=r["micro_batch_size"],
        )
        jobs.append((stage.predict, scripts.get(r["name"]), wanted))
    compared = []
    for r, record in zip(timed, run_jobs(jobs)):
        measured = {"ms": statistics.median(r["update_ms"]), "busy_ms": r["profile"]["busy_ms"]}
        measured["pieces"] = r["profile"]["kernels"]
        both = {"measured": measured, "emulated": record["time"]}
        compared.append({**of_record(r).settings, **both})
    return compared


def equal_events(measured, emulated):
    """Return the number of equal events of two runs, in order, and the number of events of each.

    The order of consecutive frees does not count. Lines are compared by git: Python's difflib takes
    minutes for 18,000 of so few kinds.
    """
    measured, emulated = ("\n".join(in_order(text.split("\n"))) for text in (measured, emulated))
    num_measured, num_emulated = (text.count("\n") + 1 for text in (measured, emulated))
    if measured == emulated:
        return num_measured, num_measured, num_emulated
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("measured", "emulated")]
        for file, text in zip(files, (measured, emulated)):
            file.write_text(text + "\n")
        counted = git("diff", "--no-index", "--minimal", "--numstat", *files)
    _, removed, *_ = counted.stdout.split()
    return num_measured - int(removed), num_measured, num_emulated


def summary(measured, emulated):
    """Return the comparison to store: for each run of memory, bytes on both, and equal events."""
    by_run = {of_record(r): r for r in emulated}
    compared = []
    for r in measured:
        run = of_record(r)
        # A run that failed on the emulated GPU has been printed, and is left out here.
        if r["kind"] == "memory" and run in by_run:
            counterpart = by_run[run]
            both = {"measured_gb": peaks(r), "emulated_gb": peaks(counterpart)}
            both["more_gb"] = more(r, counterpart)
            if r.get("events"):
                both["events"] = equal_events(r["events"], counterpart["events"])
            compared.append({**run.settings, **both})
    return compared


def peaks(r):
    """Return the peaks of a run's training in GB, by the names in COUNTED."""
    train = r["record"]["train"]
    return {key: train[f"device_{name}_gb"] for key, name in COUNTED.items()}


def more(measured, emulated):
    """Return {category: GB by which a measured peak exceeds the emulated peak}."""
    breakdown, expected = (r["record"]["train"]["breakdown_gb"] for r in (measured, emulated))
    labels = dict.fromkeys([*breakdown, *expected])
    gb = {label: round(breakdown.get(label, 0) - expected.get(label, 0), 9) for label in labels}
    return {label: amount for label, amount in gb.items() if amount}


def rows(compared):
    """Return the rows of a table of peaks while training, in GB: measured beside emulated."""
    return [(title(r), *cells(r), events(r)) for r in compared]


def time_rows(timed):
    """Return the rows of a table of updates: ms, and ms in which the GPU is busy."""
    table = []
    for r in timed:
        sizes = [str(r[key] or "") for key in ("batch_size", "micro_batch_size")]
        both = [f"{r[of][key]:.1f}" for key in ("ms", "busy_ms") for of in ("measured", "emulated")]
        table.append((title(r), *sizes, *both))
    return table


def cells(r):
    """Return the peaks of a run, each measured and emulated, as texts."""
    return [f"{r[where][key]:.3f}" for key in COUNTED for where in ("measured_gb", "emulated_gb")]


def title(r):
    """Return the name of a run in a table."""
    ranks = f", rank 0 of {r['devices']}" if r["devices"] > 1 else ""
    return f"{r['name']}{ranks}{', expandable segments' * r['expandable']}"


def events(r):
    """Return the number of a run's equal events, as text."""
    if "events" not in r:
        return ""
    equal, num_measured, num_emulated = r["events"]
    return "all" if equal == num_measured == num_emulated else f"{equal:,} of {num_measured:,}"
