"""The duration of an update on a card, with the host that starts the card's work.

A record's `time` has {"ms", "busy_ms", "pieces"} of its last update, in the emulator's virtual time
(this package's README): the host starts one piece of work after the other, and each lasts as
long as on the card.
"""

PACED = 0.9  # the card is at work for less of an update: the host sets the pace
# Errors of emulated times, beside the host that is assumed, within which half and nine of ten are:
# of all runs that were kept apart from the rules (proof/sources.toml). Pages take them from here.
OFF = 0.29, 0.4
MANY = 100_000  # inputs, whose time tells how long a training takes


def is_paced(time):
    """Return whether the host sets the pace of an update, whose card waits for it."""
    return time["busy_ms"] < PACED * time["ms"]


def line(r, host_us, card):
    """Return a sentence on the time of an update on a card, beside a host of that pace.

    It has a range if emulated times of published runs on such a card were not near.
    """
    time = r["time"]
    low, high = (_rounded(time["ms"] * factor) for factor in card.took)
    about = f"An update takes {low} to {high} ms"
    if low == high:
        near = f"half of such times are within {OFF[0]:.0%}, nine of ten within {OFF[1]:.0%}"
        about = f"An update takes about {low} ms ({near})"
    if r["world_size"] > 1:  # what it waits for is not in it
        about = f"An update takes at least {low} ms"
    elif r["batch_size"]:
        minutes = MANY / r["batch_size"] * time["ms"] / 6e4
        per, unit = (60, "hours") if minutes >= 120 else (1, "minutes")
        long = [_rounded(minutes / per * factor) for factor in card.took]
        about += f", so {MANY:,} {r['unit']} take {' to '.join(dict.fromkeys(long))} {unit}"
    works = f"the GPU is at work for {_rounded(time['busy_ms'])}"
    starts = f"the host starts {time['pieces']:,} kernels, {host_us:g} µs each"
    if is_paced(time):
        faster = "larger micro-batches, torch.compile or CUDA graphs start fewer"
        return f"{about}: {starts}, and {works}; {faster}"
    return f"{about}: {works}, {starts}"


def note(card):
    """Return a sentence on emulated times of a card, None if they are near published times."""
    low, high = card.took
    if low == high:
        return None
    took = f"{low:.2g} to {high:.2g} times as long as emulated"
    return f"Runs that were timed on one {card.title} took {took}."


def _rounded(ms):
    return f"{ms:,.0f}" if ms >= 10 else f"{ms:.2g}"
