"""Records: reading them from files, grouping them, and deriving further properties."""

import json

from shared.lab.records.formats import one_line


def read(file):
    """Return the records in a file of one JSON object per line, and the number of invalid lines."""
    records = []
    num_invalid = 0
    for line in file.read_bytes().splitlines() if file.exists() else []:
        try:
            record = json.loads(line)
            # Any JSON could stand in a file that a user names. These fields make it a record.
            record["script"], record["versions"], record["train"]["device_peak_gb"]
            records.append(record)
        except (ValueError, TypeError, KeyError):
            num_invalid += 1  # such as an incomplete last line
    return records, num_invalid


def by_script(records):
    """Return {script: record}; of several records of a script, the last."""
    return {record["script"]: record for record in records}


def grouped(records, key):
    """Return {key(record): list of records}, in the order in which the keys come."""
    groups = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def by_model(records):
    """Return the records in groups of one model and input size, which can be compared."""
    return [*grouped(records, setting).values()]


def setting(record):
    """Return the model of a record and the size of its inputs, as text."""
    if "max_length" in record:
        return f"{one_line(record['model'])}, {record['max_length']} tokens"
    return f"{one_line(record['model'])} at {record['image_px']} px"


def unit(record):
    """Return the unit that a record counts: "images" or "texts"."""
    return "texts" if "max_length" in record else "images"


def speed(record):
    """Return the images or texts per second, None if they were not measured."""
    return record.get(f"{unit(record)}_per_second")


def emulated_ms(record):
    """Return the time that one image or text takes an emulated GPU, in milliseconds.

    Where the host takes longer to start the work than the GPU to do it, it is the host's time.
    """
    return record["time"]["ms"] * record["world_size"] / record["batch_size"]


def peak(record, phase="train"):
    """Return the GB allocated at the peak of training, or of another phase."""
    return record[phase]["device_peak_gb"]


def name(record):
    """Return the name of a record in a table: its script, or the last technique applied."""
    return f"+ {record['technique']}" if record.get("technique") else record["script"]


def on_host(record, phase="train"):
    """Return whether a run holds more on the host than a few numbers."""
    # The host of a measurement on a CPU is the device itself: its peak is None.
    return (record[phase]["host_peak_gb"] or 0) > 0.01 * record[phase]["device_peak_gb"]


def on_gpu(record):
    """Return whether a run was on a GPU, real or emulated: only there is memory reserved."""
    return record["train"]["device_reserved_gb"] is not None


def computes_on_host(record):
    """Return whether the host computes a part of an update, such as the optimizer step.

    The emulated time does not include the time that this takes.
    """
    return record["cost"]["moved_on_host_gb"] > 0.01 * record["cost"]["moved_gb"]


def at_once(record):
    """Return the number of images or texts per device in one forward pass."""
    # Without `shares`, as in scripts of others, each device has a part of its own.
    share = record["batch_size"] // (record.get("shares") or record["world_size"])
    return min(record["micro_batch_size"] or share, share)


def is_prediction(record):
    """Return whether a record is a prediction; else it is a measurement."""
    # A predictor names the card so; device_name() has "(emulated)" at its end.
    return record["device"].startswith("emulated")
