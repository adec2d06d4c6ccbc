"""The GPUs that can be simulated, and what of them decides how much memory is needed."""

import argparse
import dataclasses
import operator

import torch

from shared.common.options import number
from shared.predict.rates import OF_CARDS, Rates
from shared.records.units import one_line

GIB = 2**30 / 1e9  # in GB
# Of PyTorch, (major, minor).
INSTALLED = tuple(int(n) for n in torch.__version__.split(".")[:2])
FIRST, LAST = (2, 11), (2, 15)  # whose workspaces are known


@dataclasses.dataclass(frozen=True)
class Card:
    """A GPU.

    Attributes:
        title: its name, for people.
        gib: of memory, as PyTorch reports it; the least that users of Linux have reported, because
            drivers differ by a few hundred MiB.
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


_ALL = {
    "v100": Card("V100 16 GB", 15.75, (7, 0), 80, 2048),
    "v100-32": Card("V100 32 GB", 31.73, (7, 0), 80, 2048),
    "t4": Card("T4", 14.56, (7, 5), 40, 1024),
    "a100": Card("A100 80 GB", 79.14, (8, 0), 108, 2048),
    "a100-40": Card("A100 40 GB", 39.38, (8, 0), 108, 2048),
    "a10": Card("A10", 21.98, (8, 6), 72, 1536),
    "a10g": Card("A10G", 21.98, (8, 6), 80, 1536),
    "a6000": Card("RTX A6000", 47.43, (8, 6), 84, 1536),
    "rtx3060": Card("RTX 3060 12 GB", 11.63, (8, 6), 28, 1536),
    "rtx3080": Card("RTX 3080 10 GB", 9.62, (8, 6), 68, 1536),
    "rtx3090": Card("RTX 3090", 23.56, (8, 6), 82, 1536),
    "l4": Card("L4", 21.96, (8, 9), 58, 1536),
    "l40s": Card("L40S", 44.39, (8, 9), 142, 1536),
    "rtx4070tis": Card("RTX 4070 Ti SUPER", 15.56, (8, 9), 66, 1536),
    "rtx4080": Card("RTX 4080", 15.67, (8, 9), 76, 1536),
    "rtx4090": Card("RTX 4090", 23.51, (8, 9), 128, 1536),
    "rtx6000ada": Card("RTX 6000 Ada", 47.37, (8, 9), 142, 1536),
    "h100": Card("H100 80 GB", 79.10, (9, 0), 132, 2048),
    "h100-pcie": Card("H100 PCIe 80 GB", 79.11, (9, 0), 114, 2048),
    "h200": Card("H200", 139.72, (9, 0), 132, 2048),
    "b200": Card("B200", 178.35, (10, 0), 148, 2048),
    "rtx5090": Card("RTX 5090", 31.34, (12, 0), 170, 1536),
}
CARDS = {name: dataclasses.replace(card, rates=OF_CARDS[name]) for name, card in _ALL.items()}
DEFAULT = "a100"


def get(name):
    """Returns the card of a name, such as "h100", "H100" or "RTX 4090".

    Raises:
        argparse.ArgumentTypeError: there is none.
    """
    short = name.lower().replace(" ", "")
    if short not in CARDS:
        raise argparse.ArgumentTypeError(
            f"{one_line(name)} is no card that is known; choose from {', '.join(CARDS)}"
        )
    return CARDS[short]


def card_or_gb(text):
    """Returns a size in GB, or the card of a name.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    try:
        float(text)
    except ValueError:
        return get(text)
    return number(text)


def version(text):
    """Converts a version of PyTorch, such as "2.11" or "2.11.0", to (major, minor).

    Raises:
        argparse.ArgumentTypeError: it is none, or its workspaces are not known.
    """
    parts = text.split(".")
    known = len(parts) > 1 and all(part.isdecimal() for part in parts)
    found = tuple(int(part) for part in parts[:2]) if known else None
    if not known or not FIRST <= found <= max(LAST, INSTALLED):
        first, last = (".".join(map(str, v)) for v in (FIRST, max(LAST, INSTALLED)))
        raise argparse.ArgumentTypeError(f"{one_line(text)} is no version from {first} to {last}")
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
