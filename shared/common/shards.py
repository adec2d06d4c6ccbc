"""Model and optimizer on disk, as they are in memory: whole, or a shard of each process.

torch.distributed.checkpoint writes and reads them. The files are safetensors, which can hold
nothing but numbers; PyTorch's own format can hold code.
Source: https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

import contextlib
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

MODEL, OPTIMIZER = "model.", "optimizer."  # how the names in a checkpoint begin
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def write(model, optimizer, folder):
    """Writes what this process has of the weights and the optimizer's states.

    All processes must call it.

    Raises:
        dcp.CheckpointException: one of them could not.
    """
    writer = dcp.HuggingFaceStorageWriter(path=str(folder), save_distributed=True)
    with _quiet():
        found = _by_name(model, *_states(model, optimizer, any(optimizer.state.values())))
        dcp.save(found, storage_writer=writer, no_dist=not dist.is_initialized())


def read(model, optimizer, folder):
    """Reads what write() has written, into the same model and optimizer, with the same shards.

    Raises:
        dcp.CheckpointException: one of the processes could not.
    """
    reader = dcp.HuggingFaceStorageReader(path=str(folder))
    stored = reader.read_metadata().state_dict_metadata
    with _quiet():
        weights, of_optimizer = _states(
            model, optimizer, any(name.startswith(OPTIMIZER) for name in stored)
        )
        found = _by_name(model, weights, of_optimizer)
        dcp.load(found, storage_reader=reader, no_dist=not dist.is_initialized())
        set_model_state_dict(model, weights)
        if of_optimizer:
            set_optimizer_state_dict(model, optimizer, of_optimizer, options=FLAT)


def _states(model, optimizer, with_optimizer):
    weights = get_model_state_dict(model)
    # PyTorch makes the states of a new optimizer with a step in which nothing changes. That takes
    # gradients, so an optimizer that has none is not asked.
    asked = get_optimizer_state_dict(model, optimizer, options=FLAT) if with_optimizer else {}
    return weights, asked


def _by_name(model, weights, of_optimizer):
    """Returns the tensors of both, each once, even if the model has it under several names."""
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    others = every - {name for name, _ in model.named_parameters()}
    found = {MODEL + name: t for name, t in weights.items() if name not in others}
    for name, value in of_optimizer.items():
        again = any(name.startswith(f"state.{other}.") for other in others)
        if isinstance(value, torch.Tensor) and not again:
            found[OPTIMIZER + name] = value
    return found


@contextlib.contextmanager
def _quiet():
    """Ignores PyTorch's warning that a single process is a single process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
