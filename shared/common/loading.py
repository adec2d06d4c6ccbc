"""The loader that every script uses: this process' share of every batch, in a fixed order."""

import itertools
import math
import os
import shutil

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

SPLIT_SEED = 0  # which examples are for testing does not depend on --seed
MOST_WORKERS = 16  # per device; each holds a few batches
SHARED_MEMORY = "/dev/shm"


def set_updates(args, per_epoch):
    """Fills in args.updates and args.epochs.

    args.updates is the number of updates in the whole training, after --epochs or --max-steps;
    args.epochs, as many as these updates need.
    """
    args.updates = min(args.epochs * per_epoch, args.max_steps or math.inf)
    args.epochs = math.ceil(args.updates / per_epoch)


class Order(DistributedSampler):
    """Which examples this process takes, and in which order; with shuffling, each epoch's own.

    The order depends on seed and epoch alone. Share r of n takes every n-th example, so the batches
    of n shares together are the batch of one process.

    Attributes:
        epoch: the epoch of the next pass, from 0.
        start: how many batches the next pass leaves out at its beginning, without reading them;
            0 again as soon as that pass has begun.
    """

    def __init__(self, examples, batch_size, shuffle, seed, with_epoch=False, shares=None):
        """Chooses the order.

        Args:
            examples: torch.utils.data.Dataset.
            batch_size: examples per batch of this process.
            shuffle: whether the order is another one in each epoch.
            seed: for shuffling.
            with_epoch: whether to yield (epoch, position) in place of positions, for examples that
                are not the same in every epoch. They may be read by processes that go on from one
                epoch to the next, so this is how they learn of it.
            shares: as this_share takes it.
        """
        share, shares = this_share(shares)
        super().__init__(examples, shares, share, shuffle=shuffle, seed=seed)
        self.batch_size, self.with_epoch, self.start = batch_size, with_epoch, 0

    def set_epoch(self, epoch):
        """Goes on to an epoch, never back: after a resumption, Fabric counts from 0 again."""
        self.epoch = max(self.epoch, epoch)

    def __iter__(self):
        left_out, self.start = self.start * self.batch_size, 0
        positions = itertools.islice(super().__iter__(), left_out, None)
        return zip(itertools.repeat(self.epoch), positions) if self.with_epoch else positions


def this_process():
    """Returns the rank of this process, and how many processes train together."""
    parallel = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if parallel else (0, 1)


def this_share(shares=None):
    """Returns which share of every batch this process computes with, and how many there are.

    Args:
        shares: how many; None for one for each process. With fewer, neighbours have the same.
    """
    rank, processes = this_process()
    shares = shares or processes
    return rank * shares // processes, shares


def loader(args, examples, shuffle, collate_fn=None, slow_nbytes=None, with_epoch=False):
    """Returns a DataLoader of this process' share of a data set; its sampler is an Order.

    A batch of it has args.batch_size // args.shares examples. The k-th batches of all shares
    together hold the same examples as the k-th batch of a single process.

    Args:
        examples: torch.utils.data.Dataset.
        shuffle: whether each epoch has an order of its own, which depends on args.seed.
        collate_fn: as DataLoader takes it.
        slow_nbytes: where preparing examples takes so long that worker processes do it, bytes per
            example.
        with_epoch: as Order takes it.
    """
    batch_size = args.batch_size // args.shares
    workers = worker_processes(args.devices, batch_size * slow_nbytes) if slow_nbytes else 0
    return DataLoader(
        examples,
        batch_size=batch_size,
        sampler=Order(examples, batch_size, shuffle, args.seed, with_epoch, args.shares),
        # From which a loader draws a number that nothing here depends on. It would otherwise draw
        # from the global generator, on which dropout depends.
        generator=torch.Generator().manual_seed(args.seed),
        collate_fn=collate_fn,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=args.accelerator == "cuda",
    )


def worker_processes(devices, batch_nbytes):
    """Returns how many processes prepare the batches of each of some devices of this machine.

    Args:
        devices: how many there are.
        batch_nbytes: size of a batch, in bytes.
    """
    # Where it can be asked, the cores that this process may use; a job may have been given a few.
    allowed = getattr(os, "sched_getaffinity", None)
    cores = len(allowed(0)) if allowed else os.cpu_count()
    wanted = min(max(cores // devices, 1), MOST_WORKERS)
    # Batches come through this folder, which in a container is often small. What is more than fits
    # ends the worker ("Bus error"). Each has two batches ready, and one is in use.
    if os.path.isdir(SHARED_MEMORY):
        room = shutil.disk_usage(SHARED_MEMORY).free // devices
        wanted = min(wanted, max(room // (2 * batch_nbytes) - 1, 0))
    return wanted
