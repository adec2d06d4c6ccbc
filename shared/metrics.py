"""Measurement of a run: peak memory, speed, losses, the metric of the task, and the record."""

import contextlib
import itertools
import time

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only
from tqdm import tqdm

from shared.memory import bf16
from shared.memory.phases import LEDGER_UPDATES, Phases
from shared.run import record as records
from shared.run.loading import this_process
from shared.run.saving import Saving

ON_CPU = {"16-mixed": "bf16-mixed"}  # precisions that a CPU replaces, as in Fabric


class Losses:
    """The losses of the first and the last update, each the sum over its micro-batches."""

    def __init__(self):
        self.first = self.last = None  # scalar tensors
        self._begins = True

    def add(self, loss):
        self.last = loss.detach() if self._begins else self.last + loss.detach()
        self._begins = False

    def end(self):
        self._begins = True
        self.first = self.last if self.first is None else self.first


class Accuracy(torch.nn.Module):
    """Accuracy, with the interface of torchmetrics, which takes seconds to import."""

    def __init__(self):
        super().__init__()
        # Correct and all examples of this process.
        self.register_buffer("counts", torch.zeros(2, dtype=torch.long))

    @property
    def metric_state(self):
        return {"counts": self.counts}

    def update(self, loss, logits, labels):
        right = (logits.detach().argmax(-1) == labels).sum()
        self.counts = self.counts + torch.stack([right, torch.full_like(right, len(labels))])

    def compute(self):
        """Return the accuracy over all processes, a scalar from 0 to 1."""
        counts = self.counts.clone()
        if dist.is_initialized():
            dist.all_reduce(counts)
        return counts[0] / counts[1]


class Speed:
    """Seconds of all updates, and images or texts per second of the timed updates.

    The first LEDGER_UPDATES are not timed: the ledger slows them down, and CUDA warms up.
    """

    def __init__(self, device):
        self.device = device
        self.seconds = 0.0  # of all updates since --resume
        self._untimed_seconds = 0.0  # of the updates before the timed ones
        self._timed_examples = 0  # images or texts
        self._updates = 0
        self._started = None

    def start(self):
        """Begin an epoch."""
        self._started = self._now()

    def add(self, examples):
        """Count an update on this number of examples, over all devices."""
        self._updates += 1
        if self._updates == LEDGER_UPDATES:
            self._untimed_seconds = self.seconds + self._now() - self._started
        elif self._updates > LEDGER_UPDATES:
            self._timed_examples += examples

    def leave_out(self, seconds):
        """Exclude seconds that were not spent on updates, such as those of a checkpoint."""
        self._started += seconds

    def stop(self):
        """End an epoch."""
        self.seconds += self._now() - self._started

    @property
    def per_second(self):
        """Images or texts per second, over all devices; None without timed updates."""
        if not self._timed_examples:
            return None
        return self._timed_examples / (self.seconds - self._untimed_seconds)

    def _now(self):
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)
        return time.perf_counter()


class Evaluator:
    """The metric of a task on the examples of a loader, over all processes."""

    def __init__(self, args, device):
        self.args, self.device = args, device
        self.share = this_process(args)[1]

    def new_metric(self):
        return self.args.task.new_metric().to(self.device)

    @torch.no_grad()
    def value(self, model, loader):
        """Return the metric, a number, over at most --max-steps batches."""
        metric = self.new_metric()
        position = self.share  # of the batch's first example in the data set
        model.eval()
        for batch in itertools.islice(loader, self.args.max_steps):
            inputs, labels = tree_map_only(torch.Tensor, lambda t: t.to(self.device), batch)
            outputs = self.args.task.outputs(model, inputs, labels)
            # Examples that the sampler repeats at the end, for shares of equal size, count once.
            if n := len(range(position, len(loader.dataset), self.args.shares)[: len(labels)]):
                metric.update(*(x if x is None else x[:n] for x in outputs), labels[:n])
            position += self.args.shares * len(labels)
        model.train()
        return metric.compute().item()


def shown(loader, updates, done, title, losses, hidden):
    """Yield `updates` batches of a loader, and show a progress bar with the last loss.

    Args:
        done: updates of the epoch before these.
        losses: Losses, which are read when the bar is drawn: each reading waits for the GPU.
        hidden: show nothing, as in all processes but the first.
    """
    how = {"unit": "update", "mininterval": 0.5, "disable": hidden or not updates}
    bar = tqdm(desc=title, total=done + updates, initial=done, **how)
    for batch in itertools.islice(loader, updates) if updates else ():
        yield batch
        if bar.update():  # true if it was drawn
            bar.set_postfix_str(f"loss {losses.last.item():.3f}", refresh=False)
    bar.close()


