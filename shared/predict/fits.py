"""How large a micro-batch fits into a card's memory, found by simulating updates."""

import torch

from shared.predict import allocator
from shared.predict.simulation import Simulation


def largest_micro_batch(run, options, budget_gb):
    """Returns how many images or texts per forward pass and process fit into a budget.

    It is 0 if not even one fits. A stage without micro-batches takes its batch at once. The others
    get a batch of at least two micro-batches for every process, so that the gradients of the first
    exist during the forward pass of the second.

    Args:
        run, options: as for simulation.predict.
        budget_gb: GB that the allocator may reserve.

    Raises:
        UserError: the stage cannot do this.
    """
    torch.set_num_threads(1)
    simulation = Simulation(run, options)
    args = simulation.args
    if simulation.peaks(0, simulation.loaded)[0]["device_reserved_gb"] > budget_gb:
        return 0

    def trial(n):
        least = n * args.shares * (2 if args.micro_batch_size else 1)
        batch_size = max(least, args.batch_size) if args.micro_batch_size else least
        return needed(simulation, batch_size, args.micro_batch_size and n, options.updates)

    return search(trial, budget_gb, args.micro_batch_size or args.batch_size // args.shares)


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


MOST = 1_000_000  # images at once; the search ends here


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
        guess = min(max(guess, fits + 1), most)
        guess = min(guess, too_many - 1) if too_many else guess
        guess = max(guess, 1)
    return fits
