"""Context parallelism: each device has a part of the tokens of every text."""

import functools
import logging

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from shared.cli import UserError

# On a CPU, DTensor gathers everything in place of an exchange, and each process says so.
logging.getLogger("torch.distributed.tensor._collective_utils").setLevel(logging.ERROR)


def own(tokens, labels):
    """Return the part of this device: tokens, with their positions in the texts, and labels.

    Args:
        tokens: {"input_ids": (texts, tokens)}.
        labels: (texts, tokens).

    Raises:
        UserError: the devices do not divide the number of tokens.
    """
    ids, n = tokens["input_ids"], dist.get_world_size()
    if ids.shape[1] % n:
        raise UserError(f"--max-length {ids.shape[1]}: {n} devices need a multiple of {n} tokens")
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    ids, positions, labels = (t.chunk(n, 1)[dist.get_rank()] for t in (ids, positions, labels))
    return {"input_ids": ids, "position_ids": positions}, labels


def exchanged(tensor):
    """Let each device have other parts of a tensor: of its dimension 1 instead of 2.

    Queries, keys and values, (texts, heads, own tokens, size), become (texts, own heads, tokens,
    size); what attention returns, (texts, tokens, own heads, size), becomes (texts, own tokens,
    heads, size). In the backward pass, gradients go the other way.

    Raises:
        UserError: the devices do not divide the number of heads.
    """
    n, heads = dist.get_world_size(), tensor.shape[1]  # or tokens, see own()
    if heads % n:
        raise UserError(f"--devices {n}: they have to divide the model's {heads} heads")
    mesh = _all_devices(tensor.device.type)
    return (
        DTensor.from_local(tensor, mesh, [Shard(2)]).redistribute(placements=[Shard(1)]).to_local()
    )


@functools.cache
def _all_devices(kind):
    return init_device_mesh(kind, (dist.get_world_size(),))
