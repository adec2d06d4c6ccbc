"""What a published measurement is, and where it was published."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Row:
    """A published measurement.

    Attributes:
        words: what was trained.
        gb: the published figure, in GB (1e9 bytes); None if there is only a time.
        program: function of a pretend.Pretended.
        counter: "allocated" or "reserved"; None if there is only a time.
        card: name in cards.CARDS.
        torch: (major, minor) of PyTorch.
        devices: how many GPUs.
        read: the name that the program gives the figure.
        ms: published milliseconds per update, if there are any.
    """

    words: str
    gb: float | None
    program: Callable
    counter: str | None = "allocated"
    card: str = "a100"
    torch: tuple = (2, 1)
    devices: int = 1
    read: str = "peak"
    ms: float | None = None


@dataclasses.dataclass(frozen=True)
class Source:
    """Where measurements have been published.

    Attributes:
        title, url: of the source.
        note: what it leaves open, and what was assumed.
        rows: Rows.
        complete: whether model, batch, precision, optimizer and counter are known, and are those
            that are predicted.
        times: what the published times include, and how milliseconds per update follow from them.
    """

    title: str
    url: str
    note: str
    rows: tuple
    complete: bool = True
    times: str = ""
