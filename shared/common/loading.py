"""The loader that every script uses: this process' share of every batch, in a fixed order."""

import math
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

SPLIT_SEED = 0  # which examples are for testing does not depend on --seed


def set_updates(args, per_epoch):
    """Fills in args.updates and args.epochs.

    args.updates is the number of updates in the whole training, after --epochs or --max-steps;
    args.epochs, as many as these updates need.
    """
    args.updates = min(args.epochs * per_epoch, args.max_steps or math.inf)
    args.epochs = math.ceil(args.updates / per_epoch)


def loader(args, examples, shuffle, collate_fn=None, from_files=False):
    """Returns a DataLoader of this process' share of a data set.

    A batch of it has args.batch_size // args.world_size examples. The k-th batches of all processes
    together hold the same examples as the k-th batch of a single process.

    Args:
        examples: torch.utils.data.Dataset.
        shuffle: whether each epoch has an order of its own, which depends on args.seed.
        collate_fn: as DataLoader takes it.
        from_files: whether examples are read from files, which takes so long that worker processes
            do it.
    """
    # With one process, a DistributedSampler is a shuffle that depends on seed and epoch alone. Rank
    # r of n takes every n-th index, so the batches of n processes together are the batch of one.
    parallel = dist.is_available() and dist.is_initialized()
    sampler = DistributedSampler(
        examples,
        num_replicas=dist.get_world_size() if parallel else 1,
        rank=dist.get_rank() if parallel else 0,
        shuffle=shuffle,
        seed=args.seed,
    )
    return DataLoader(
        examples,
        batch_size=args.batch_size // args.world_size,
        sampler=sampler,
        # For random crops. The global generator will not do, because stages use it differently.
        generator=torch.Generator().manual_seed(args.seed),
        collate_fn=collate_fn,
        num_workers=min(4, os.cpu_count()) if from_files else 0,
        pin_memory=args.accelerator == "cuda",
    )
