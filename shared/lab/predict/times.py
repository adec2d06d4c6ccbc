"""How long an update takes: what the card does, and the host that starts its work.

A record's `time` has {"ms", "busy_ms", "pieces"} of its last update, in the emulator's virtual time
(shared/emulator/README.md): the host starts one piece of work after the other, and each lasts as
long as on the card.
"""

PACED = 0.9  # the card is at work for less of an update: the host sets the pace


def is_paced(time):
    """Return whether the host sets the pace of an update, whose card waits for it."""
    return time["busy_ms"] < PACED * time["ms"]


def line(time, host_us):
    """Return a sentence on the time of an update, beside a host of that pace."""
    about = f"An update takes about {_rounded(time['ms'])} ms"
    works = f"the GPU is at work for {_rounded(time['busy_ms'])}"
    starts = f"the host starts {time['pieces']:,} kernels, {host_us:g} µs each"
    if is_paced(time):
        faster = "larger micro-batches, torch.compile or CUDA graphs start fewer"
        return f"{about}: {starts}, and {works}; {faster}"
    return f"{about}: {works}, {starts}"


def _rounded(ms):
    return f"{ms:,.0f}" if ms >= 10 else f"{ms:.2g}"
