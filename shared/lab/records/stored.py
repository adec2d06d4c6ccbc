"""The files of records that the pages show, each with the command that made it.

A .json file has a record a line, so that a change of one record is a change of one line. Files
that only programs read, and large ones, are compressed: .json.xz.
"""

import json
import lzma

from shared.lab.records import scripts
from shared.lab.records.atomic_files import write_bytes, write_text
from shared.lab.records.reading import by_model, by_script
from shared.lab.records.reading import read as read_lines
from shared.run.record import ROOT

RESULTS = ROOT / "shared" / "lab" / "evidence" / "results"
# Predictions for emulated GPUs, by `python -m shared records predicted`: for each of the groups a
# line with what its records share, then a line for each record.
PREDICTED = RESULTS / "predicted.jsonl"
STAGES = "stages"
SIDE_ROADS = "side roads"
VITS = "other vision transformers"
TEXT = "language models"
VARIANTS = "variants"
ONE_GPU = "one GPU"
TIMELINES = RESULTS / "timelines.json.xz"  # by the same command: of the stages
# Measured on a CPU by `python -m shared ladder --preset tiny --side-roads`:
TINY_MEASURED = RESULTS / "tiny-cpu.jsonl"
TINY_SIDE_ROADS = RESULTS / "tiny-cpu-side-roads.jsonl"
# The same by `python -m shared ladder 04-11 --preset full --dry-run`:
FULL_CPU = RESULTS / "full-cpu.jsonl"
# By the command of that name:
EXERCISES = RESULTS / "exercises.json.xz"
MISCONCEPTIONS = RESULTS / "misconceptions.json"
GAME = RESULTS / "game.json"  # game_sheet
STRIPS = RESULTS / "strips.json.xz"
TINY_VARIANTS = RESULTS / "tiny-cpu-variants.json"  # variants
ON_CARDS = RESULTS / "on-cards.json"
SCALE = RESULTS / "scale.json"
LONG_CONTEXT = RESULTS / "long-context.json.xz"
LOST_UPDATES = RESULTS / "lost-updates.json"
# By the emulator's proof, of the command's words:
PROOF = ROOT / "shared" / "emulator" / "proof" / "results"
PUBLISHED = PROOF / "published.jsonl"
TRACES = PROOF / "traces.jsonl"
# Of a prediction the fields that are not stored if they are None; some only a measurement has.
LEFT_OUT = "micro_batch_size technique pretrained dataset seed test_accuracy resumed_at".split()

# GB reserved, with Fabric, in the article of 2023 that the ladder follows, by the script of the
# same step.
ARTICLE = {
    "01_baseline/train": 26.84,
    "02_mixed_precision/train": 18.21,
    "03_bf16/train": 13.82,
    "04_batchsize/train": 5.69,
    "05_grad_accum/train": 3.91,
    "06_sgd/train": 2.02,
}


def read(file):
    """Return the content of a .json, .json.xz or .jsonl file, a list or a dictionary of records."""
    opened = lzma.open if file.suffix == ".xz" else open
    with opened(file, "rt", encoding="utf-8") as text:
        return [*map(json.loads, text)] if file.suffix == ".jsonl" else json.load(text)


def write(file, content):
    """Write a list or a dictionary of records into a .json or .json.xz file, an entry a line."""
    if isinstance(content, dict):
        entries = [f"{compact(key)}:{compact(value)}" for key, value in content.items()]
        brackets = "{}"
    else:
        entries = map(compact, content)
        brackets = "[]"
    text = f"{brackets[0]}\n" + ",\n".join(entries) + f"\n{brackets[1]}\n"
    if file.suffix == ".xz":
        strongest = 9 | lzma.PRESET_EXTREME  # a file is written rarely, and fetched with each clone
        return write_bytes(file, lzma.compress(text.encode(), preset=strongest))
    write_text(file, text)


