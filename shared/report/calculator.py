"""What the calculator of the page is given: formulas, shapes, the scripts' switches, and records.

The page computes with the formulas. Where a prediction by simulation is stored for exactly what is
chosen, it tells by how much the formulas miss it.
"""

from shared.predict import shapes
from shared.predict.arguments import one_by_one
from shared.records import scripts, stored
from shared.records.views import read_list
from shared.report import arithmetic, formulas, inputs

FILES = (stored.PREDICTED, stored.VITS, stored.TEXT, stored.ONE_GPU, stored.SIDE_ROADS)
TEXT_STAGE = "11_llm/train"
# Switches as the first stage has them, and what a folder or side road changes for those after it.
FIRST = {"precision": "fp32", "states": 2, "checkpointing": 0, "offload": 0}
CHANGES = {
    "02_mixed_precision": {"precision": "mixed"},
    "03_bf16": {"precision": "bf16"},
    "06_sgd": {"states": 0},
    "09_act_ckpt": {"checkpointing": 1},
    "10_offload": {"offload": 1},
}
ROADS = {"06_sgd/momentum": {"states": 1}, "09_act_ckpt/one_gpu": {}}
PRECISIONS = {"32-true": "fp32", "16-mixed": "mixed", "bf16-true": "bf16"}  # in Fabric's words


def ways():
    """Returns the scripts and techniques that the calculator knows the switches of, in order.

    Each is a dictionary: the `name` to show; `script`, `technique` (None for the script itself) and
    `unit` (images or texts); the switches of FIRST; the script's batch, micro (None if it has no
    micro-batches) and gpus; and whether it shards.
    """
    found, switches = [], FIRST
    for name in (
        n for n in scripts.stages() if scripts.get(n).folder != scripts.get(TEXT_STAGE).folder
    ):
        switches = {**switches, **CHANGES.get(scripts.get(name).folder, {})}
        found.append(_way(name, switches))
        roads = [road for road in ROADS if road.startswith(f"{scripts.get(name).folder}/")]
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
    """Returns stored predictions that the formulas are about.

    Each is a dictionary: model, script, technique, the peak in bytes, and the inputs of the
    formulas, without the model's shape: those of FIRST, batch, micro, gpus, pixels and tokens.
    """
    found, known = [], {(w["script"], w["technique"], w["shards"]): w for w in ways()}
    for record in (r for file in FILES for r in read_list(file)):
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


def numbers(shape, chosen):
    """Returns the numbers that the formulas take.

    Args:
        shape: of a model, as shapes.known() has it.
        chosen: precision, states, checkpointing, offload, batch, micro and gpus.
    """
    weights, values = inputs.PRECISIONS[chosen["precision"]]
    names = ("batch", "micro", "gpus", "states", "checkpointing", "offload")
    return {
        **inputs.KINDS[shape["kind"]],
        **{name: number for name, number in shape.items() if name != "kind"},
        **{name: chosen[name] for name in names},
        "weight_bytes": weights,
        "value_bytes": values,
    }


def miss(shape, record):
    """Returns by what part of it the formulas miss the peak of one of records(); 0.01 is 1 % more.

    Args:
        shape: of its model, as shapes.known() has it.
        record: of records().
    """
    shape = {**shape, "tokens": record["tokens"] or shape["tokens"]}
    _, held = arithmetic.peak(numbers(shape, record))
    return sum(held.values()) / record["peak"] - 1


def of_page():
    """Returns all that the page needs to calculate, to write into it as JSON."""
    known, predicted = shapes.known(), records()
    return {
        "inputs": inputs.INPUTS,
        "features": inputs.FEATURES,
        "set": inputs.SET,
        "kinds": inputs.KINDS,
        "precisions": inputs.PRECISIONS,
        "parts": formulas.PARTS,
        "moments": formulas.MOMENTS,
        "shapes": known,
        "ways": ways(),
        "records": predicted,
        "farthest": 100 * max(abs(miss(known[r["model"]], r)) for r in predicted),
    }
