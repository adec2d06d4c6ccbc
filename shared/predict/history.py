"""Who held memory during one update, event by event, or condensed to what a page can show."""

import numpy as np

from shared.memory.blocks import CATEGORIES
from shared.records.views import on_host

TEXTS = ("category", "module", "shape", "dtype")
POINTS = 300  # of a condensed history: as many as can be told apart on a page


def history(events, phases, since, device):
    """Returns who held memory during the last update, after every event of a ledger's log.

    Args:
        events, phases: of a Ledger; events may have the sizes of blocks, from allocator.replay.
        since: the place in its log at which the update began.
        device: type of the device.

    Returns:
        {"phases": ["forward", "backward" or "step", one per event], "device": GB, (events,
        categories), in the order of CATEGORIES; "host": the same, None on a CPU}.
    """
    column, shape = {label: i for i, label in enumerate(CATEGORIES)}, (len(events), len(CATEGORIES))
    held = {kind: np.zeros(shape, dtype=np.int64) for kind in (device, "cpu")}
    for i, (block, change) in enumerate(events):
        if block.device in held:
            held[block.device][i, column[block.label]] = change
    phases = phases[since:]
    last = max(i for i, phase in enumerate(phases) if phase == "backward")
    # What follows is the step, with zero_grad(), which frees the gradients.
    phases[last + 1 :] = ["step"] * (len(phases) - last - 1)
    sums = {kind: changes.cumsum(0)[since:] / 1e9 for kind, changes in held.items()}
    host = sums["cpu"] if device != "cpu" else None
    return {"phases": phases, "device": sums[device], "host": host}


def condensed(record, moments, watched, largest):
    """Returns about POINTS moments of an update, in a form for JSON.

    The events are divided into stretches. Of each, the moment with most on the device is taken; of
    each run of a line of the script, too; and of all events the one with most on the host.

    Args:
        record: of the prediction.
        moments: what history() returns.
        watched: for each event the module at work, the line of the script that is running, and the
            line that chose it, as Lines() finds them.
        largest: function of moments and "device" or "host", as alive.tensors().

    Returns:
        {"script", "record", "events": how many there were, "at": the number of each moment's
        event, "phases", "modules", "lines" and "chosen": of each moment, "device": {category: MB at
        each moment}, "host": the same, None if the host holds nothing to speak of, "tensors":
        {"device" and "host": what largest() returns, by columns}}. Modules, and texts in columns,
        are numbers of entries in "texts".
    """
    total = moments["device"].sum(1)
    stretches = np.array_split(np.arange(len(total)), min(POINTS, len(total)))
    chosen = {int(stretch[total[stretch].argmax()]) for stretch in stretches}
    if moments["host"] is not None:
        chosen.add(int(moments["host"].sum(1).argmax()))
    lines = [(phase, line) for phase, (_, line, _) in zip(moments["phases"], watched)]
    starts = [i for i in range(len(lines)) if i == 0 or lines[i] != lines[i - 1]]
    for begin, end in zip(starts, [*starts[1:], len(lines)]):
        chosen.add(begin + int(total[begin:end].argmax()))
    at, texts = sorted(chosen), {}
    parts = ["device", "host"] if moments["host"] is not None and on_host(record) else ["device"]

    def number(text):
        return None if text is None else texts.setdefault(text, len(texts))

    def held(part):
        columns = zip(CATEGORIES, moments[part][at].T)
        return {label: [round(float(gb) * 1e3, 2) for gb in c] for label, c in columns if c.any()}

    def packed(rows):
        columns = {key: [row[key] for row in rows] for key in rows[0]}
        return {key: [*map(number, c)] if key in TEXTS else c for key, c in columns.items()}

    return {
        "script": record["script"],
        "record": record,
        "events": len(total),
        "at": at,
        "phases": [moments["phases"][i] for i in at],
        "modules": [number(watched[i][0]) for i in at],
        "lines": [watched[i][1] for i in at],
        "chosen": [watched[i][2] for i in at],
        "device": held("device"),
        "host": held("host") if "host" in parts else None,
        "tensors": {part: packed(largest(at, part)) for part in parts},
        "texts": list(texts),
    }


def expanded(moments):
    """Returns a history of what condensed() returned, with "at", the numbers of the events."""
    zeros, arrays = [0] * len(moments["at"]), {}
    for part in ("device", "host"):
        held = moments[part]
        rows = held and [held.get(label, zeros) for label in CATEGORIES]
        arrays[part] = np.array(rows).T / 1e3 if held else None
    return {"phases": moments["phases"], "at": moments["at"], **arrays}