def write_made_by(command, file, records):
    """Write a group of records into its file, and print their number."""
    made = {"command": f"python -m shared records {command}"}
    write(file, [{**record, **made} for record in records])
    print(f"{file.name}: {len(records)} records")


def compact(value):
    """Return JSON without the spaces that it does not need."""
    # Names keep their letters, which escapes would hide from a reader of a diff.
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def predicted(*groups):
    """Return the predictions of groups, as records."""
    records = []
    for line in PREDICTED.read_text().splitlines():
        fields = json.loads(line)
        if "group" in fields:
            group = fields.pop("group")
            header = fields
        elif group in groups:
            # With the keys of a measurement, so that readers need not ask which one a record is.
            records.append({**dict.fromkeys(LEFT_OUT), **header, **fields})
    return records


def store_predicted(group, records):
    """Replace the stored predictions of a group."""
    lines = []
    name = None
    for line in PREDICTED.read_text().splitlines() if PREDICTED.exists() else ():
        name = json.loads(line).get("group", name)
        if name != group:
            lines.append(line)
    # What all have in common stands once; on each line it would hide what differs.
    header = {"group": group, **rounded(in_common(records))}
    lines += [compact(header), *(_line(record, header) for record in records)]
    write_text(PREDICTED, "\n".join(lines) + "\n")


def in_common(records):
    """Return the fields that are the same in all records, except the script, which names each."""
    first, *others = records
    return {
        key: value
        for key, value in first.items()
        if key != "script" and value is not None
        if all(key in record and record[key] == value for record in others)
    }


def insert_predicted(group, record):
    """Replace the record of the same script in a group, or insert it in the order of scripts.

    The lines of all other records stay as they are.
    """
    lines = PREDICTED.read_text().splitlines()
    fields = [*map(json.loads, lines)]
    headers = [n for n, line in enumerate(fields) if "script" not in line]
    start = next(n for n in headers if fields[n]["group"] == group)
    end = min((n for n in headers if n > start), default=len(lines))
    members = lines[start + 1 : end]
    inserted = _inserted(_line(record, fields[start]), members)
    write_text(PREDICTED, "\n".join([*lines[: start + 1], *inserted, *lines[end:]]) + "\n")


def insert_measured(record):
    """Replace or insert a side road's record in TINY_SIDE_ROADS, as insert_predicted() does."""
    lines = TINY_SIDE_ROADS.read_text().splitlines()
    # With the spaces of shared.run.record.append(), like the lines beside it.
    write_text(TINY_SIDE_ROADS, "\n".join(_inserted(json.dumps(record), lines)) + "\n")


def _line(record, header):
    """Return the line of a prediction: its fields, but for those that the header has, too."""
    fields = {
        key: value
        for key, value in rounded(record).items()
        if header.get(key) != value  # where the header has a value, None is written, too
    }
    return compact(fields)


def _inserted(line, lines):
    """Return the lines of records with another line, in place of its script's or inserted.

    It is inserted before the first line whose script follows in the order of scripts.every().
    """
    order = [*scripts.every()]

    def place(text):
        return order.index(json.loads(text)["script"])

    places = [*map(place, lines)]
    if place(line) in places:
        first = places.index(place(line))
        return [*lines[:first], line, *lines[first + 1 :]]
    first = next((n for n, following in enumerate(places) if following > place(line)), len(lines))
    return [*lines[:first], line, *lines[first:]]


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
    return by_script(read_lines(file)[0])


def results():
    """Return the files of measurements, the tiny preset's first: (file, {script: record})."""
    measured = (file for file in RESULTS.glob("*.jsonl") if file != PREDICTED)
    files = sorted(measured, key=lambda file: ("tiny" not in file.name, file.name))
    return [(file, measurements(file)) for file in files]


def text_records():
    """Return the predictions for language models, {model: list of records}."""
    return {records[0]["model"]: records for records in by_model(predicted(TEXT))}
