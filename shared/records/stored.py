"""The files of records that the pages show, each with the command that made it."""

import json

from shared.records.views import RESULTS, by_model, by_script, read, read_list

# Lists that `python -m shared.predict ... --json` has printed:
PREDICTED = RESULTS / "predicted-full.json"  # without options
TIMELINES = RESULTS / "predicted-full-timelines.json"  # which --timeline writes beside its pictures
CARDS = RESULTS / "predicted-h100.json"  # --card h100
TENSORS = RESULTS / "predicted-tensors.json"  # --all --tensors-only
SIDE_ROADS = RESULTS / "predicted-side-roads.json"  # --all, and the plain.py that one changes
VITS = RESULTS / "predicted-vits.json"  # 01-10 --model vit_b_16,vit_h_14
# Several of them, joined:
TEXT = RESULTS / "predicted-text.json"  # language models
ONE_GPU = RESULTS / "predicted-text-one-gpu.json"  # the same with --one-by-one --devices 1
# Measured on a CPU by `python -m shared.ladder 04-11 --preset full --data fake --no-pretrained
# --max-steps 3`, and its predicted.json:
FULL_CPU, CHECKED = RESULTS / "full-cpu.jsonl", RESULTS / "predicted-full-cpu.json"
# Side roads measured by `python -m shared.ladder --preset tiny --side-roads`:
TINY_SIDE_ROADS = RESULTS / "tiny-cpu-side-roads.jsonl"
# Stored by the command of that name in shared.lessons or shared.evidence:
WAYS = RESULTS / "predicted-ways.json"
EXERCISES = RESULTS / "exercises.json"
TINY = RESULTS / "predicted-tiny-cpu.json"  # on_cpu: predictions for the tiny ladder on a CPU
FAMILIES = RESULTS / "families.json"
VARIANTS = RESULTS / "predicted-variants.json"
TINY_VARIANTS = RESULTS / "tiny-cpu-variants.json"  # of the same command
GUIDE = RESULTS / "predicted-guide.json"
PUBLISHED = RESULTS / "published.json"
HUGGING_FACE = RESULTS / "hugging-face.json"  # two records for each technique
PROFILED = RESULTS / "profiled.json"
LOST_UPDATES = RESULTS / "lost-updates.json"

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


def predictions():
    """Return the predictions for a GPU at full size, {script: record}."""
    return by_script(read_list(PREDICTED))


def tensors():
    """Return predictions that count the bytes of tensors alone, {script: record}."""
    return by_script(read_list(TENSORS))


def on_a_cpu():
    """Return the predictions for a computer without a GPU: (file, list of records)."""
    return [(file, read_list(file)) for file in (TINY, CHECKED)]


def results():
    """Return the files of measurements, the tiny preset's first: (file, {script: record})."""
    files = sorted(RESULTS.glob("*.jsonl"), key=lambda file: ("tiny" not in file.name, file.name))
    return [(file, by_script(read(file)[0])) for file in files]


def text_records(file=TEXT):
    """Return the predictions for language models, {model: list of records}."""
    return {group[0]["model"]: group for group in by_model(read_list(file))}


def on_gpus():
    """Return the results of evidence.calibrate: (file, predictions, operations and context)."""
    found = []
    for file in sorted(RESULTS.glob("*-checked.json")):
        about = file.with_name(file.name.replace("-checked", "-operations"))
        told = json.loads(about.read_text()) if about.exists() else {}
        found.append((file, read_list(file), told))
    return found
