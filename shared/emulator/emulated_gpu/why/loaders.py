"""The batches of a script's loaders: a few of each, made in the script's own process."""

import collections.abc
import inspect

import torch
from torch.utils.data import DataLoader

from emulated_gpu.accounting.blocks import tensors
from emulated_gpu.stand_ins.notes import replace
from emulated_gpu.why.updates import shape_of

# A DataLoader's options here: batches are made in this process, so their time is known.
ALONE = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False}
ALONE |= {"timeout": 0, "multiprocessing_context": None}


def replace_all(run):
    """Let the loaders of a script.Run end after a few batches."""
    replace(DataLoader, "__init__", _alone)
    replace(DataLoader, "__iter__", lambda original, loader: _Few(run, loader, original(loader)))


def _alone(original, loader, *args, **kwargs):
    names = [*inspect.signature(original).parameters][1:]
    original(loader, **{**dict(zip(names, args)), **kwargs, **ALONE})


class _Few:
    """An iterator over a loader's first batches, with the length of them all."""

    def __init__(self, run, loader, batches):
        self._loader = loader
        self._few = _few(run, batches, loader)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._few)

    def __len__(self):
        return len(self._loader)


def _few(run, batches, loader):
    """Yield as many batches as the limits allow, or a few for evaluation."""
    updates, limits, evaluation = run.updates, run.limits, run.evaluation
    backwards_before, begun = updates.backwards, len(run.watch.places)
    count = 0
    for batch in batches:
        run.watch.inputs = {t.data_ptr() for t in tensors(_parts(batch))}
        in_training = updates.model is None or updates.model.training
        is_training = torch.is_grad_enabled() and in_training
        if is_training:
            updates.batches.add(shape_of(_parts(batch)), of_loader=True)
        elif not count:
            evaluation.begin(loader)
        yield batch
        count += 1
        trains = updates.backwards > backwards_before
        if trains and updates.count >= limits.wanted:
            limits.end_epoch(updates.count)
            return
        if not trains and not is_training:
            evaluation.end_batch()
        may_train = is_training and updates.count < limits.wanted
        if not trains and count >= limits.batches(may_train, evaluation.grows):
            break
    if updates.backwards == backwards_before:
        run.watch.was_evaluation(begun)


def _parts(batch):
    """Return a batch in a type that PyTorch knows the parts of, unlike transformers' own."""
    return dict(batch) if isinstance(batch, collections.abc.Mapping) else batch
