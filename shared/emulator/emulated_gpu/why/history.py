"""The history of the memory during one update, condensed for display on a page.

It needs no NumPy, which PyTorch does not need either.
"""

import heapq
import itertools

from emulated_gpu.accounting.blocks import CATEGORIES

TEXTS = ("category", "module", "shape", "dtype")
POINTS = 300  # moments in a condensed history: as many as a page can resolve
LARGEST = 10  # tensors of each category, at each moment


def condensed(record, trace, since, end):
    """Return about POINTS moments of the last update, in a form for JSON.

    Its events, from `since` to `end` in a Trace, are divided into stretches. The moment of each
    with the most on the device is kept, also that of each run of one line of the script.

    Return {"script", "record", "events": their number, "at": the event number of each moment,
    "phases", "modules", "lines" and "chosen": of each moment, "device": {category: MB at each
    moment}, "tensors": {"device": what tensors() returns, as columns}}. Modules, and texts in
    columns, are indexes into "texts".
    """
    events = trace.events[:end]
    texts = {}  # {text: its index}
    phases = trace.phases[since:end]
    watched = trace.watched[since:end]
    backward = (i for i, phase in enumerate(phases) if phase == "backward")
    last = max(backward, default=len(phases) - 1)  # a script may compute gradients by itself
    # What follows is the optimizer step, and zero_grad(), which frees the gradients.
    phases[last + 1 :] = ["step"] * (len(phases) - last - 1)
    total = [*itertools.accumulate(change for _, change in events)][since:]
    # The highest moment of each stretch is kept, so that no peak is lost.
    many = min(POINTS, len(total))
    size, rest = divmod(len(total), many)
    ends = [size * i + min(i, rest) for i in range(many + 1)]
    lines = [(phase, line) for phase, (_, line, _) in zip(phases, watched)]
    # Short runs of a line, such as zero_grad(), would be lost in a stretch.
    starts = [i for i in range(1, len(lines)) if lines[i] != lines[i - 1]]
    stretches = [*zip(ends, ends[1:]), *zip([0, *starts], [*starts, len(total)])]
    at = sorted({max(range(*stretch), key=total.__getitem__) for stretch in stretches})

    # Texts repeat in thousands of rows, so each is stored once.
    def number(text):
        return None if text is None else texts.setdefault(text, len(texts))

    def packed(rows):
        columns = {key: [row[key] for row in rows] for key in rows[0]}
        return {key: [*map(number, c)] if key in TEXTS else c for key, c in columns.items()}

    return {
        "script": record["script"],
        "record": record,
        "events": len(total),
        "at": at,
        "phases": [phases[i] for i in at],
        "modules": [number(watched[i][0]) for i in at],
        "lines": [watched[i][1] for i in at],
        "chosen": [watched[i][2] for i in at],
        "device": _held(events, since, at),
        "tensors": {"device": packed(tensors(events, since, at))},
        "texts": list(texts),
    }


def _held(events, since, at):
    """Return {category: MB at each moment}, of the categories that hold any."""
    now = dict.fromkeys(CATEGORIES, 0)
    held = {label: [] for label in CATEGORIES}
    moments = {since + moment for moment in at}
    for i, (block, change) in enumerate(events):
        now[block.label] += change
        if i in moments:
            for label, column in held.items():
                column.append(now[label])

    def mb(column):
        return [round(nbytes / 1e9 * 1e3, 2) for nbytes in column]

    return {label: mb(column) for label, column in held.items() if any(column)}


def tensors(events, since, at, count=LARGEST):
    """Return the tensors that are among the `count` largest of their category at some moment.

    They are dictionaries, oldest first: "born" and "freed" are the events at which a tensor is
    allocated and freed (None if it stays). Values that are not known are None, too.
    """
    moments = {since + moment for moment in at}
    alive = {}  # {category: {block: (nbytes, -born)}}
    largest = {}  # {block: (nbytes, -born)}
    freed = {}  # {block: the index of an event}
    for i, (block, change) in enumerate(events):
        if not block.nbytes:  # it cannot be among the largest
            continue
        if change > 0:
            alive.setdefault(block.label, {})[block] = change, -i
        else:
            alive[block.label].pop(block)
            freed[block] = i
        if i in moments:
            for blocks in alive.values():
                most = heapq.nlargest(count, blocks, key=blocks.get)
                largest |= {block: blocks[block] for block in most}
    oldest_first = sorted(largest.items(), key=lambda pair: -pair[1][1])
    return [
        {
            "category": block.label,
            "nbytes": nbytes,
            "born": max(-minus_born - since, 0),
            "freed": freed[block] - since if block in freed else None,
            "module": block.name or block.module,
            "shape": block.shape and " × ".join(map(str, block.shape)),
            "dtype": block.dtype and str(block.dtype).removeprefix("torch."),
        }
        for block, (nbytes, minus_born) in oldest_first
    ]
