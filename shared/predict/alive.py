"""Which tensors are alive at a moment: for each category, the largest ones."""

import heapq

LARGEST = 10  # of each category, at each moment


def tensors(events, since, at, device, count=LARGEST):
    """Returns the tensors that are among the largest of their category at one of some moments.

    Args:
        events: of a Ledger, from its beginning, with the sizes to tell.
        since: the place in the log from which moments count.
        at: the moments, in order: after which events.
        device: the type of the device that the tensors are on.
        count: how many of a category.

    Returns:
        a list of dictionaries, oldest first: "category", "nbytes", "born" and "freed", the
        moments at which it appears and is gone, counted from since (freed is None if it stays),
        "module", "shape" such as "64 × 197 × 1024", and "dtype". The latter three are None where
        nothing is known of them.
    """
    moments = {since + moment for moment in at}
    alive, found, freed = {}, {}, {}  # {category: {block: (nbytes, -born)}}, {block: the same}
    for i, (block, change) in enumerate(events):
        if block.device != device or not block.nbytes:
            continue
        if change > 0:
            alive.setdefault(block.label, {})[block] = change, -i
        else:
            alive[block.label].pop(block)
            freed[block] = i
        if i in moments:
            for those in alive.values():
                found |= {its: those[its] for its in heapq.nlargest(count, those, key=those.get)}
    told = sorted(found.items(), key=lambda pair: -pair[1][1])
    return [
        {
            "category": block.label,
            "nbytes": nbytes,
            "born": max(-born - since, 0),
            "freed": freed[block] - since if block in freed else None,
            "module": block.name or block.module,
            "shape": block.shape and " × ".join(map(str, block.shape)),
            "dtype": block.dtype and str(block.dtype).removeprefix("torch."),
        }
        for block, (nbytes, born) in told
    ]
