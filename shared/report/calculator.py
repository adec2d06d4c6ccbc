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
    found, switches = [], FIRST
    for folder in (name.partition("/")[0] for name in scripts.ladder()):
        switches = {**switches, **CHANGES.get(folder, {})}
        found.append(_way(f"{folder}/train", switches))
        roads = [road for road in ROADS if road.startswith(f"{folder}/")]
        found += [_way(road, {**switches, **ROADS[road]}) for road in roads]
    return found + _text_ways()


def _text_ways():
    its, switches = one_by_one(TEXT_STAGE), {**FIRST, "gpus": 1, "micro": None, "shards": False}
    last = _way(TEXT_STAGE, FIRST)
    adds = {
        its.BF16: {"precision": "bf16"},
        its.FEW: {"micro": last["micro"]},
        its.ONCE: {},
        its.SHARD: {"gpus": last["gpus"], "shards": True},
        its.CHECKPOINT: {"checkpointing": 1},
        its.OFFLOAD: {"offload": 1},
    }
    found = [_way(TEXT_STAGE.replace("train", "before"), FIRST)]
    for technique in its.TOGETHER:
        switches = {**switches, **adds[technique]}
        found.append({**last, **switches, "technique": technique, "name": f"11, + {technique}"})
    alone = {"gpus": 1, "shards": False, "offload": 0, "technique": its.CHECKPOINT}
    found.append({**found[-1], **alone, "name": f"11, + {its.CHECKPOINT}, on one GPU"})
    return [*found, {**last, **switches}]


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
    found, known = [], {(w["script"], w["technique"], w["shards"]): w for w in ways()}
    for record in stored.predicted(*GROUPS):
        technique, gpus = record.get("technique"), record["world_size"]
        keys = [(record["script"], technique, shards) for shards in (gpus > 1, gpus == 1)]
        its = next((known[key] for key in keys if key in known), None)
        if its and record["precision"] in PRECISIONS:
            batch = record["batch_size"]
            found.append(
                {
                    "model": record["model"],
                    "script": record["script"],
                    "technique": technique,
                    "peak": record["train"]["device_peak_gb"] * 1e9,
                    **{name: its[name] for name in FIRST},
                    "precision": PRECISIONS[record["precision"]],
                    "batch": batch,
                    "micro": record["micro_batch_size"] or batch,
                    "gpus": gpus,
                    "pixels": record.get("image_px", 0),
                    "tokens": record.get("max_length", 0),
                }
            )
    return found


def moments(told):
    """Return the moments of formulas.toml one by one, each with all that is held, in order."""
    found = []
    for its in told["moments"]:
        held = {**told["always"], **its["held"]}
        held = {label: held[label] for label in CATEGORIES if label in held}
        parts = listed(its.get("parts", {}))
        for name, ways_to_set in its["names"].items():
            found += [(name, its["where"], sets, parts, held) for sets in ways_to_set]
    return found


def listed(parts):
    """Return the parts of formulas.toml as (name, expression, description)."""
    return [(name, *its) for name, its in parts.items()]


def of_page():
    """Return all data that the page needs to calculate, for JSON."""
    told = tomllib.loads(FORMULAS.read_text())
    none = dict.fromkeys(told["features"], 0)
    return {
        **{name: told[name] for name in ("inputs", "features", "set", "precisions")},
        "kinds": {kind: {**none, **its} for kind, its in told["kinds"].items()},
        "parts": listed(told["parts"]),
        "moments": moments(told),
        "shapes": shapes.known(),
        "ways": ways(),
        "records": records(),
    }
