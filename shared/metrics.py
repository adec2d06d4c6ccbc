"""What a training costs and achieves: peak memory, speed, loss, what is learned; its record."""

import contextlib
import itertools
import time

import torch
import torch.distributed as dist
from tqdm import tqdm

from shared.common.devices import precision_on
from shared.common.errors import UserError
from shared.common.loading import this_share
from shared.common.writing import append
from shared.memory import bf16
from shared.memory.blocks import moved
from shared.memory.phases import LEDGER_UPDATES, Phases
from shared.records import record as records
from shared.records.advice import out_of_memory
from shared.records.machine import device_name, in_use
from shared.records.tables import summary
from shared.records.units import quality


class Meter:
    """Measures one training.

    Memory is measured in two phases, "load" (building the model) and "train"; evaluation belongs to
    neither. memory.phases tells how they are measured.
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
        self.by_fabric = hasattr(fabric, "strategy")  # told without importing Lightning
        if self.by_fabric:
            device, precision = fabric.device, fabric.strategy.precision.precision
            self.scaler = getattr(fabric.strategy.precision, "scaler", None)  # a GradScaler
        else:
            device, precision = fabric, precision_on(args.accelerator, precision)
            self.scaler = None
        self.device, self.precision = device, precision
        parallel = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if parallel else 0
        self.world_size = dist.get_world_size() if parallel else 1
        self.share, self.shares = this_share(args.shares)
        self.cuda = device.type == "cuda"
        has_bf16 = not self.cuda or torch.cuda.is_bf16_supported(including_emulation=False)
        if precision.startswith("bf16") and not has_bf16:
            name = torch.cuda.get_device_name(device)
            raise UserError(
                f"{name} cannot compute in bf16 (that takes an Ampere or later);"
                f" {args.task.without_bf16}"
            )
        self.memory = Phases(device)
        self.steps = self.seen = 0  # updates; images or texts
        self.resumed_at = None  # updates before this process, if --resume goes on from them
        self.timed = 0  # images or texts of the updates whose time counts
        self.seconds = self.timed_seconds = self.apart_seconds = 0.0
        self.first_loss = self.last_loss = None
        self.failed = None  # what to say at the end, after the record is written
        self.shown = 0.0  # when the progress bar got its last loss
        self.learned, self.of_metric = {}, {}
        self.print(f"{in_use(args.task)}\n\n{args.headline}")
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
        """Measures the peak memory of what happens inside, "load" or "train".

        Raises:
            UserError: the GPU's memory was not enough.
        """
        loading = name == "load"
        if loading:
            # The file is written before measuring, because making it is no part of loading it.
            self.args.task.checkpoint(self.args)
        try:
            with self.memory.load() if loading else self.memory.train():
                yield
        except torch.OutOfMemoryError:
            doing = "loading the model" if loading else f"training, in update {self.steps + 1}"
            raise UserError(self._out_of_memory(doing, name)) from None

    @contextlib.contextmanager
    def apart(self, name):
        """Measures what happens inside, in the middle of the training, as a phase of its own.

        Neither its memory nor its time counts as the training's.
        """
        started = self._now()
        with self.memory.apart(name):
            yield
        self.apart_seconds += self._now() - started

    def progress(self, loader, epoch):
        """Yields the batches of an epoch that the training still needs; shows a progress bar."""
        self.epoch, self.train_metric = epoch, self._new_metric()
        while self.of_metric:  # from a checkpoint in this epoch
            setattr(self.train_metric, *self.of_metric.popitem())
        done = self.steps - epoch * len(loader)  # of this epoch, before --resume
        loader.sampler.set_epoch(epoch)
        loader.sampler.start = done
        updates = min(len(loader) - done, self.args.updates - self.steps)
        self.memory.counters.reset()
        apart = self.apart_seconds
        started = timed_from = self._now()
        seen_before = self.seen
        title = f"epoch {epoch + 1}/{self.args.epochs}"
        shown = {"desc": title, "unit": "update", "disable": self.rank != 0}
        with tqdm(initial=done, total=done + updates, **shown) as self.bar:
            for inputs, labels in itertools.islice(loader, updates) if updates else ():
                self.memory.begin(inputs, labels)
                yield inputs, labels
                self.memory.end()
                self.steps += 1
                # The updates before are not timed: the ledger slows them, and CUDA is starting.
                if self.steps - (self.resumed_at or 0) == LEDGER_UPDATES:
                    timed_from, seen_before = self._now(), self.seen
                self.bar.update()
        ended = self._now() - (self.apart_seconds - apart)
        self.seconds += ended - started
        if self.steps - (self.resumed_at or 0) > LEDGER_UPDATES:
            self.timed_seconds += ended - timed_from
            self.timed += self.seen - seen_before
        self.memory.counters.read()

    def update(self, loss, logits, labels):
        """Takes in the result of an update, detached.

        Args:
            loss: scalar.
            logits: (batch, classes); None where only the loss counts.
            labels: (batch,), or (batch, tokens).
        """
        self.seen += len(labels) * self.shares
        self.args.task.count_update(self.train_metric, loss, logits, labels)
        self.first_loss = loss if self.first_loss is None else self.first_loss
        self.last_loss = loss
        # Reading the loss waits for the GPU, so it is read at most twice a second.
        now = time.perf_counter()
        if now - self.shown > 0.5 and self.rank == 0:
            self.shown = now
            elapsed = max(self.bar.format_dict["elapsed"], 1e-9)
            speed = (self.bar.n - self.bar.initial + 1) * self.args.batch_size / elapsed
            said = f"loss {loss.item():.3f}, {speed:.0f} {self.args.task.unit}/s"
            self.bar.set_postfix_str(said, refresh=False)

    def end_epoch(self, val):
        """Takes in what evaluate() has returned for the validation data, after an epoch."""
        trained, name = self.train_metric.compute().item(), self.args.task.learned
        self.learned = {f"train_{name}": trained, f"val_{name}": val}
        self.print(f"{name}: train {quality(name, trained)}, val {quality(name, val)}")

    @torch.no_grad()
    def evaluate(self, model, loader):
        """Returns a model's accuracy, from 0 to 1, on a loader's examples, over all processes.

        Of a model that goes on with texts it is the perplexity, 1 or more.

        Raises:
            UserError: the GPU's memory was not enough.
        """
        try:
            return self._evaluate(model, loader)
        except torch.OutOfMemoryError:
            raise UserError(self._out_of_memory("evaluating", "train")) from None

    def _evaluate(self, model, loader):
        metric, task = self._new_metric(), self.args.task
        seen = 0
        model.eval()
        for batch in itertools.islice(loader, self.args.max_steps):
            inputs, labels = moved(batch, self.device)
            outputs = task.outputs(model, inputs, labels)
            # The sampler repeats some examples so that all shares are equally large. Here each
            # example counts once.
            positions = self.share + self.shares * torch.arange(seen, seen + len(labels))
            once = (positions < len(loader.dataset)).to(self.device)
            if once.any():  # a process' last batch may consist of repetitions only
                task.count_outputs(metric, outputs[once], labels[once])
            seen += len(labels)
        model.train()
        return metric.compute().item()

    def state(self):
        """Returns what resume() needs to go on after the update at work.

        Returns:
            numbers, for JSON; and tensors of this process, by name.
        """
        numbers = {"steps": self.steps + 1, "seen": self.seen, "epoch": self.epoch}
        metric = {f"metric.{name}": t for name, t in self.train_metric.metric_state.items()}
        return numbers, {"first_loss": self.first_loss, **metric}

    def resume(self, numbers, tensors):
        """Takes in what state() has returned before."""
        self.steps = self.resumed_at = numbers["steps"]
        self.seen = numbers["seen"]
        self.first_loss = tensors["first_loss"].to(self.device)
        self.memory.ledger.note(self.first_loss)  # as in a training that was not interrupted
        for name, t in tensors.items():
            if name.startswith("metric."):
                self.of_metric[name.removeprefix("metric.")] = t.to(self.device)

    def report(self, test):
        """Prints the record, appends it to --record, and returns it.

        Raises:
            UserError: it cannot be written, or the model could not be saved before.
        """
        memory, losses = self.memory, (self.first_loss.item(), self.last_loss.item())
        everyone = [(memory.found, *losses, memory.shapes)]
        if self.world_size > 1:
            everyone = self.world_size * everyone
            dist.all_gather_object(everyone, everyone[0])
        phases, first_losses, last_losses, shapes = zip(*everyone)
        args, most = self.args, {}  # for each phase, the process that needs most
        for name in self.memory.found:
            peaks = [found[name]["device_peak_gb"] for found in phases]
            most[name] = peaks.index(max(peaks))
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
            shares=self.shares,
            precision=self.precision,
            batch_size=args.batch_size,
            micro_batch_size=args.micro_batch_size,
            seed=args.seed,
            epochs=args.epochs,
            steps=self.steps,
            resumed_at=self.resumed_at,
            **{name: phases[rank][name] for name, rank in most.items()},
            input_shapes=shapes[most["train"]],
            **{f"{args.task.unit}_per_second": self._speed()},
            train_seconds=self.seconds,
            **self.learned,
            **{f"test_{args.task.learned}": test},
            first_loss=sum(first_losses) / len(first_losses),
            last_loss=sum(last_losses) / len(last_losses),
            command=args.command,
        )
        try:
            if args.record and self.rank == 0:
                append(args.record, record)
        finally:
            self.print("\n".join(summary(record)))
        if self.failed:
            raise UserError(self.failed)
        return record

    def print(self, text):
        """Prints, in the first process only."""
        if self.rank == 0:
            print(text, flush=True)

    def _speed(self):
        return self.timed / self.timed_seconds if self.timed else None

    def _out_of_memory(self, doing, phase):
        full = self.memory.counters.full() if self.cuda else None
        return out_of_memory(self.args.script, phase, doing, full)

    def _now(self):
        if self.cuda:
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def _new_metric(self):
        return self.args.task.new_metric(self.args, self.by_fabric).to(self.device)
