"""Who held memory during one update, event by event, or condensed to what a page can show."""

import numpy as np

from shared.memory.ledger import CATEGORIES

POINTS = 200  # of a condensed history: as many as can be told apart on a page


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
    column = {label: i for i, label in enumerate(CATEGORIES)}
    shape = (len(events), len(CATEGORIES))
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


def condensed(record, moments):
    """Returns about POINTS moments of an update, in a form for JSON.

    The events are divided into stretches. Of each, the moment with most on the device is taken, and
    of all events the one with most on the host.

    Args:
        record: of the prediction.
        moments: what history() returns.

    Returns:
        {"script", "git_commit", "events": how many there were, "at": the number of each moment's
        event, "phases": of each moment, "device": {category: MB at each moment}, "host": the same,
        None on a CPU}.
    """
    total = moments["device"].sum(1)
    stretches = np.array_split(np.arange(len(total)), min(POINTS, len(total)))
    chosen = {int(stretch[total[stretch].argmax()]) for stretch in stretches}
    if moments["host"] is not None:
        chosen.add(int(moments["host"].sum(1).argmax()))
    at = sorted(chosen)

    def held(part):
        if moments[part] is None:
            return None
        columns = zip(CATEGORIES, moments[part][at].T)
        return {label: [round(float(gb) * 1e3, 2) for gb in c] for label, c in columns if c.any()}

    return {
        "script": record["script"],
        "git_commit": record["git_commit"],
        "events": len(total),
        "at": at,
        "phases": [moments["phases"][i] for i in at],
        "device": held("device"),
        "host": held("host"),
    }


def expanded(moments):
    """Returns a history made from what condensed() returned.

    It has one entry more, "at": the numbers of the events.
    """
    zeros = [0] * len(moments["at"])
    arrays = {}
    for part in ("device", "host"):
        held = moments[part]
        rows = held and [held.get(label, zeros) for label in CATEGORIES]
        arrays[part] = np.array(rows).T / 1e3 if held else None
    return {"phases": moments["phases"], "at": moments["at"], **arrays}
