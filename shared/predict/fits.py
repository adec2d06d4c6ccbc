"""How many images or texts at once fit into a card's memory, found by simulating updates."""

from shared.predict import allocator, tables
from shared.predict.simulation import predicted

MOST = 1_000_000  # images at once; the search ends here


def with_fits(script, options, card_gb):
    """Returns a prediction, with "fits": whether a card holds it, and the largest micro-batch.

    A stage without micro-batches takes its batch at once. The others get a batch of at least two
    micro-batches for every process, so that the gradients of the first exist during the forward
    pass of the second.

    Args:
        script, options: as of simulation.predict().
        card_gb: the card's memory, in GB.

    Raises:
        UserError: the script cannot do this.
    """
    record, simulation, _ = predicted(script, options)
    args, left, needs = simulation.args, card_gb - tables.allowance(record), tables.needs(record)
    micro = args.micro_batch_size

    def reserved(n):
        least = n * args.shares * (2 if micro else 1)
        batch_size = max(least, args.batch_size) if micro else least
        return needed(simulation, batch_size, micro and n, options.updates)

    largest = 0
    if record["load"]["device_reserved_gb"] <= left:
        largest = search(reserved, left, micro or args.batch_size // args.shares)
    fits = {"card_gb": card_gb, "needs_gb": needs, "fits": needs <= card_gb}
    return {**record, "fits": {**fits, "largest_micro_batch": largest}}


def with_way(script, options, card_gb, batch_size):
    """Returns a prediction, with "way": the fastest of its script to a batch size on a card.

    Args:
        script, options, card_gb: as of with_fits().
        batch_size: images or texts per update, over all devices.

    Raises:
        UserError: the script cannot do this.
    """
    record, simulation, _ = predicted(script, options)
    args, left = simulation.args, card_gb - tables.allowance(record)
    share, micro = max(batch_size // args.shares, 1), args.micro_batch_size
    most = min(options.micro_batch_size or share, share)
    load, train = (record[phase]["device_reserved_gb"] for phase in ("load", "train"))
    found = {}  # GB reserved, and the bound, with n at once
    if batch_size == args.batch_size:
        found[min(micro or share, share)] = train, record["bound"]

    def reserved(n):
        if n not in found:
            gb = needed(simulation, batch_size, micro and n)
            found[n] = gb, simulation.costs()["bound"]
        return found[n][0]

    if micro:
        at_once = search(reserved, left, most, most)
    else:
        at_once = share if reserved(share) <= left else 0
    missing = "bf16" if "bf16" in args.precision and not simulation.card.bf16 else None
    gb, bound = found[at_once or min(found)]
    way = {
        "card_gb": card_gb,
        "needs_gb": max(load, gb) + tables.allowance(record),
        "world_size": record["world_size"],
        "batch_size": batch_size,
        "share": share,
        "at_once": at_once if load <= left and not missing else 0,
        "missing": missing,
        "bound": bound,
        "techniques": list(options.techniques or ()),
    }
    return {**record, "way": way}


def needed(simulation, batch_size, micro_batch_size, updates=None):
    """Returns the GB that are reserved if a simulated training began anew, with other sizes.

    Args:
        simulation, batch_size, micro_batch_size, updates: as of Simulation.run().
    """
    several = isinstance(simulation.optimizer, list)
    for optimizer in simulation.optimizer if several else [simulation.optimizer]:
        optimizer.state.clear()
    if simulation.workspaces:
        simulation.workspaces.forget()
    start = len(simulation.ledger.events)
    simulation.run(batch_size, micro_batch_size, updates)
    events = simulation.ledger.events[: simulation.loaded] + simulation.ledger.events[start:]
    return allocator.replay(events, simulation.device.type, simulation.loaded)[0] / 1e9


def search(needed, budget, guess, most=MOST):
    """Returns the largest n from 1 to most with needed(n) <= budget, 0 if there is none.

    The search follows the line through the last two points, because needed is nearly linear. If
    that takes long, it halves the interval instead.

    Args:
        needed: function of n.
        budget: in the same unit.
        guess: the first n to try.
        most: where the search ends.
    """
    fits, too_many, points = 0, None, []
    while fits < most and (too_many is None or too_many - fits > 1):
        points.append((guess, needed(guess)))
        if points[-1][1] <= budget:
            fits = guess
        else:
            too_many = guess
        if len(points) == 1:
            guess = 2 * fits if fits else guess // 2
        elif too_many and len(points) > 8:
            guess = (fits + too_many) // 2
        else:
            (a, needs_a), (b, needs_b) = points[-2:]
            slope = max((needs_b - needs_a) / (b - a), 1e-9)
            guess = min(int(b + (budget - needs_b) / slope), 32 * b)
        guess = min(max(guess, fits + 1), too_many - 1 if too_many else most)
    return fits