class Meter:
    """Meter of a run: measures, prints and records memory in two phases, speed, losses, metric."""

    def __init__(self, args, fabric, precision=None, phases=Phases):
        """Print the run's settings.

        Without Fabric, `fabric` is the torch.device, and `precision` the script's own. `phases` is
        the class that measures memory; a predictor has another one.
        """
        self.args = args
        self.device = fabric if precision else fabric.device
        self.cuda = self.device.type == "cuda"
        if precision:  # without Fabric
            self.precision = precision if self.cuda else ON_CPU.get(precision, precision)
            self.scaler = None
        else:
            plugin = fabric.strategy.precision  # lightning.fabric.plugins.Precision
            self.precision, self.scaler = plugin.precision, getattr(plugin, "scaler", None)
        self.rank = this_process(args)[0]
        self.memory = phases(self.device)
        self.losses = Losses()
        self.speed = Speed(self.device)
        self.evaluator = Evaluator(args, self.device)
        self.steps = self.resumed_at = 0  # updates in all, and before --resume
        self.learned = {f"{part}_{args.task.learned}": None for part in ("train", "val")}
        self._print_settings()

    def _print_settings(self):
        args, notes = self.args, [*self.args.notes]
        if self.precision.startswith("bf16") and bf16.is_emulated(self.device):
            notes.append(bf16.NOTE + bf16.SLOW if self.cuda else bf16.NOTE)
        several = f" x {args.world_size}" if args.world_size > 1 else ""
        device = records.device_name(self.device) + several
        batch = f"{args.batch_size} {args.task.unit} per update"
        notes.append(f"{args.model} on {device}, {self.precision}, {batch}")
        notes.append("see --help for the options")
        self.print(f"{records.in_use(args.task)}\n\n{args.headline}")
        self.print("".join(f"- {note}\n" for note in notes))

    @contextlib.contextmanager
    def loading(self, loaders):
        """Measure the peak memory of building the model, in this context.

        `loaders` is the loading.Loaders of the run.
        """
        self.loaders = loaders
        self.args.task.weights(self.args, loaders)  # creating the file is not part of loading it
        with self.memory.load():
            yield

    @contextlib.contextmanager
    def training(self, model, optimizer, *others):
        """Measure the peak memory of the updates in this context.

        A checkpoint holds the state_dict() of the model, of the optimizer or of each in a list of
        optimizers, and of others, such as a scheduler.
        """
        self.metric = self.evaluator.new_metric()  # --resume fills it; a new epoch replaces it
        others += (self.scaler,) if self.scaler else ()
        self.saving = Saving(self, model, optimizer, others)
        with self.memory.train(model):
            yield
        self.saving.save()

    def progress(self, loader, epoch):
        """Yield the remaining batches of an epoch, measure each update, and show a progress bar."""
        done, left = self.loaders.start_epoch(loader, epoch, self.steps)
        if not done:
            self.metric = self.evaluator.new_metric()
        title = f"epoch {epoch + 1}/{self.loaders.epochs}"
        self.memory.reset()
        self.speed.start()
        for inputs, labels in shown(loader, left, done, title, self.losses, self.rank != 0):
            with self.memory.update(inputs, labels):
                yield inputs, labels
            self.losses.end()
            self.steps += 1
            self.speed.add(len(labels) * self.args.shares)
            self.speed.leave_out(self.saving.checkpoint())
        self.speed.stop()
        self.memory.read()
        self.ended = self.steps == min((epoch + 1) * len(loader), self.loaders.updates)
        inputs = labels = None  # free the last batch before a predictor's batches
        yield from self.memory.beyond(loader)

    def add(self, loss, logits, labels):
        """Add a micro-batch: its share of the update's loss, its logits (or None) and labels."""
        self.losses.add(loss)
        self.metric.update(loss, logits, labels)

    def validate(self, model, loader):
        """Validate the model after an epoch, unless the epoch ended before --resume."""
        if self.ended:
            name, train = self.args.task.learned, self.metric.compute().item()
            val = self.evaluator.value(model, loader)
            self.learned = {f"train_{name}": train, f"val_{name}": val}
            train, val = (records.quality(name, value) for value in (train, val))
            self.print(f"{name}: train {train}, val {val}")

    def test(self, model, loader):
        """Test the model; print the record, append it to --record, and return it."""
        args = self.args
        self.learned[f"test_{args.task.learned}"] = self.evaluator.value(model, loader)
        ranks = self._figures_of_ranks()
        # A phase is recorded as measured by the process that needs most in it.
        load = max(ranks, key=lambda rank: rank["load"]["device_peak_gb"])
        train = max(ranks, key=lambda rank: rank["train"]["device_peak_gb"])
        record = records.new(
            args.task,
            **records.settings(args, self.loaders),
            command=args.command,
            device=records.device_name(self.device),
            precision=self.precision,
            steps=self.steps,
            resumed_at=self.resumed_at or None,
            load=load["load"],
            train=train["train"],
            **({"rank": ranks.index(train)} if hasattr(model, "whole_state") else {}),
            input_shapes=train["shapes"],
            **{f"{args.task.unit}_per_second": self.speed.per_second},
            train_seconds=self.speed.seconds,
            **self.learned,
            first_loss=sum(rank["losses"][0] for rank in ranks) / args.world_size,
            last_loss=sum(rank["losses"][1] for rank in ranks) / args.world_size,
        )
        self.print(records.summary(args.task, record))
        if args.record and self.rank == 0:
            records.append(args.record, record)
        return record

    def _figures_of_ranks(self):
        """Return the measurements of each rank: phases, shapes of inputs, and losses."""
        losses = self.losses.first.item(), self.losses.last.item()
        figures = {**self.memory.fields, "shapes": self.memory.shapes, "losses": losses}
        ranks = [figures] * self.args.world_size
        if self.args.world_size > 1:
            dist.all_gather_object(ranks, figures)
        return ranks

    def print(self, text):
        """Print a text, in the first process only."""
        if self.rank == 0:
            print(text, flush=True)
