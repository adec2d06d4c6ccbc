"""Data loaders: each process gets its share of every batch, in a fixed order; a cache of files."""

import dataclasses
import itertools
import math
import os
import shutil
from pathlib import Path
from urllib.error import URLError

import torch
import torch.distributed as dist
from filelock import FileLock
from torch.utils.data import DataLoader, DistributedSampler

from shared.run.errors import UserError

SPLIT_SEED = 0  # the split into training, validation and test sets does not depend on --seed
NO_NETWORK = (URLError, ConnectionError, TimeoutError)


def made_once(name, make):
    """Return a file or folder of the cache; if it does not exist, let make(part) write it.

    It is renamed when it is complete; other processes wait. Emulated GPUs use a separate folder.
    """
    folder = "memory-ladder" + os.environ.get("EMULATED_FOLDER", "")  # those files lack values
    path = Path(torch.hub.get_dir()).parent / folder / name  # TORCH_HOME, or its default
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            part = path.with_name(f"{path.name}.part")
            shutil.rmtree(part, ignore_errors=True)  # left by an interrupted process
            make(part)
            os.replace(part, path)
    return path


def fake_sizes(args):
    """Return the numbers of examples in fake data: to train, validate and test with."""
    # Three whole batches of any size, as --dry-run and predictions train for three updates.
    return max(4096, 3 * getattr(args, "batch_size", 0)), 256, 256


def split(n, fractions):
    """Return the indices of n examples, shuffled, in parts of these fractions of n."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(SPLIT_SEED)).tolist()
    ends = [0, *(round(n * end) for end in itertools.accumulate(fractions))]
    parts = [order[a:b] for a, b in zip(ends, ends[1:])]
    if not all(parts):
        raise UserError(f"--data: {n} examples are too few to train, validate and test with")
    return parts


def check_classes(data, n, train, *others):
    """Raise UserError if the classes of n training examples, or of other parts, are not usable."""
    if not 2 <= len(train) <= max(n // 2, 2) or any(classes != train for classes in others):
        usable = "two classes or more, not one for each example, and the same in all parts"
        raise UserError(f"--data {data}: there must be {usable}; there are {len(train)} in train")


def this_process(args):
    """Return the rank of this process and the index of its share of a batch.

    With tensor, context or pipeline parallelism, several ranks have the same share.
    """
    rank = dist.get_rank() if dist.is_initialized() else 0
    return rank, rank * args.shares // args.world_size


class Order(DistributedSampler):
    """A sampler of the examples of this process; the order depends on seed and epoch alone.

    Share r of n takes every n-th example. The next pass skips the first `start` examples. With
    `with_epoch`, it yields (epoch, position), since persistent workers keep a copy of the data set.
    """

    def __init__(self, examples, args, shuffle, with_epoch):
        share = this_process(args)[1]
        super().__init__(examples, args.shares, share, shuffle=shuffle, seed=args.seed)
        self.with_epoch, self.start = with_epoch, 0

    def set_epoch(self, epoch):
        """Set the epoch, but never to an earlier one: after --resume, Fabric counts from 0."""
        self.epoch = max(self.epoch, epoch)

    def __iter__(self):
        left_out, self.start = self.start, 0
        positions = itertools.islice(super().__iter__(), left_out, None)
        return zip(itertools.repeat(self.epoch), positions) if self.with_epoch else positions


@dataclasses.dataclass(frozen=True)
class Loaders:
    """The data loaders of this process, with facts about the data and the run.

    `classes` are names, or None for next-token prediction; only texts have `config` and
    `tokenizer`. `epochs` is the number of passes over the training data that the run begins.
    """

    train: DataLoader
    val: DataLoader
    test: DataLoader
    dataset: str  # its name, for the record
    classes: list | None
    epochs: int
    updates: int  # of the whole run
    cropped: bool = False  # pictures are resized to more than the model takes, then cropped
    config: object = None  # transformers.PreTrainedConfig for these classes and this padding
    tokenizer: object = None  # None for fake texts

    @property
    def parts(self):
        """The three loaders, in the order of the names above."""
        return self.train, self.val, self.test

    def start_epoch(self, loader, epoch, steps):
        """Set a loader's next pass to the rest of an epoch; return its updates done and left.

        Args:
            loader: the training loader, maybe in Fabric's wrapper.
            epoch: counted from 0.
            steps: updates of the run so far, over all epochs.
        """
        done = max(steps - epoch * len(loader), 0)  # in this epoch, before --resume
        left = max(min(len(loader) - done, self.updates - steps), 0)
        loader.sampler.set_epoch(epoch)
        loader.sampler.start = done * loader.batch_size
        return done, left


def loaders(args, sets, dataset, classes, collate_fn=None, slow=False, **known):
    """Return Loaders of three data sets, the first of them shuffled.

    The k-th batches of all shares together are the k-th batch of a single process. A last training
    batch with fewer examples than devices in a share is dropped.

    The sets are those for training, validation and testing; dataset, classes and known are fields
    of Loaders. If the examples are slow to make, worker processes make them.
    """
    workers = min(max(os.cpu_count() // args.devices, 1), 16) if slow else 0
    # A part of a pipeline would have no image.
    too_few = 0 < len(sets[0]) % args.batch_size < args.world_size // args.shares
    parts = [
        DataLoader(
            part,
            batch_size=args.batch_size // args.shares,
            sampler=Order(part, args, part is sets[0], slow and part is sets[0]),
            # Each pass draws a seed. From the global generator, that would change dropout's masks.
            generator=torch.Generator().manual_seed(args.seed),
            drop_last=part is sets[0] and too_few,
            collate_fn=collate_fn,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=args.accelerator == "cuda",
        )
        for part in sets
    ]
    updates = min(args.epochs * len(parts[0]), args.max_steps or math.inf)
    epochs = math.ceil(updates / len(parts[0]))
    return Loaders(*parts, dataset, classes, epochs, updates, **known)
