"""The files of records that the pages show, each with the command that made it.

A record is a line of JSON with its fields in alphabetical order, so that a change of one record is
a change of one line. Files that only programs read, and large ones, are compressed: .jsonl.xz.
"""

import json
import lzma

from shared.lab.records import scripts
from shared.lab.records.atomic_files import write_bytes
from shared.lab.records.reading import by_model, by_script
from shared.run.record import ROOT

RESULTS = ROOT / "shared" / "lab" / "evidence" / "results"
# Predictions for emulated GPUs, by `python -m shared records predicted`, in groups.
PREDICTED = RESULTS / "predicted.jsonl"
STAGES = "stages"
SIDE_ROADS = "side roads"
VITS = "other vision transformers"
TEXT = "language models"
VARIANTS = "variants"
ONE_GPU = "one GPU"
TIMELINES = RESULTS / "timelines.jsonl.xz"  # by the same command: of the stages
# Measured on a CPU by `python -m shared ladder --preset tiny --side-roads`:
TINY_MEASURED = RESULTS / "tiny-cpu.jsonl"
TINY_SIDE_ROADS = RESULTS / "tiny-cpu-side-roads.jsonl"
# The same by `python -m shared ladder 04-11 --preset full --dry-run`:
FULL_CPU = RESULTS / "full-cpu.jsonl"
MEASURED = TINY_SIDE_ROADS, TINY_MEASURED, FULL_CPU
# By the command of that name:
EXERCISES = RESULTS / "exercises.jsonl.xz"
MISCONCEPTIONS = RESULTS / "misconceptions.jsonl"
GAME = RESULTS / "game.jsonl"  # game_sheet
STRIPS = RESULTS / "strips.jsonl.xz"
TINY_VARIANTS = RESULTS / "tiny-cpu-variants.jsonl.xz"  # variants
ON_CARDS = RESULTS / "on-cards.jsonl"
SCALE = RESULTS / "scale.jsonl"
LONG_CONTEXT = RESULTS / "long-context.jsonl.xz"
LOST_UPDATES = RESULTS / "lost-updates.jsonl"
# By the emulator's proof, of the command's words:
PROOF = ROOT / "shared" / "emulator" / "proof" / "results"
PUBLISHED = PROOF / "published.jsonl"
TRACES = PROOF / "traces.jsonl"
# Of a prediction the fields that are not stored if they are None; some only a measurement has.
LEFT_OUT = "micro_batch_size technique pretrained dataset seed test_accuracy resumed_at".split()


def read(file):
    """Return the records in a .jsonl or .jsonl.xz file, a list."""
    opened = lzma.open if file.suffix == ".xz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        return [*map(json.loads, lines)]


def write(file, records):
    """Write records into a .jsonl or .jsonl.xz file."""
    # Names keep their letters, which escapes would hide from a reader of a diff.
    compact = {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False}
    content = "".join(f"{json.dumps(record, **compact)}\n" for record in records).encode()
    if file.suffix == ".xz":
        # The strongest: a file is written rarely, and fetched with each clone.
        content = lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)
    write_bytes(file, content)


def predicted(*groups):
    """Return the predictions of groups, as records."""
    # With the keys of a measurement, so that readers need not ask which one a record is.
    records = [{**dict.fromkeys(LEFT_OUT), **r} for r in read(PREDICTED) if r["group"] in groups]
    for record in records:
        del record["group"]
    return records


def store_predicted(group, records):
    """Replace the stored predictions of a group."""
    others = [r for r in read(PREDICTED) if r["group"] != group]
    write(PREDICTED, others + [prediction(group, record) for record in records])


def prediction(group, record):
    """Return the record to store of a prediction."""
    fields = {k: v for k, v in record.items() if v is not None or k not in LEFT_OUT}
    return {"group": group, **rounded(fields)}


def insert(file, record):
    """Replace the record of a file with the same group, if any, and script, or insert it.

    It is inserted before the first of its group whose script follows in the order of scripts.
    """
    order = [*scripts.every()]

    def place(r):
        return r.get("group"), order.index(r["script"])

    group, number = place(record)
    records = [r for r in read(file) if place(r) != (group, number)]
    beside = [n for n, r in enumerate(records) if place(r)[0] == group]
    following = (n for n in beside if place(records[n])[1] > number)
    records.insert(next(following, beside[-1] + 1), record)
    write(file, records)


def rounded(value):
    """Return a value with numbers rounded: sizes in GB to bytes."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [*map(rounded, value)]
    # The further digits of a sum are noise that would differ in every diff.
    return round(value, 9) if isinstance(value, float) else value


def predictions():
    """Return the predictions for a GPU at full size, {script: record}."""
    return by_script(predicted(STAGES))


def timelines():
    """Return the stored timelines, as a list: the result of history.condensed() for each stage."""
    return read(TIMELINES)


def measurements(file):
    """Return the measurements in a file, {script: record}."""
    return by_script(read(file))


def results():
    """Return the files of measurements, the tiny preset's first: (file, {script: record})."""
    return [(file, measurements(file)) for file in MEASURED]


def text_records():
    """Return the predictions for language models, {model: list of records}."""
    return {records[0]["model"]: records for records in by_model(predicted(TEXT))}
