"""--save and --resume: checkpoints during a run, and the trained model after it."""

import os
import shutil
import time

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from shared.run import record as records
from shared.run.errors import UserError

# Every AGREE updates the processes agree whether a checkpoint is due; this waits for the device.
AGREE = 10


class Saving:
    """A writer of checkpoints and of the final model; it does nothing without --save.

    During the run, the folder holds a checkpoint: for each process a file with all state that the
    next update needs, such as shards of weights and optimizer states. Then only the model remains.
    """

    def __init__(self, meter, model, optimizer, others):
        """Resume from the newest checkpoint, if --resume is given and a checkpoint exists."""
        self.meter = meter
        self.args = meter.args
        self.last = time.monotonic()  # when the last checkpoint was written, or the run began
        several = optimizer if isinstance(optimizer, list) else [optimizer]
        self.model = model.module if hasattr(model, "_forward_module") else model  # not Fabric's
        self.parts = [self.model, *(getattr(o, "optimizer", o) for o in several), *others]
        self.cuda = [meter.device] if meter.cuda else []
        # A run continues only with the settings that it began with: others would mix two trainings.
        self.updates = meter.loaders.updates
        self.training = {**records.settings(meter.args, meter.loaders), "updates": self.updates}
        # Each process of ZeroRedundancyOptimizer holds the states of different weights.
        self.only_model = any(hasattr(part, "consolidate_state_dict") for part in self.parts)
        if folder := self.args.save:
            checkpoints = sorted(folder.glob(f"checkpoint-{'[0-9]' * 9}"))
            if folder.exists() and any(folder.iterdir()) and not [*folder.glob("checkpoint-*")]:
                raise UserError(f"{folder} holds other files; --save needs a folder of its own")
            if checkpoints and not self.args.resume:
                raise UserError(f"{folder} holds an unfinished run; --resume continues it")
            if checkpoints:
                self._resume(checkpoints[-1])
            if self.only_model:
                meter.print("- no checkpoints with this optimizer; the model is saved at the end")

    def checkpoint(self):
        """Write a checkpoint after an update if one is due; return the seconds that it took."""
        args, meter, started = self.args, self.meter, time.monotonic()
        if not args.save or self.only_model or meter.steps % AGREE or meter.steps == self.updates:
            return 0.0
        due = torch.tensor(float(started - self.last > 60 * args.save_minutes), device=meter.device)
        if args.world_size > 1:
            dist.broadcast(due, 0)  # the clock of the first process decides
        if not due:
            return 0.0
        folder = args.save / f"checkpoint-{meter.steps:09d}"
        unfinished = folder.with_suffix(".part")
        state = {
            "training": self.training,
            "steps": meter.steps,
            "first_loss": meter.losses.first,
            "metric": meter.metric.metric_state,
            "generators": [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self.cuda)],
            "parts": [part.state_dict() for part in self.parts],
        }
        unfinished.mkdir(parents=True, exist_ok=True)
        torch.save(state, unfinished / f"process-{meter.rank}.pt")
        if args.world_size > 1:
            dist.barrier()  # until every rank has written its file
        if meter.rank == 0:
            os.replace(unfinished, folder)
            for old in {*args.save.glob("checkpoint-*")} - {folder}:
                shutil.rmtree(old, ignore_errors=True)
        self.last = time.monotonic()
        return self.last - started

    def save(self):
        """Write the model, as classify.py or transformers read it, and remove the checkpoints."""
        if not (folder := self.args.save):
            return
        # The first process gathers all shards, or all parts.
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        gather = getattr(self.model, "whole_state", None)
        state = gather() if gather else get_model_state_dict(self.model, options=whole)
        if self.meter.rank == 0:
            part = folder / "checkpoint-model.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            self.args.task.save(self.args, self.meter.loaders, self.model, state, part)
            for file in sorted(part.iterdir(), key=lambda file: file.name == "config.json"):
                shutil.copymode(part / "config.json", file)  # safetensors: owner only
                os.replace(file, folder / file.name)  # config.json comes last
            for old in folder.glob("checkpoint-*"):
                shutil.rmtree(old, ignore_errors=True)
        self.meter.print(f"saved to {folder}: {self.args.task.use.format(folder)}")

    def _resume(self, folder):
        meter, file = self.meter, folder / f"process-{self.meter.rank}.pt"
        state = torch.load(file, weights_only=True, map_location="cpu")
        for name, now in self.training.items():
            if (before := state["training"].get(name)) != now:
                raise UserError(f"--resume: {self.args.save} has {name} {before}, not {now}")
        for part, part_state in zip(self.parts, state["parts"]):
            part.load_state_dict(part_state)
        for name, counts in state["metric"].items():
            setattr(meter.metric, name, counts.to(meter.device))
        meter.losses.first = state["first_loss"].to(meter.device)
        meter.memory.ledger.note(meter.losses.first)  # as in an uninterrupted run
        meter.steps = meter.resumed_at = state["steps"]
        torch.set_rng_state(state["generators"][0])
        for device, generator in zip(self.cuda, state["generators"][1:]):
            torch.cuda.set_rng_state(generator, device)
        meter.print(f"- resumed from {folder}, after update {meter.steps}")
