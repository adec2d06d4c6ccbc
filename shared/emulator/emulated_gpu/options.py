"""Options that `emulated-gpu run` and `emulated-gpu why` share, and the types of all options."""

import argparse
import os
from pathlib import Path

from emulated_gpu import cards

TOO_MUCH = 3  # the exit code of a program that needs more than --max-gb
MOST = 100_000  # GPUs, or with --alone ranks
SETS_ASIDE = f"what PyTorch reserves, and {cards.CONTEXT_GB} GB for CUDA, with several GPUs "
SETS_ASIDE += f"{cards.NCCL_GB} GB for NCCL"


def devices(text):
    """Return a number of GPUs, or with --alone of ranks."""
    # int() alone would also take texts such as "1_0" and " 1".
    if not text.isdecimal() or not 0 < int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text} is not a number of devices")
    return int(text)


def number(of, example):
    """Return a function that reads a number above 0, at most a million, from a text."""

    def read(text):
        try:
            # "nan" is a float, too, but it is in no range.
            if 0 < float(text) <= 1e6:
                return float(text)
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text} is not a number of {of}, such as {example}")

    return read


def new_file(text):
    """Return the path of a file that can be written; the program may change its folder."""
    path = Path(text).resolve()
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text}: it cannot be written, or has no folder")
    return path


def add_shared(parser, of_devices, of_json):
    """Add the options of both commands, of which these two do not mean quite the same."""
    add = parser.add_argument
    card = f"the GPU: {', '.join(cards.CARDS)}, or an a100 with so many GB (default: a100)"
    most = f"end with exit code {TOO_MUCH} if a card needs more: {SETS_ASIDE}"
    history = "write the allocator's history, for https://pytorch.org/memory_viz"
    add("--card", type=cards.card_or_gb, default=cards.DEFAULT, metavar="NAME|GB", help=card)
    add("--devices", type=devices, metavar="N", help=of_devices)
    add("--max-gb", type=number("GB", 20), metavar="GB", help=most)
    add("--snapshot", type=new_file, metavar="FILE", help=history)
    add("--json", type=new_file, metavar="FILE", help=of_json)


def card_of(args):
    """Return the Card that --card names, and its GB, which may be fewer or more."""
    if isinstance(args.card, float):
        return cards.DEFAULT, args.card
    return args.card, args.card.gb
