"""The GPUs that can be simulated: what decides how much memory is needed, and how fast they are.

They are in cards.csv. A card's memory is the least that users of Linux have reported of what
PyTorch sees, because drivers differ by a few hundred MiB. Its rates are those of the source in its
row. Where sources differ, it is the higher one, so that the bound stays one; where they have none,
it follows from the multiprocessors, what each does at a tick, and the clock (RTX 3060, RTX 4070 Ti
SUPER). The cache of an H200 is what PyTorch prints of one. A card that clocks higher is faster by a
few percent.
"""

import argparse
import csv
import dataclasses
import operator
from pathlib import Path

import torch
from packaging.version import InvalidVersion, Version

from shared.predict.rates import Rates
from shared.records.views import one_line

GIB = 2**30 / 1e9  # in GB
INSTALLED = Version(torch.__version__).release[:2]  # of PyTorch, (major, minor)
FIRST, LAST = (2, 11), (2, 15)  # whose workspaces are known
RATES = ("fp32", "tf32", "half", "memory", "cache", "host", "gpus")


@dataclasses.dataclass(frozen=True)
class Card:
    """A GPU.

    Attributes:
        title: its name, for people.
        gib: of memory, as PyTorch reports it.
        capability: NVIDIA's number of its architecture, (major, minor):
            https://developer.nvidia.com/cuda-gpus
        multiprocessors: how many it has.
        threads: how many can be resident on each of them.
        rates: rates.Rates, how fast it can be at most; None if that is not known.
    """

    title: str
    gib: float
    capability: tuple
    multiprocessors: int
    threads: int
    rates: Rates | None = None

    @property
    def gb(self):
        """Its memory in GB (1e9 bytes)."""
        return self.gib * GIB

    @property
    def bf16(self):
        """Whether it has instructions for bf16."""
        return self.capability >= (8, 0)

    @property
    def large_blocks(self):
        """Whether a block of threads can share 160 KB and more, as kernels with large tiles need.

        Source: table of compute capabilities in NVIDIA's CUDA C++ Programming Guide.
        """
        return self.capability == (8, 0) or self.capability[0] in (9, 10)


def _read(row):
    capability = tuple(map(int, row["capability"].split(".")))
    built = int(row["multiprocessors"]), int(row["threads"])
    rates = [float(row[name]) if row[name] else None for name in RATES]
    card = Card(row["title"], float(row["gib"]), capability, *built)
    return dataclasses.replace(card, rates=Rates(*rates, bf16=card.bf16))


with Path(__file__).with_name("cards.csv").open(newline="") as file:
    CARDS = {row["name"]: _read(row) for row in csv.DictReader(file)}
DEFAULT = "a100"


def get(name):
    """Returns the card of a name, such as "h100", "H100" or "RTX 4090".

    Raises:
        argparse.ArgumentTypeError: there is none.
    """
    short = name.lower().replace(" ", "")
    if short not in CARDS:
        known = ", ".join(CARDS)
        raise argparse.ArgumentTypeError(
            f"{one_line(name)} is no card that is known; choose from {known}"
        )
    return CARDS[short]


def card_or_gb(text):
    """Returns a size in GB, or the card of a name; raises what get() does."""
    try:
        return float(text)
    except ValueError:
        return get(text)


def version(text):
    """Converts a version of PyTorch, such as "2.11" or "2.11.0", to (major, minor).

    Raises:
        argparse.ArgumentTypeError: it is none, or its workspaces are not known.
    """
    last = max(LAST, INSTALLED)
    try:
        found = Version(text).release[:2]
    except InvalidVersion:
        found = ()
    if not FIRST <= found <= last:
        known = " to ".join(".".join(map(str, v)) for v in (FIRST, last))
        raise argparse.ArgumentTypeError(f"{one_line(text)} is no version from {known}")
    return found


def of_this_machine(properties):
    """Returns the card of a machine that has one.

    Args:
        properties: from torch.cuda.get_device_properties.
    """
    here = Card(
        properties.name.removeprefix("NVIDIA "),
        properties.total_memory / 2**30,
        (properties.major, properties.minor),
        properties.multi_processor_count,
        properties.max_threads_per_multi_processor,
    )
    # Its rates are those of the card that is built like it, and has most nearly its memory.
    shape = operator.attrgetter("capability", "multiprocessors")
    alike = [card for card in CARDS.values() if shape(card) == shape(here)]
    nearest = min(alike, key=lambda card: abs(card.gib - here.gib), default=here)
    return dataclasses.replace(here, rates=nearest.rates)
