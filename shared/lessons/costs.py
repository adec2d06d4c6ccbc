"""The cost of an update, for the pages: counted work, and the least time on a card."""

from shared.lessons.parts import pair
from shared.records import markdown, stored
from shared.records.views import NOTHING, amount, duration, least_ms, unit


def part(folder):
    """Return a table of what an update costs each GPU, beside the one of the stage before."""
    records = [stored.predictions()[name] for name in pair(folder)]
    what, names = unit(records[0]), [r["script"] for r in records]
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
        cost, bound = r["cost"], r["bound"]
        columns.append(
            {
                f"{what}, on all GPUs": str(r["batch_size"]),
                "floating-point operations": flop(cost["tflop"]),
                **{label: amount(cost[key]) for label, key in sizes.items()},
                "operations started": f"{cost['operations']:,}",
                f"**least time, {card}**": f"**{duration(bound['ms'])}**",
                "what bounds it": parts(bound["parts_ms"]),
                "beside it, further streams added up": parts(bound["beside_ms"]),
                f"least time for one of the {what}, on one GPU": duration(least_ms(r)),
            }
        )
    rows = [(label, *(column[label] for column in columns)) for label in columns[0]]
    shown = [row for row in rows if {*row[1:]} != {NOTHING}]
    table = [("for each GPU, in one update", *names), *shown]
    return markdown.text(table, markdown.sources(records, stored.PREDICTED))


def flop(tflop):
    """Format a number of floating-point operations, given in units of 1e12."""
    return f"{tflop:.2f} TFLOP" if tflop >= 1 else f"{tflop * 1e3:.1f} GFLOP"


def parts(times):
    """Format the parts of a time, the largest first; those of at most 1% are left out."""
    longest_first = sorted(times.items(), key=lambda part: -part[1])
    least = 0.01 * sum(times.values())
    return ", ".join(f"{name} {duration(t)}" for name, t in longest_first if t > least) or NOTHING
