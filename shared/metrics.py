"""What a training costs and achieves: peak memory by phase, speed, loss, accuracy; its record."""

import contextlib
import itertools
import platform
import time

import torch
import torch.distributed as dist
import torchmetrics
from lightning.fabric import Fabric
from lightning.fabric.utilities import move_data_to_device
from tqdm import tqdm
from watermark import watermark

from shared.common.devices import precision_on
from shared.common.errors import UserError
from shared.common.writing import append
from shared.memory import bf16
from shared.memory.counters import Counters
from shared.memory.ledger import Ledger, tensors
from shared.records import record as records
from shared.records.advice import next_with_less
from shared.records.machine import PACKAGES, device_name
from shared.records.units import size

# Optimizer states appear at the end of the first update. So the second update is the first that
# holds everything from its start.
LEDGER_UPDATES = 3


class Meter:
    """Measures one training.

    Memory is measured in two phases, "load" (building the model) and "train"; evaluation belongs to
    neither. On a CPU the ledger counts the memory until the end of the third update. On CUDA,
    PyTorch's own counters measure the whole training, and the ledger adds the breakdown and what
    the host holds.
    """

    def __init__(self, args, fabric, precision=None):
        """Prints versions and what is going to happen.

        Args:
            args: the options, from cli.parse.
            fabric: the script's Fabric; without Fabric, this process' torch.device.
            precision: without Fabric, the script's precision, by Fabric's name for it.

        Raises:
            UserError: the GPU cannot compute in this precision.
        """
        self.args = args
        if isinstance(fabric, Fabric):
            device, precision = fabric.device, fabric.strategy.precision.precision
        else:
            device, precision = fabric, precision_on(args.accelerator, precision)
        self.device, self.precision = device, precision
        parallel = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if parallel else 0
        self.world_size = dist.get_world_size() if parallel else 1
        self.cuda = device.type == "cuda"
        has_bf16 = not self.cuda or torch.cuda.is_bf16_supported(including_emulation=False)
        if precision.startswith("bf16") and not has_bf16:
            name = torch.cuda.get_device_name(device)
            raise UserError(
                f"{name} cannot compute in bf16 (that takes an Ampere or later);"
                f" {args.task.without_bf16}"
            )
        self.counters = Counters(device)
        self.ledger = Ledger()
        self.listening = contextlib.ExitStack()
        self.phases = {}  # name -> what was measured
        self.steps = self.seen = 0  # updates; images or texts
        self.timed = 0  # images or texts of the updates whose time counts
        self.shapes = []  # of the first input of each update that the ledger sees
        self.seconds = self.timed_seconds = 0.0
        self.first_loss = self.last_loss = None
        self.shown = 0.0  # when the progress bar got its last loss
        self.accuracies = {}
        packages = ",".join((*PACKAGES, *args.task.packages))
        self.print(watermark(packages=packages).strip())
        self.print(f"python      : {platform.python_version()}\n\n{args.headline}")
        processes = f" x {self.world_size}" if self.world_size > 1 else ""
        on = f"{device_name(device)}{processes}"
        chosen = f"{args.model} on {on}, {precision}, {args.batch_size} {args.task.unit} per update"
        rounded = device.type == "cpu" and precision.startswith("bf16") and bf16.speed_up()
        notes = [*args.notes, bf16.NOTE] if rounded else args.notes
        for note in [*notes, chosen, "--help tells what can be chosen"]:
            self.print(f"- {note}")
        self.print("")

    @contextlib.contextmanager
    def phase(self, name):
        """Measures the peak memory of what happens inside.

        Raises:
            UserError: the GPU's memory was not enough.
        """
        if name == "load":
            # The file is written before measuring, because making it is no part of loading it.
            self.args.task.checkpoint(self.args)
        since = len(self.ledger.events)
        self.counters.start()
        try:
            with self.listening:  # closes the ledger if an update raises
                if name == "load":
                    self.listening.enter_context(self.ledger)
                yield
        except torch.OutOfMemoryError:
            training = f"training, in update {self.steps + 1}"
            doing = "loading the model" if name == "load" else training
            raise UserError(self._out_of_memory(doing, name)) from None
        if name == "load":
            self.counters.read()
            self.ledger.training()
        peak, held = self.ledger.peak(self.device.type, since)
        self.phases[name] = {
            "device_peak_gb": (self.counters.allocated if self.cuda else peak) / 1e9,
            "device_reserved_gb": self.counters.reserved / 1e9 if self.cuda else None,
            "host_peak_gb": self.ledger.peak("cpu", since)[0] / 1e9 if self.cuda else None,
            "breakdown_gb": {label: nbytes / 1e9 for label, nbytes in held.items()},
        }

    def progress(self, loader, epoch):
        """Yields the batches of an epoch that the training still needs; shows a progress bar."""
        self.train_accuracy = self._new_accuracy()
        updates = min(len(loader), self.args.updates - self.steps)
        self.counters.reset()
        started = timed_from = self._now()
        seen_before = self.seen
        title = f"epoch {epoch + 1}/{self.args.epochs}"
        with tqdm(total=updates, desc=title, unit="update", disable=self.rank != 0) as self.bar:
            for inputs, labels in itertools.islice(loader, updates):
                if self.steps < LEDGER_UPDATES:
                    # The ledger is active only during the update. While a batch is fetched, it
                    # would count the data set too.
                    for t in tensors((inputs, labels)):
                        self.ledger.note(t, "inputs")
                    self.shapes.append(list(next(tensors(inputs)).shape))
                    self.listening.enter_context(self.ledger)
                yield inputs, labels
                self.listening.close()
                self.steps += 1
                # The updates before are not timed: the ledger slows them, and CUDA is starting.
                if self.steps == LEDGER_UPDATES:
                    timed_from, seen_before = self._now(), self.seen
                self.bar.update()
        ended = self._now()
        self.seconds += ended - started
        if self.steps > LEDGER_UPDATES:
            self.timed_seconds += ended - timed_from
            self.timed += self.seen - seen_before
        self.counters.read()

    def update(self, loss, logits, labels):
        """Takes in the result of an update, detached.

        Args:
            loss: scalar.
            logits: (batch, classes).
            labels: (batch,).
        """
        self.seen += len(labels) * self.world_size
        self.train_accuracy.update(logits, labels)
        self.first_loss = loss if self.first_loss is None else self.first_loss
        self.last_loss = loss
        # Reading the loss waits for the GPU, so it is read at most twice a second.
        now = time.perf_counter()
        if now - self.shown > 0.5 and self.rank == 0:
            self.shown = now
            elapsed = max(self.bar.format_dict["elapsed"], 1e-9)
            speed = (self.bar.n + 1) * self.args.batch_size / elapsed
            said = f"loss {loss.item():.3f}, {speed:.0f} {self.args.task.unit}/s"
            self.bar.set_postfix_str(said, refresh=False)

    def end_epoch(self, val_accuracy):
        """Takes in the accuracy on the validation data, from 0 to 1, after an epoch."""
        trained = self.train_accuracy.compute().item()
        self.accuracies = {"train_accuracy": trained, "val_accuracy": val_accuracy}
        self.print(f"accuracy: train {trained:.1%}, val {val_accuracy:.1%}")

    @torch.no_grad()
    def evaluate(self, model, loader):
        """Returns a model's accuracy, from 0 to 1, on a loader's examples, over all processes.

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
            # The sampler repeats some examples so that all processes get equally many. Here each
            # example counts once.
            positions = self.rank + self.world_size * torch.arange(seen, seen + len(labels))
            once = positions < len(loader.dataset)
            if once.any():  # a process' last batch may consist of repetitions only
                labels_once = labels[once.to(labels.device)].to(self.device)
                accuracy.update(logits[once.to(self.device)], labels_once)
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
        most = {}  # for each phase, the process that needs most
        for name in self.phases:
            peaks = [found[name]["device_peak_gb"] for found in phases]
            most[name] = peaks.index(max(peaks))
        args = self.args
        record = records.new(
            args.task,
            script=args.script,
            preset=args.preset,
            model=args.model,
            **args.task.settings(args),
            pretrained=args.pretrained,
            dataset=args.dataset,
            device=device_name(self.device),
            world_size=self.world_size,
            precision=self.precision,
            batch_size=args.batch_size,
            micro_batch_size=args.micro_batch_size,
            seed=args.seed,
            epochs=args.epochs,
            steps=self.steps,
            **{name: phases[rank][name] for name, rank in most.items()},
            input_shapes=shapes[most["train"]],
            **{f"{args.task.unit}_per_second": self._speed()},
            train_seconds=self.seconds,
            **self.accuracies,
            test_accuracy=test_accuracy,
            first_loss=sum(first_losses) / len(first_losses),
            last_loss=sum(last_losses) / len(last_losses),
            command=args.command,
        )
        try:
            if args.record and self.rank == 0:
                append(args.record, record)
        finally:
            self._print_summary(record)
        return record

    def print(self, text):
        """Prints, in the first process only."""
        if self.rank == 0:
            print(text, flush=True)

    def _print_summary(self, record):
        for name in self.phases:
            m = record[name]
            reserved = ""
            if self.cuda:
                amounts = (size(m[key]) for key in ("device_reserved_gb", "host_peak_gb"))
                reserved = " ({} reserved, {} on the host)".format(*amounts)
            held = ", ".join(f"{label} {size(gb)}" for label, gb in records.breakdown(m))
            self.print(f"{name:5} peak {size(m['device_peak_gb'])}{reserved}: {held}")
        speed = f", {self._speed():.0f} {self.args.task.unit}/s" if self.timed else ""
        updates = f"{self.steps} update{'s' * (self.steps != 1)} in {self.seconds:.1f} s{speed}"
        self.print(f"{updates}; test accuracy {record['test_accuracy']:.1%}")

    def _speed(self):
        return self.timed / self.timed_seconds if self.timed else None

    def _out_of_memory(self, doing, phase):
        better = next_with_less(self.args.script, phase)
        advice = f"{better} needs less" if better else "a smaller --model needs less"
        held = ""
        if self.cuda:
            allocated, reserved, total = (size(n / 1e9) for n in self.counters.full())
            held = f" with {allocated} allocated, {reserved} reserved, of {total}"
        return f"out of GPU memory while {doing}{held}; {advice}"

    def _now(self):
        if self.cuda:
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def _new_accuracy(self):
        classes = self.args.num_classes
        return torchmetrics.Accuracy(task="multiclass", num_classes=classes).to(self.device)
