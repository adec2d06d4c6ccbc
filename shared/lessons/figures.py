"""All figures of a stage: its memory and the cost of its update, beside the stage before.

`python -m shared.lessons.figures STAGE` prints them from the stored records; it runs nothing.
"""

from shared.cli import Parser
from shared.lessons import side_roads
from shared.lessons.parts import pair
from shared.memory.blocks import CATEGORIES
from shared.records import scripts, stored
from shared.records.scripts import ROOT
from shared.records.views import (
    NOTHING,
    aligned,
    amount,
    by_script,
    duration,
    least_ms,
    origin,
    read,
    size,
    unit,
    where,
)


def memory(records):
    """Return rows of texts: what holds the memory of each record, a column for each."""
    shown = [(r, 1) for r in records]
    heading = [r["script"] for r in records]
    if len({r["world_size"] for r in records}) > 1:  # from one device to several
        shown.append((records[-1], records[-1]["world_size"]))
        heading.append(f"all {records[-1]['world_size']} devices together")
    train, load = ([_times(n, r[phase]) for r, n in shown] for phase in ("train", "load"))
    held = [phase["breakdown_gb"] for phase in train]
    rows = [
        *((label, *(amount(each.get(label)) for each in held)) for label in CATEGORIES),
        ("together: allocated", *(size(phase["device_peak_gb"]) for phase in train)),
        ("reserved by the caching allocator", *_amounts(train, "device_reserved_gb")),
        ("when", *(where(r) if n == 1 else NOTHING for r, n in shown)),
        ("host, at its own peak", *_amounts(train, "host_peak_gb")),
        ("peak while loading: device", *_amounts(load, "device_peak_gb")),
        ("peak while loading: host", *_amounts(load, "host_peak_gb")),
    ]
    return [("at the peak while training", *heading), *_filled(rows)]


def cost(records):
    """Return rows of texts: what an update costs each GPU, a column for each record."""
    what = unit(records[0])
    card = records[-1]["device"].removeprefix("emulated ")
    sizes = {
        "read and written in its memory": "moved_gb",
        "gathered from the GPUs": "gathered_gb",
        "reduced over the GPUs": "reduced_gb",
        "copied from the host": "to_device_gb",
        "copied to the host": "to_host_gb",
        "read and written by operations on the host": "moved_on_host_gb",
    }
    columns = []
    for r in records:
        counted, bound = r["cost"], r["bound"]
        columns.append(
            {
                f"{what}, on all GPUs": str(r["batch_size"]),
                "floating-point operations": _flop(counted["tflop"]),
                **{label: amount(counted[key]) for label, key in sizes.items()},
                "operations started": f"{counted['operations']:,}",
                f"lower bound of its time, {card}": duration(bound["ms"]),
                "what bounds it": _parts(bound["parts_ms"]),
                "beside it, further streams added up": _parts(bound["beside_ms"]),
                f"lower bound for one of the {what}, on one GPU": duration(least_ms(r)),
            }
        )
    rows = [(label, *(column[label] for column in columns)) for label in columns[0]]
    return [("for each GPU, in one update", *(r["script"] for r in records)), *_filled(rows)]


def origins(folder, records):
    """Return where the figures of a stage and of its side roads come from, a text each."""
    texts = [origin(records, stored.PREDICTED)]
    if names := scripts.side_roads({folder}):
        predicted, measured = side_roads.records(), by_script(read(stored.TINY_SIDE_ROADS)[0])
        texts.append(origin([predicted[name] for name in names], stored.PREDICTED))
        texts.append(origin([measured[name] for name in names], stored.TINY_SIDE_ROADS))
    return texts


def _amounts(phases, key):
    return [amount(phase[key]) for phase in phases]


def _filled(rows):
    return [row for row in rows if {*row[1:]} != {NOTHING}]


def _times(n, phase):
    """Return a record's phase with its sizes multiplied by n."""
    times = {}
    for key, value in phase.items():
        if isinstance(value, dict):  # a breakdown
            times[key] = {label: n * gb for label, gb in value.items()}
        else:
            times[key] = None if value is None else n * value
    return times


def _flop(tflop):
    """Format a number of floating-point operations, given in units of 1e12."""
    return f"{tflop:.2f} TFLOP" if tflop >= 1 else f"{tflop * 1e3:.1f} GFLOP"


def _parts(times):
    """Format the parts of a time, the largest first; those of at most 1% are left out."""
    longest_first = sorted(times.items(), key=lambda part: -part[1])
    least = 0.01 * sum(times.values())
    return ", ".join(f"{name} {duration(t)}" for name, t in longest_first if t > least) or NOTHING


def main(argv=None):
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="such as 06 or 06,08-10")
    args = parser.parse_args(argv)
    chosen = scripts.select(args.stages, "stage") if args.stages else scripts.stages()
    for folder in sorted({scripts.get(name).folder for name in chosen}):
        records = [stored.predictions()[name] for name in pair(ROOT / folder)]
        for heading, *rows in (memory(records), cost(records)):
            print("", *aligned(heading, rows), sep="\n")
        print("", *origins(folder, records), sep="\n")


if __name__ == "__main__":
    main()
