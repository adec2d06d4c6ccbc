"""The files of records that the pages show, and how each was made."""

import json

from shared.records.record import RESULTS, by_model, by_script, read, read_list

# What `python -m shared.predict --json` printed:
PREDICTED = RESULTS / "predicted-full.json"
# The same with --timeline; the condensed timelines that it left beside its pictures:
TIMELINES = RESULTS / "predicted-full-timelines.json"
# What the same printed with `--card h100`:
CARDS = RESULTS / "predicted-h100.json"
# What `python -m shared.lessons.ways` has stored:
WAYS = RESULTS / "predicted-ways.json"
# What `python -m shared.predict --all --tensors-only --json` printed:
TENSORS = RESULTS / "predicted-tensors.json"
# What `python -m shared.predict --all --json` printed of side roads and of the plain.py that one
# of them changes:
SIDE_ROADS = RESULTS / "predicted-side-roads.json"
# Those of `python -m shared.ladder --preset tiny --side-roads`:
TINY_SIDE_ROADS = RESULTS / "tiny-cpu-side-roads.jsonl"
# What `python -m shared.evidence.on_cpu` has stored: predictions for the tiny ladder on a CPU:
TINY = RESULTS / "predicted-tiny-cpu.json"
# For language models, the lists that several commands printed, joined:
TEXT = RESULTS / "predicted-text.json"
# The same with `--one-by-one --devices 1`:
ONE_GPU = RESULTS / "predicted-text-one-gpu.json"
# What `python -m shared.predict 01-10 --model vit_b_16,vit_h_14 --json` printed:
VITS = RESULTS / "predicted-vits.json"
# The lists that several `python -m shared.predict --check ... --json` printed, joined:
CHECKED = RESULTS / "checked-full-cpu.json"
# What `python -m shared.evidence.families` has stored:
FAMILIES = RESULTS / "families.json"
# What `python -m shared.evidence.variants` has stored:
VARIANTS = RESULTS / "predicted-variants.json"
# What `python -m shared.evidence.guide` has stored:
GUIDE = RESULTS / "predicted-guide.json"
# What `python -m shared.evidence.published` has stored:
PUBLISHED = RESULTS / "published.json"
# What `python -m shared.evidence.hugging_face` has stored, two records for each technique:
HUGGING_FACE = RESULTS / "hugging-face.json"
# What `python -m shared.evidence.lost_updates` has stored:
LOST_UPDATES = RESULTS / "lost-updates.json"
# What `python -m shared.lessons.exercises` has stored:
EXERCISES = RESULTS / "exercises.json"

# GB reserved, with Fabric, from the article of 2023 that the ladder follows, by the script of the
# same step.
ARTICLE = {
    "01_baseline/train": 26.84,
    "02_mixed_precision/train": 18.21,
    "03_bf16/train": 13.82,
    "04_batchsize/train": 5.69,
    "05_grad_accum/train": 3.91,
    "06_sgd/train": 2.02,
}


def predictions():
    """Returns the predictions for a GPU at full size, {script: record}."""
    return by_script(read_list(PREDICTED))


def tensors():
    """Returns predictions that count the bytes of tensors alone, {script: record}."""
    return by_script(read_list(TENSORS))


def on_a_cpu():
    """Returns the predictions for a computer without a GPU: (file, list of records)."""
    return [(file, read_list(file)) for file in (TINY, CHECKED) if file.exists()]


def results():
    """Returns the files of measurements, the tiny preset's first: (file, {script: record})."""
    files = sorted(RESULTS.glob("*.jsonl"), key=lambda file: ("tiny" not in file.name, file.name))
    return [(file, by_script(read(file)[0])) for file in files]


def text_records():
    """Returns the predictions for language models, {model: list of records}."""
    return {group[0]["model"]: group for group in by_model(read_list(TEXT))}


def one_gpu_records():
    """Returns those of the techniques for one GPU, {model: list of records}."""
    return {group[0]["model"]: group for group in by_model(read_list(ONE_GPU))}


def on_gpus():
    """Returns what evidence.calibrate has stored about GPUs, in order of their names.

    Each is (file, predictions with "measured", what was found about operations and the context).
    """
    found = []
    for file in sorted(RESULTS.glob("*-checked.json")):
        about = file.with_name(file.name.replace("-checked", "-operations"))
        told = json.loads(about.read_text()) if about.exists() else {}
        found.append((file, read_list(file), told))
    return found
