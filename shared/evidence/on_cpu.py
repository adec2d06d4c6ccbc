"""Store predictions, for a computer without a GPU, of every run of the tiny ladder.

They are made for the texts that were measured, whose lengths differ from update to update.
This takes one to two minutes.
"""

from shared.cli import Parser
from shared.evidence import kept
from shared.predict.jobs import Wanted, run_jobs
from shared.predict.simulation import predict
from shared.records import stored
from shared.records.views import TINY_MEASURED, read


def measured():
    """Return the stored measurements of the tiny ladder and its side roads."""
    return [r for file in (TINY_MEASURED, stored.TINY_SIDE_ROADS) for r in read(file)[0]]


def same(record, device="cpu", **options):
    """Return the jobs.Wanted of the simulation that predicts a measurement, a record."""
    sizes = {name: record.get(name) for name in ("image_px", "max_length", "input_shapes")}
    sizes["devices"] = record["world_size"]
    return Wanted(device, record["preset"], record["model"], **sizes, **options)


def predicted(record):
    """Return the prediction for a measurement, a record; run it in a process of its own.

    It keeps two fields of the measurement that peaks depend on: the data set and its shapes.
    """
    told = predict(record["script"], same(record))
    return {**told, "dataset": record["dataset"], "input_shapes": record["input_shapes"]}


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    kept.store(stored.TINY, "on_cpu", run_jobs([(predicted, record) for record in measured()]))


if __name__ == "__main__":
    main()
