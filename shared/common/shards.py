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
from torch.distributed.tensor import DTensor

MODEL, OPTIMIZER = "model.", "optimizer."  # how the names in a checkpoint begin
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def write(model, optimizers, folder):
    """Writes what this process has of the weights and the optimizers' states.

    All processes must call it.

    Raises:
        dcp.CheckpointException: one of them could not.
    """
    writer = dcp.HuggingFaceStorageWriter(path=str(folder), save_distributed=True)
    with _quiet():
        stepped = any(any(optimizer.state.values()) for optimizer in optimizers)
        found = _by_name(model, *_states(model, optimizers, stepped))
        dcp.save(found, storage_writer=writer, no_dist=not dist.is_initialized())


def read(model, optimizers, folder):
    """Reads what write() has written, into the same model and optimizers, with the same shards.

    Raises:
        dcp.CheckpointException: one of the processes could not.
    """
    reader = dcp.HuggingFaceStorageReader(path=str(folder))
    stored = reader.read_metadata().state_dict_metadata
    with _quiet():
        weights, of_optimizers = _states(
            model, optimizers, any(name.startswith(OPTIMIZER) for name in stored)
        )
        found = _by_name(model, weights, of_optimizers)
        dcp.load(found, storage_reader=reader, no_dist=not dist.is_initialized())
        set_model_state_dict(model, weights)
        if of_optimizers:
            set_optimizer_state_dict(model, optimizers, of_optimizers, options=FLAT)


def _states(model, optimizers, with_optimizers):
    weights = get_model_state_dict(model)
    # PyTorch makes the states of a new optimizer with a step in which nothing changes. That takes
    # gradients, so an optimizer that has none is not asked.
    asked = get_optimizer_state_dict(model, optimizers, options=FLAT) if with_optimizers else {}
    return weights, asked


def _by_name(model, weights, of_optimizers):
    """Returns the tensors of both, each once, even if the model has it under several names.

    In place of a tensor that consists of others, such as a quantized one, it returns these.
    """
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    others = every - {name for name, _ in model.named_parameters()}
    found = {MODEL + name: t for name, t in weights.items() if name not in others}
    for name, value in of_optimizers.items():
        again = any(name.startswith(f"state.{other}.") for other in others)
        # Settings, some of which are tensors too, are not kept here.
        if isinstance(value, torch.Tensor) and name.startswith("state.") and not again:
            found |= _parts(OPTIMIZER + name, value)
    return found


def _parts(name, tensor):
    if isinstance(tensor, DTensor) or not hasattr(tensor, "__tensor_flatten__"):
        return {name: tensor}
    return {f"{name}.{part}": getattr(tensor, part) for part in tensor.__tensor_flatten__()[0]}


@contextlib.contextmanager
def _quiet():
    """Ignores PyTorch's warning that a single process is a single process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
