"""What a training costs and achieves: peak memory by phase, speed, loss, accuracy, and the record of it all."""

import contextlib
import datetime
import itertools
import json
import platform
import time

import torch
import torch.distributed as dist
import torchmetrics
from lightning.fabric.utilities import move_data_to_device
from tqdm import tqdm
from watermark import watermark

from shared import UserError, stages
from shared.ledger import Ledger, tensors
from shared.figures import PACKAGES, breakdown, device_name, git_commit, size, versions

# Optimizer states appear at the end of the first update; the second is the first to hold everything from its start.
LEDGER_UPDATES = 3


class Meter:
    """Measures one training.

    Memory is measured in two phases, "load" (building the model) and "train"; evaluation is outside both. On a CPU the
    ledger counts it until the third update has ended. On CUDA PyTorch's own counters do, over the whole training, and
    the ledger adds the breakdown and what the host holds.
    """

    def __init__(self, args, device, precision):
        """Prints versions and what is going to happen.

        Args: args, the options, from cli.parse; device, this process' torch.device; precision, in Fabric's words.

        Raises:
            UserError: the GPU cannot compute in this precision.
        """
        self.args, self.device, self.precision = args, device, precision
        parallel = dist.is_available() and dist.is_initialized()
        self.rank, self.world_size = (dist.get_rank(), dist.get_world_size()) if parallel else (0, 1)
        self.cuda = device.type == "cuda"
        if self.cuda and precision.startswith("bf16") and not torch.cuda.is_bf16_supported(including_emulation=False):
            raise UserError(f"{torch.cuda.get_device_name(device)} cannot compute in bf16 (that takes an Ampere or later); {args.task.WITHOUT_BF16}")
        self.ledger = Ledger()
        self.listening = contextlib.ExitStack()
        self.phases = {}  # name -> what was measured
        self.steps = self.seen = self.timed = 0  # updates; images or texts, of all and of those whose time counts
        self.shapes = []  # of the first input of each update that the ledger sees
        self.seconds = self.timed_seconds = 0.0
        self.first_loss = self.last_loss = None
        self.shown = 0.0  # when the progress bar got its last loss
        self.accuracies = {}
        self.print(watermark(packages=",".join((*PACKAGES, *args.task.PACKAGES))).strip() + f"\npython      : {platform.python_version()}\n\n{args.idea}")
        processes = f" x {self.world_size}" if self.world_size > 1 else ""
        for note in [*args.notes, f"{args.model} on {device_name(device)}{processes}, {precision}, {args.batch_size} {args.task.UNIT} per update", "--help tells what can be chosen"]:
            self.print(f"- {note}")
        self.print("")

    @contextlib.contextmanager
    def phase(self, name):
        """Measures the peak memory of what happens inside.

        Raises:
            UserError: the GPU's memory was not enough.
        """
        if name == "load":
            self.args.task.checkpoint(self.args)  # written now if it is not there: making it is not loading it
        since = len(self.ledger.events)
        self.allocated = self.reserved = 0
        self._reset_counters()
        try:
            with self.listening:  # closes what is still open when an update breaks off
                if name == "load":
                    self.listening.enter_context(self.ledger)
                yield
        except torch.OutOfMemoryError:
            doing = "loading the model" if name == "load" else f"training, in update {self.steps + 1}"
            raise UserError(self._out_of_memory(doing, name)) from None
        if name == "load":
            self._read_counters()
            self.ledger.training()
        peak, held = self.ledger.peak(self.device.type, since)
        self.phases[name] = {
            "device_peak_gb": (self.allocated if self.cuda else peak) / 1e9,
            "device_reserved_gb": self.reserved / 1e9 if self.cuda else None,
            "host_peak_gb": self.ledger.peak("cpu", since)[0] / 1e9 if self.cuda else None,
            "breakdown_gb": {label: nbytes / 1e9 for label, nbytes in held.items()},
        }

    def progress(self, loader, epoch):
        """Yields the batches of an epoch, as many as the training still wants, and shows a progress bar."""
        self.train_accuracy = self._new_accuracy()
        updates = min(len(loader), self.args.updates - self.steps)
        self._reset_counters()
        started = timed_from = self._now()
        seen_before = self.seen
        with tqdm(total=updates, desc=f"epoch {epoch + 1}/{self.args.epochs}", unit="update", disable=self.rank != 0) as self.bar:
            for inputs, labels in itertools.islice(loader, updates):
                if self.steps < LEDGER_UPDATES:
                    # Only around the update itself: while a batch is fetched, the data set would be counted too.
                    for t in tensors((inputs, labels)):
                        self.ledger.note(t, "inputs")
                    self.shapes.append(list(next(tensors(inputs)).shape))
                    self.listening.enter_context(self.ledger)
                yield inputs, labels
                self.listening.close()
                self.steps += 1
                if self.steps == LEDGER_UPDATES:  # until here the ledger has slowed it, and CUDA was starting
                    timed_from, seen_before = self._now(), self.seen
                self.bar.update()
        ended = self._now()
        self.seconds += ended - started
        if self.steps > LEDGER_UPDATES:
            self.timed_seconds += ended - timed_from
            self.timed += self.seen - seen_before
        self._read_counters()

    def update(self, loss, logits, labels):
        """Takes in the result of an update, detached: loss, a scalar; logits, (batch, classes); labels, (batch,)."""
        self.seen += len(labels) * self.world_size
        self.train_accuracy.update(logits, labels)
        self.first_loss = loss if self.first_loss is None else self.first_loss
        self.last_loss = loss
        # Reading the loss waits for the GPU, so not more often than somebody could read it.
        now = time.perf_counter()
        if now - self.shown > 0.5 and self.rank == 0:
            self.shown = now
            speed = (self.bar.n + 1) * self.args.batch_size / max(self.bar.format_dict["elapsed"], 1e-9)
            self.bar.set_postfix_str(f"loss {loss.item():.3f}, {speed:.0f} {self.args.task.UNIT}/s", refresh=False)

    def end_epoch(self, val_accuracy):
        """Takes in the accuracy on the validation data, from 0 to 1, after an epoch."""
        self.accuracies = {"train_accuracy": self.train_accuracy.compute().item(), "val_accuracy": val_accuracy}
        self.print("accuracy: " + ", ".join(f"{name.split('_')[0]} {value:.1%}" for name, value in self.accuracies.items()))

    @torch.no_grad()
    def evaluate(self, model, loader):
        """Returns a model's accuracy, from 0 to 1, on a loader's images or texts, over all processes.

        Raises:
            UserError: the GPU's memory was not enough.
        """
        try:
            return self._evaluate(model, loader)
        except torch.OutOfMemoryError:
            raise UserError(self._out_of_memory("evaluating", "train")) from None

    def _evaluate(self, model, loader):
        accuracy = self._new_accuracy()
        seen = 0
        model.eval()
        for inputs, labels in itertools.islice(loader, self.args.max_steps):
            logits = self.args.task.logits(model, move_data_to_device(inputs, self.device))
            # The sampler repeats some until every process has as many as the others; here each counts once.
            positions = self.rank + self.world_size * torch.arange(seen, seen + len(labels))
            once = positions < len(loader.dataset)
            if once.any():  # a process' last batch can be repetition alone
                accuracy.update(logits[once.to(self.device)], labels[once.to(labels.device)].to(self.device))
            seen += len(labels)
        model.train()
        return accuracy.compute().item()

    def report(self, test_accuracy):
        """Prints the record, appends it to --record, and returns it."""
        everyone = [(self.phases, self.first_loss.item(), self.last_loss.item(), self.shapes)]
        if self.world_size > 1:
            everyone = self.world_size * everyone
            dist.all_gather_object(everyone, everyone[0])
        phases, first_losses, last_losses, shapes = zip(*everyone)
        most = {name: max(range(self.world_size), key=lambda rank: phases[rank][name]["device_peak_gb"]) for name in self.phases}
        args = self.args
        record = {
            "stage": args.stage,
            "script": args.script,
            "preset": args.preset,
            "model": args.model,
            **args.task.settings(args),
            "pretrained": args.pretrained,
            "dataset": args.dataset,
            "device": device_name(self.device),
            "world_size": self.world_size,
            "precision": self.precision,
            "batch_size": args.batch_size,
            "micro_batch_size": args.micro_batch_size,
            "seed": args.seed,
            "epochs": args.epochs,
            "steps": self.steps,
            **{name: phases[rank][name] for name, rank in most.items()},  # of the process that needed most
            "input_shapes": shapes[most["train"]],
            f"{args.task.UNIT}_per_second": self.timed / self.timed_seconds if self.timed else None,
            "train_seconds": self.seconds,
            **self.accuracies,
            "test_accuracy": test_accuracy,
            "first_loss": sum(first_losses) / len(first_losses),
            "last_loss": sum(last_losses) / len(last_losses),
            "versions": {"python": platform.python_version(), **versions(args.task)},
            "git_commit": git_commit(),
            "command": args.command,
            "date": datetime.date.today().isoformat(),
        }
        self._print_summary(record)
        if args.record and self.rank == 0:
            with args.record.open("a") as file:
                file.write(json.dumps(record) + "\n")
        return record

    def print(self, text):
        """Prints, in the first process only."""
        if self.rank == 0:
            print(text, flush=True)

    def _print_summary(self, record):
        for name in self.phases:
            m = record[name]
            reserved = f" ({size(m['device_reserved_gb'])} reserved, {size(m['host_peak_gb'])} on the host)" if self.cuda else ""
            self.print(f"{name:5} peak {size(m['device_peak_gb'])}{reserved}: {breakdown(m)}")
        speed = f", {self.timed / self.timed_seconds:.0f} {self.args.task.UNIT}/s" if self.timed else ""
        self.print(f"{self.steps} update{'s' * (self.steps != 1)} in {self.seconds:.1f} s{speed}; test accuracy {record['test_accuracy']:.1%}")

    def _out_of_memory(self, doing, phase):
        held = ""
        if self.cuda:
            allocated, reserved = torch.cuda.max_memory_allocated(self.device), torch.cuda.max_memory_reserved(self.device)
            total = torch.cuda.get_device_properties(self.device).total_memory
            held = f" with {size(allocated / 1e9)} allocated, {size(reserved / 1e9)} reserved, of {size(total / 1e9)}"
        better = stages.next_with_less(stages.run_of({"stage": self.args.stage, "script": self.args.script}), phase)
        advice = f"{better} needs less" if better else "a smaller --model needs less"
        return f"out of GPU memory while {doing}{held}; {advice}"

    def _reset_counters(self):
        if self.cuda:
            torch.cuda.empty_cache()  # what another phase has left there is not this one's
            torch.cuda.reset_peak_memory_stats(self.device)

    def _read_counters(self):
        if self.cuda:
            self.allocated = max(self.allocated, torch.cuda.max_memory_allocated(self.device))
            self.reserved = max(self.reserved, torch.cuda.max_memory_reserved(self.device))

    def _now(self):
        if self.cuda:
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def _new_accuracy(self):
        return torchmetrics.Accuracy(task="multiclass", num_classes=self.args.num_classes).to(self.device)
