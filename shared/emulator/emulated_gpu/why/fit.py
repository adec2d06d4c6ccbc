"""The memory of a card that a script needs, by its record."""

from emulated_gpu.cards import NCCL_GB, set_aside
from emulated_gpu.why import pace

# What a network with convolutions may reserve beyond its prediction, by cuDNN's workspaces: the
# most of twelve on one H200 from which no rule was made (proof/sources.toml). All cards have its
# rules.
CUDNN = 0.067
OPEN_GB = 2  # to spare; with less, it is open whether something fits
PLENTY_GB = 4000  # a card that everything fits on; expandable segments reserve addresses for it
TIGHTLY = "tightly: PyTorch has to give idle memory back, which takes time"


def needs(record):
    """Return the GB of a card that a script needs; if ranks share the card, of all of them."""
    # Between loading and training, PyTorch's cache is emptied, so the larger one counts.
    of_training = pace.bounds(record, "device_reserved_gb")
    reserved = max(record["load"]["device_reserved_gb"], *of_training, after_evaluation(record))
    return (reserved + set_aside(record["world_size"])) * record.get("ranks_on_card", 1)


def after_evaluation(record):
    """Return the GB in use at the end of an evaluation that keeps what it computes, else 0.

    Where the last batch is joined to all before, they are in memory twice.
    """
    kept = record.get("evaluation")
    if not kept or not kept["batches"]:
        return 0
    left = kept["left_gb"] + kept["gb"] * (kept["batches"] - kept["seen"])
    return left + kept["joined_gb"] * kept["batches"]


def is_before_training(record):
    """Return whether a script needs more before it trains, as where it evaluates first."""
    return record["load"]["device_peak_gb"] > record["train"]["device_peak_gb"]


def of_groups(record):
    """Return the GB that all groups of processes but one would take, with NCCL_GB for each."""
    return (max(record["groups"], 1) - 1) * NCCL_GB


def outgrows(record, gb):
    """Return whether an evaluation that joins batch after batch fills a card of so many GB.

    Each result is larger than what was freed before, so all this idle memory is of no use to it.
    """
    kept = record.get("evaluation")
    return bool(kept and kept["batches"]) and kept["joined_gb"] * kept["batches"] ** 2 / 2 > gb
