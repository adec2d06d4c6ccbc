"""The GPUs that can be emulated, from cards.csv: memory, architecture and highest rates.

A card's memory is the smallest that PyTorch has reported to Linux users, because drivers differ by
a few hundred MiB. Its rates are those of the source in its row. Where sources differ, the higher
rate is used, so that the bound remains a bound; where they give none, it follows from the number of
multiprocessors, what each does per clock cycle, and the clock rate (RTX 3050, 3060, 4070 Ti).
The cache of an H200 has the size that PyTorch prints. A card with a higher clock rate is faster by
a few percent. `fastest` and `slowest` are the least and the largest ratio of published to emulated
times of an update on a card, from the runs in proof/, empty where these are near or none are known.
"""

import argparse
import csv
import dataclasses
import difflib
from pathlib import Path

GIB = 2**30 / 1e9  # in GB
# GB that a CUDA context takes with its kernels, cuBLAS and cuDNN: measured on one H200 after
# attention and a convolution, forward and backward. It was 0.55 before the first kernel, 0.85 with
# all libraries. Others report 0.3 to 0.8 GB, most on the newest cards:
# https://github.com/pytorch/pytorch/pull/86509, https://github.com/Lightning-AI/litgpt/issues/1892.
CONTEXT_GB = 0.74
# GB for the buffers of NCCL: measured with one rank on that GPU. Several ranks were not measured;
# others report 0.5 to 0.7 GB with up to four GPUs, more with more communicators:
# https://github.com/NVIDIA/nccl/issues/964, https://github.com/NVIDIA/nccl/issues/864.
NCCL_GB = 0.59
RATES = ("fp32", "tf32", "half", "memory", "cache", "host", "gpus")


@dataclasses.dataclass(frozen=True)
class Rates:
    """The highest rates of a device."""

    fp32: float  # 1e12 floating-point operations per second in matrix products
    tf32: float | None  # the same with TF32, None if the card does not have it
    half: float  # the same with operands in 16 bits and sums in fp32, without sparsity
    memory: float  # GB per second read from or written to its memory
    cache: float = 0  # MiB of L2 cache
    # GB per second to or from the host: PCIe, without the overhead of packets.
    host: float = float("inf")
    # GB per second from other GPUs: NVLink, or None if they communicate through the host. A bridge
    # between two cards does not count.
    gpus: float | None = None


@dataclasses.dataclass(frozen=True)
class Card:
    """A GPU that can be emulated."""

    title: str  # for display
    name: str  # that CUDA gives it
    gib: float  # GiB of memory, as PyTorch reports it
    capability: tuple  # (major, minor): https://developer.nvidia.com/cuda-gpus
    multiprocessors: int
    threads: int  # resident on each of them at most
    rates: Rates
    took: tuple = (1, 1)  # least and largest ratio of published to emulated times of an update

    @property
    def gb(self):
        """The memory in GB (1e9 bytes)."""
        return self.gib * GIB

    @property
    def bf16(self):
        """Return whether the card has bf16 instructions."""
        return self.capability >= (8, 0)

    @property
    def cycles(self):
        """The clock cycles per ns at its highest rates, of all multiprocessors together.

        A multiprocessor multiplies and adds 64 or 128 numbers in fp32 per cycle:
        https://docs.nvidia.com/cuda/cuda-c-programming-guide/#arithmetic-instructions
        """
        per_cycle = 64 if self.capability in ((6, 0), (7, 0), (7, 5), (8, 0)) else 128
        return self.rates.fp32 * 1e3 / (2 * per_cycle)


def _read(row):
    """Return the card of a row of cards.csv."""
    rates = [float(row[name]) if row[name] else None for name in RATES]
    capability = tuple(map(int, row["capability"].split(".")))
    return Card(
        title=row["title"],
        name=row["cuda_name"],
        gib=float(row["gib"]),
        capability=capability,
        multiprocessors=int(row["multiprocessors"]),
        threads=int(row["threads"]),
        rates=Rates(*rates),
        took=tuple(float(row[name] or 1) for name in ("fastest", "slowest")),
    )


with Path(__file__).with_name("cards.csv").open(newline="") as file:
    CARDS = {row["name"]: _read(row) for row in csv.DictReader(file)}
DEFAULT = CARDS["a100"]


def set_aside(devices):
    """Return the GB outside of PyTorch's allocator, on each card of a program on `devices` GPUs."""
    return CONTEXT_GB + NCCL_GB if devices > 1 else CONTEXT_GB


def groups(count, line=None):
    """Return a line on so many groups of processes, of which the memory of one is counted.

    Most of them were made in a `line` of the script.
    """
    made = f", most of them made in {line}" if line else ""
    return (
        f"{count} groups of processes communicate by NCCL{made}. Each takes memory outside of "
        f"PyTorch's allocator: {NCCL_GB} GB are counted, as of one, and with so much for each it "
        f"would be {(count - 1) * NCCL_GB:.1f} GB more"
    )


def get(name):
    """Return the card of a name, such as "h100", "H100" or "RTX 4090".

    Raises:
        argparse.ArgumentTypeError: there is no such card; the text names those that are.
    """
    key = name.lower().replace(" ", "")
    if key not in CARDS:
        keys = ", ".join(CARDS)
        # People name a card by its number, such as 4090.
        meant = [known for known in CARDS if len(key) > 2 and key in known]
        meant = meant or difflib.get_close_matches(key, CARDS, n=1)
        hint = f"did you mean {meant[0]}?" if meant else f"choose from {keys}"
        raise argparse.ArgumentTypeError(f"{name} is not a known card; {hint}")
    return CARDS[key]


def card_or_gb(text):
    """Return a size in GB, or the card of a name.

    Raises:
        argparse.ArgumentTypeError: it is neither, or a number that only a card can mean.
    """
    is_number = text.replace(".", "", 1).isdecimal()
    if is_number and len(text) > 3 and any(text in key for key in CARDS):
        return get(text)  # 4090 is meant as a name, and get() says which
    if is_number and float(text) > 0:
        return float(text)
    try:
        return get(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; or a number of GB, such as 24") from None


def key_of_this_machine(properties):
    """Return the name in CARDS of this machine's GPU, None if it is not known.

    Args:
        properties: torch.cuda.get_device_properties(); names of a GPU differ between makers.
    """
    capability = (properties.major, properties.minor)
    candidates = [
        key
        for key, card in CARDS.items()
        if card.capability == capability
        and card.multiprocessors == properties.multi_processor_count
    ]
    # An A100 of 40 GB and one of 80 GB, for example, differ in nothing else.
    gib = properties.total_memory / 2**30
    return min(candidates, key=lambda key: abs(CARDS[key].gib - gib), default=None)
