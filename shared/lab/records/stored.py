"""The files of records that the pages show, each with the command that made it."""

import gzip
import json

from shared.lab.records.atomic_files import write_text
from shared.lab.records.views import RESULTS, by_model, by_script, read

# Predictions for emulated GPUs, by `python -m shared predicted`: for each of the groups a
# line with what its records share, then a line for each record.
PREDICTED = RESULTS / "predicted.jsonl"
STAGES, SIDE_ROADS, VITS = "stages", "side roads", "other vision transformers"
TEXT, VARIANTS, ONE_GPU = "language models", "variants", "one GPU"
TIMELINES = RESULTS / "timelines.json.gz"  # by the same command: of the stages
# Measured on a CPU by `python -m shared ladder 04-11 --preset full --dry-run`:
FULL_CPU = RESULTS / "full-cpu.jsonl"
# Side roads measured by `python -m shared ladder --preset tiny --side-roads`:
TINY_SIDE_ROADS = RESULTS / "tiny-cpu-side-roads.jsonl"
# Stored by the command of that name in shared.lab.lessons or shared.lab.evidence:
WAYS = RESULTS / "ways.json"  # card_fits
EXERCISES = RESULTS / "exercises.json"
MISCONCEPTIONS = RESULTS / "misconceptions.json"
FIT = RESULTS / "fit.json"  # fit --sheet
STREAMS = RESULTS / "streams.json"
TINY_VARIANTS = RESULTS / "tiny-cpu-variants.json"
PUBLISHED = RESULTS / "published.json"
TRACES = RESULTS / "traces.json"
ON_CARDS = RESULTS / "on-cards.json"
SCALE = RESULTS / "scale.json"
HUGGING_FACE = RESULTS / "hugging-face.json"  # two records for each technique
LOST_UPDATES = RESULTS / "lost-updates.json"
# What a stored prediction leaves out if it is None, or always: what only a measurement has.
LEFT_OUT = "micro_batch_size technique pretrained dataset seed test_accuracy resumed_at".split()
SHARED = "versions", "git_commit", "command", "date"  # by the records of a group

# GB reserved, with Fabric, in the article of 2023 that the ladder follows, by the script of the
# same step.
ARTICLE_RUNS = "Raschka 2023, one GPU"  # its title in published/sources.toml
ARTICLE = {
    "01_baseline/train": 26.84,
    "02_mixed_precision/train": 18.21,
    "03_bf16/train": 13.82,
    "04_batchsize/train": 5.69,
    "05_grad_accum/train": 3.91,
    "06_sgd/train": 2.02,
}


def predicted(*groups):
    """Return the predictions of groups, as records."""
    records = []
    for line in PREDICTED.read_text().splitlines():
        fields = json.loads(line)
        if "script" not in fields:
            header, group = fields, fields.pop("group")
        elif group in groups:
            records.append({**dict.fromkeys(LEFT_OUT), **header, **fields})
    return records


def store_predicted(group, records):
    """Put the records of a group, made by one command, in the place of those before."""
    lines, name = [], None
    for line in PREDICTED.read_text().splitlines() if PREDICTED.exists() else ():
        name = json.loads(line).get("group", name)
        lines += [line] if name != group else []
    header = {"group": group, **{name: records[0][name] for name in SHARED}}
    own = ({k: v for k, v in r.items() if k not in SHARED and v is not None} for r in records)
    lines += [json.dumps(fields) for fields in (header, *map(rounded, own))]
    write_text(PREDICTED, "\n".join(lines) + "\n")


def rounded(value):
    """Return a value with numbers rounded: sizes in GB to bytes."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [*map(rounded, value)]
    return round(value, 9) if isinstance(value, float) else value


def predictions():
    """Return the predictions for a GPU at full size, {script: record}."""
    return by_script(predicted(STAGES))


def timelines():
    """Return what history.condensed() made of each stage, as a list."""
    return json.loads(gzip.decompress(TIMELINES.read_bytes()))


def results():
    """Return the files of measurements, the tiny preset's first: (file, {script: record})."""
    there = (file for file in RESULTS.glob("*.jsonl") if file != PREDICTED)
    files = sorted(there, key=lambda file: ("tiny" not in file.name, file.name))
    return [(file, by_script(read(file)[0])) for file in files]


def text_records(group=TEXT):
    """Return the predictions for language models, {model: list of records}."""
    return {records[0]["model"]: records for records in by_model(predicted(group))}
