"""Stores what is predicted, for a computer without a GPU, of all that the tiny ladder measures.

The predictions are of the texts that were measured: their lengths differ from update to update.
Takes one to two minutes.
"""

import json

from shared.cli import Parser, command_of, run
from shared.common.writing import replaceable, write_text
from shared.predict.jobs import Wanted, run_jobs
from shared.predict.simulation import predict
from shared.records import stored
from shared.records.record import TINY_MEASURED, read


def measured():
    """Returns the stored measurements of the tiny ladder and its side roads."""
    return [r for file in (TINY_MEASURED, stored.TINY_SIDE_ROADS) for r in read(file)[0]]


def predicted(record):
    """Returns what is predicted for a measurement, a record; in a process of its own.

    It keeps two things of the measurement that peaks depend on: its data and their shapes.
    """
    options = Wanted(
        "cpu",
        record["preset"],
        record["model"],
        image_px=record.get("image_px"),
        max_length=record.get("max_length"),
        devices=record["world_size"],
        input_shapes=record["input_shapes"],
    )
    told = predict(record["script"], options)
    return {**told, "dataset": record["dataset"], "input_shapes": record["input_shapes"]}


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    replaceable(stored.TINY)
    command = command_of(["-m", "shared.evidence.on_cpu"], argv)
    records = run_jobs([(predicted, record) for record in measured()])
    found = [{**record, "command": command} for record in records]
    write_text(stored.TINY, json.dumps(found, indent=1) + "\n")
    print(f"{stored.TINY.name}: {len(found)} records")


if __name__ == "__main__":
    run(main)
