"""--save and --resume: checkpoints during a training, and the model after it."""

import json
import os
import shutil
import time

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.tensor import DTensor

from shared.common import shards
from shared.common.errors import UserError
from shared.common.kept import CHECKPOINT, MINUTES, checkpoints
from shared.common.writing import whole_folder

# The processes agree so often, in updates, whether it is time for a checkpoint. To do so, they wait
# for the device.
AGREE = 10
NUMBERS, TENSORS = "training.json", "tensors"  # in a checkpoint
# What reading a checkpoint raises if a file is missing, incomplete, or another one.
DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError)
DAMAGED += (SafetensorError, CheckpointException)


class Saving:
    """Keeps a training in the folder of --save; does nothing without that option.

    While it goes on, the folder holds a checkpoint: weights, optimizer states, the states of
    scheduler and random number generators, and how far the training is. With --resume, the same
    command goes on from there, with the same losses. At its end, only the model remains.

    Attributes:
        epoch: the first epoch that is left to do, 0 in a new training.
    """

    def __init__(self, args, meter, model, optimizer, *others):
        """Goes on from the newest checkpoint, if args.resume says so and there is one.

        Args:
            args: the options, from cli.parse.
            meter: the training's metrics.Meter.
            model: as it is trained, on this process.
            optimizer: the same; or a list of optimizers.
            others: what else has a state, such as a scheduler; as keep() takes it.

        Raises:
            UserError: the checkpoint is damaged, or of another training.
        """
        self.args, self.meter = args, meter
        self.model = getattr(model, "module", model)  # out of Fabric's wrapper
        several = optimizer if isinstance(optimizer, list) else [optimizer]
        self.optimizers = [getattr(one, "optimizer", one) for one in several]
        self.others, self.stored = [], []  # what has a state; states that wait for their owners
        self.epoch = 0
        if args.resume:
            self._resume()
        for other in (*others, *([meter.scaler] if meter.scaler else [])):
            self.keep(other)
        self.last = time.monotonic()

    def keep(self, other):
        """Keeps the state of something else, and after a resumption gives it its state back.

        Args:
            other: has state_dict() and load_state_dict(); the state is for JSON.
        """
        if self.stored:
            other.load_state_dict(self.stored.pop(0))
        self.others.append(other)

    def checkpoint(self):
        """Writes a checkpoint, if enough time has passed since the last one.

        A failure is printed, and the training goes on.
        """
        done = self.meter.steps + 1  # with the update that ends now
        if not self.args.save or done % AGREE or done == self.args.updates:
            return
        due = time.monotonic() - self.last > 60 * (self.args.save_minutes or MINUTES)
        if self.meter.world_size > 1:  # the clock of the first process decides for all
            agreed = torch.tensor([float(due)], device=self.meter.device)
            dist.broadcast(agreed, 0)
            due = bool(agreed)
        if not due:
            return
        folder = self.args.save / CHECKPOINT.format(done)
        part = folder.with_suffix(".part")
        if error := self._together(lambda: self._fresh(part)) or self._write(part):
            self.meter.print(f"\n- no checkpoint after update {done}: {error}")
        self._together(lambda: self._replace(folder, part, error))
        self.last = time.monotonic()

    def save(self):
        """Writes the model, as the stages' classify.py and Hugging Face's libraries read it.

        The first process gathers all shards and writes them. The checkpoints are then removed. A
        failure is said by Meter.report(), after the record is written.
        """
        folder = self.args.save
        if not folder:
            return
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(self.model, options=options)

        def write():
            with whole_folder(folder) as part:
                self.args.task.save(self.args, self.args.task.whole(self.model, state), part)
            for old in folder.glob("checkpoint-*"):  # incomplete ones too
                shutil.rmtree(old)

        if error := self._together(lambda: self._alone(write)):
            self.meter.failed = f"{error}; what was measured is not lost, but the model is"
        else:
            self.meter.print(f"saved to {folder}: {self.args.task.use_of(folder)}")

    def _write(self, part):
        """Writes a checkpoint into a new folder; returns why that failed, if it did."""
        if any(hasattr(one, "consolidate_state_dict") for one in self.optimizers):
            # Its states are of different weights in each process, under the names of all.
            return "ZeroRedundancyOptimizer's states cannot be kept; the model is saved at the end"
        if any(_quantized(p) for p in self.model.parameters()):
            return "weights in a few bits cannot be kept; the model is saved at the end"
        numbers, own = self.meter.state()
        numbers["training"] = _identity(self.args)
        numbers["groups"] = [
            {key: _number(value) for key, value in group.items() if key != "params"}
            for group in self._groups()
        ]
        numbers["others"] = [other.state_dict() for other in self.others]

        def write():
            own["generator"] = torch.get_rng_state()
            if self.meter.cuda:
                own["generator of the GPU"] = torch.cuda.get_rng_state(self.meter.device)
            save_file(own, part / _own_file(self.meter.rank))

        def write_numbers():
            (part / NUMBERS).write_text(json.dumps(numbers) + "\n")

        with self.meter.apart("save"):
            try:
                shards.write(self.model, self.optimizers, part / TENSORS)
                error = None
            except (OSError, CheckpointException) as failure:
                error = _first_line(failure)
        error = error or self._together(write)
        return error or self._together(lambda: self._alone(write_numbers))

    def _fresh(self, part):
        def make():
            shutil.rmtree(part, ignore_errors=True)
            (part / TENSORS).mkdir(parents=True)

        self._alone(make)

    def _replace(self, folder, part, error):
        def replace():
            if error:
                shutil.rmtree(part, ignore_errors=True)
                return
            os.replace(part, folder)
            for old in checkpoints(self.args.save)[:-1]:
                shutil.rmtree(old)

        self._alone(replace)

    def _resume(self):
        found = checkpoints(self.args.save)
        if not found:
            self.meter.print("- no checkpoint to go on from yet: beginning anew")
            return
        folder = found[-1]
        try:
            numbers = json.loads((folder / NUMBERS).read_text())
            self._same_training(numbers["training"])
            own = load_file(folder / _own_file(self.meter.rank))
            shards.read(self.model, self.optimizers, folder / TENSORS)
            for group, values in zip(self._groups(), numbers["groups"], strict=True):
                for key, value in values.items():
                    is_tensor = isinstance(group.get(key), torch.Tensor)
                    group[key] = group[key].fill_(value) if is_tensor else value
            self.stored = list(numbers["others"])
            torch.set_rng_state(own["generator"])
            if self.meter.cuda:
                torch.cuda.set_rng_state(own["generator of the GPU"], self.meter.device)
            self.meter.resume(numbers, own)
        except UserError:
            raise
        except DAMAGED as error:
            raise UserError(
                f"the checkpoint {folder} is damaged ({_first_line(error)}); remove it to begin "
                "anew"
            ) from None
        self.epoch = numbers["epoch"]
        self.meter.print(f"- goes on from {folder}, after update {self.meter.steps}")

    def _groups(self):
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def _same_training(self, before):
        for name, now in _identity(self.args).items():
            if before.get(name) != now:
                raise UserError(
                    f"--resume: the training in {self.args.save} has {name} {before.get(name)}, "
                    f"this one {now}; give the same options, or choose another folder"
                )

    def _alone(self, action):
        if self.meter.rank == 0:
            action()

    def _together(self, action):
        """Does something in every process, and waits for all; returns why it failed, if it did."""
        try:
            action()
            error = None
        except (OSError, SafetensorError, UserError) as failure:
            error = _first_line(failure)
        if self.meter.world_size == 1:
            return error
        errors = [None] * self.meter.world_size
        dist.all_gather_object(errors, error)
        return next((found for found in errors if found), None)


def _identity(args):
    """Returns what two trainings must have in common so that one can go on with the other."""
    names = ("script", "model", "dataset", "pretrained", "seed", "epochs", "updates", "batch_size")
    found = {name: getattr(args, name) for name in (*names, "micro_batch_size", "world_size")}
    # Paths and other values become what they are after reading.
    return json.loads(json.dumps({**found, **args.task.settings(args)}, default=str))


def _number(value):
    """Returns an optimizer's setting as JSON has it; some keep the learning rate in a tensor."""
    return value.item() if isinstance(value, torch.Tensor) else value


def _quantized(weight):
    return hasattr(weight, "__tensor_flatten__") and not isinstance(weight, DTensor)


def _own_file(rank):
    return f"process-{rank}.safetensors"


def _first_line(error):
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).strip() or type(error).__name__).splitlines()[0]
