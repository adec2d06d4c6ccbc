"""Data for the page's calculator: formulas, shapes, the scripts' switches, and records.

The page evaluates the formulas. Where a prediction is stored for exactly the chosen
settings, it shows how far the formulas are from it.
"""

import tomllib
from pathlib import Path

from shared.memory.blocks import CATEGORIES
from shared.predict import shapes
from shared.predict.jobs import one_by_one
from shared.records import scripts, stored

FORMULAS = Path(__file__).with_name("formulas.toml")
GROUPS = (stored.STAGES, stored.VITS, stored.TEXT, stored.SIDE_ROADS)
TEXT_STAGE = "11_llm/train"
# The switches of the first stage; what each folder changes from there on, and a side road.
FIRST = {"precision": "fp32", "states": 2, "checkpointing": 0, "offload": 0}
CHANGES = {
    "02_mixed_precision": {"precision": "mixed"},
    "03_bf16": {"precision": "bf16"},
    "06_sgd": {"states": 0},
    "09_act_ckpt": {"checkpointing": 1},
    "10_offload": {"offload": 1},
}
ROADS = {"06_sgd/momentum": {"states": 1}, "09_act_ckpt/one_gpu": {}}
PRECISIONS = {"32-true": "fp32", "16-mixed": "mixed", "bf16-true": "bf16"}  # by Fabric's names


def ways():
    """Return the scripts and techniques whose switches the calculator knows, in order.

    Each has a name, script, technique (None for the script itself), unit, the switches of FIRST,
    the script's batch, micro (None if it has no micro-batches) and gpus, and whether it shards.
    """
    ways, switches = [], FIRST
    for folder in (name.partition("/")[0] for name in scripts.ladder()):
        switches = {**switches, **CHANGES.get(folder, {})}
        ways.append(_way(f"{folder}/train", switches))
        roads = [road for road in ROADS if road.startswith(f"{folder}/")]
        ways += [_way(road, {**switches, **ROADS[road]}) for road in roads]
    return ways + _text_ways()


def _text_ways():
    module = one_by_one(TEXT_STAGE)
    last = _way(TEXT_STAGE, FIRST)
    adds = {
        module.BF16: {"precision": "bf16"},
        module.FEW: {"micro": last["micro"]},
        module.ONCE: {},
        module.SHARD: {"gpus": last["gpus"], "shards": True},
        module.CHECKPOINT: {"checkpointing": 1},
        module.OFFLOAD: {"offload": 1},
    }
    ways = [_way(TEXT_STAGE.replace("train", "before"), FIRST)]
    switches = {**FIRST, "gpus": 1, "micro": None, "shards": False}
    for technique in module.TOGETHER:
        switches = {**switches, **adds[technique]}
        ways.append({**last, **switches, "technique": technique, "name": f"11, + {technique}"})
    alone = {"gpus": 1, "shards": False, "offload": 0, "technique": module.CHECKPOINT}
    ways.append({**ways[-1], **alone, "name": f"11, + {module.CHECKPOINT}, on one GPU"})
    return [*ways, {**last, **switches}]


def _way(name, switches):
    module = scripts.get(name).load()
    return {
        "name": name,
        "script": name,
        "technique": None,
        "unit": module.TASK.unit,
        **switches,
        "batch": module.BATCH_SIZE,
        "micro": getattr(module, "MICRO_BATCH_SIZE", None),
        "gpus": module.DEVICES,
        "shards": module.DEVICES > 1,
    }


def records():
    """Return the stored predictions that the formulas cover, with the formulas' inputs."""
    covered = []
    by_key = {(w["script"], w["technique"], w["shards"]): w for w in ways()}
    for record in stored.predicted(*GROUPS):
        technique, gpus = record.get("technique"), record["world_size"]
        keys = [(record["script"], technique, shards) for shards in (gpus > 1, gpus == 1)]
        way = next((by_key[key] for key in keys if key in by_key), None)
        if way and record["precision"] in PRECISIONS:
            batch = record["batch_size"]
            covered.append(
                {
                    "model": record["model"],
                    "script": record["script"],
                    "technique": technique,
                    "peak": record["train"]["device_peak_gb"] * 1e9,
                    **{name: way[name] for name in FIRST},
                    "precision": PRECISIONS[record["precision"]],
                    "batch": batch,
                    "micro": record["micro_batch_size"] or batch,
                    "gpus": gpus,
                    "pixels": record.get("image_px", 0),
                    "tokens": record.get("max_length", 0),
                }
            )
    return covered


def moments(formulas):
    """Return the moments of formulas.toml one by one, each with all that is held, in order."""
    moments = []
    for moment in formulas["moments"]:
        held = {**formulas["always"], **moment["held"]}
        held = {label: held[label] for label in CATEGORIES if label in held}
        parts = listed(moment.get("parts", {}))
        for name, ways_to_set in moment["names"].items():
            moments += [(name, moment["where"], sets, parts, held) for sets in ways_to_set]
    return moments


def listed(parts):
    """Return the parts of formulas.toml as (name, expression, description)."""
    return [(name, *part) for name, part in parts.items()]


def of_page():
    """Return all data that the page needs to calculate, for JSON."""
    formulas = tomllib.loads(FORMULAS.read_text())
    none = dict.fromkeys(formulas["features"], 0)
    return {
        **{name: formulas[name] for name in ("inputs", "features", "set", "precisions")},
        "kinds": {kind: {**none, **features} for kind, features in formulas["kinds"].items()},
        "parts": listed(formulas["parts"]),
        "moments": moments(formulas),
        "shapes": shapes.known(),
        "ways": ways(),
        "records": records(),
    }
