"""Simulation of a script: its own functions run on tensors without memory, and a ledger counts.

One process can simulate one script on one kind of device; jobs.py starts the processes.
"""

import contextlib
import functools
import logging
import mmap
import tempfile
import time
import warnings
from pathlib import Path
from unittest import mock

import torch
from lightning.fabric.utilities.warnings import PossibleUserWarning

from shared.cli import UserError
from shared.emulator import cards
from shared.memory.blocks import tensors
from shared.memory.torch_private import wrapped
from shared.metrics import ON_CPU, Losses
from shared.predict import allocator, gpu, history, processes
from shared.predict.bound import bound
from shared.predict.cost import Cost
from shared.predict.jobs import STEADY, arguments, one_by_one
from shared.predict.module_tracker import Lines, Whereabouts, plain
from shared.predict.recorder import Recorder, peaks
from shared.predict.workspaces import Workspaces
from shared.records import fields, scripts
from shared.records import record as records

# Warnings that do not matter in a simulation.
WARNINGS = (
    "You passed `Fabric.accelerator='cpu', precision='16-mixed'.` but",
    "FSDP2-wrapped module .* returned a view tensor",  # real runs show it
    "(.*GradScaler.*|User provided device_type of 'cuda').*CUDA is not available",
)


def fake_batch(args, n, update, device):
    """Return n uninitialized inputs and labels; texts as long as recorded, else max_length."""
    numbers = functools.partial(torch.empty, dtype=torch.long, device=device)
    if args.task.unit == "images":
        return torch.empty(n, 3, args.image_px, args.image_px, device=device), numbers(n)
    length = args.input_shapes[update][1] if args.input_shapes else args.max_length
    tokens = {"input_ids": numbers(n, length)}
    if args.task.learned == "perplexity":
        return tokens, numbers(n, length)
    return tokens | {"attention_mask": numbers(n, length)}, numbers(n)


class Results:
    """Results of an update, kept as a Meter keeps them, in tensors of the same sizes."""

    def __init__(self, task, device):
        self.losses = Losses()
        state = task.new_metric().metric_state.values()
        self.kinds = [{"size": t.shape, "dtype": t.dtype, "device": device} for t in state]

    def add(self, loss, logits, labels):
        self.losses.add(loss)
        self.counts = [torch.zeros(**kind) for kind in self.kinds]


class Simulation:
    """A script, built by its own functions; its updates can run with batches of any size."""

    def __init__(self, name, options, watched=False):
        """Load the script of a name, and build its model and optimizer.

        If watched, the ledger also keeps the running module and lines of each event.
        """
        # Failures of fake tensors end in one line of our own.
        logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", category=PossibleUserWarning)
        for message in WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        self.on_gpu, self.expandable = options.device == "gpu", options.expandable
        with self._seen():
            self.script = scripts.get(name).load()
        if options.techniques is not None:
            self.script = one_by_one(name).script(options.techniques)
        self.args = arguments(name, self.script, options)
        self.card = options.card or cards.DEFAULT
        self.without_memory = functools.partial(
            gpu.tensors_without_memory, self.card, options.torch
        )
        lines = Lines(self.script) if watched else None
        self._prepare()
        self.whereabouts, self.workspaces = Whereabouts(), None
        if self.on_gpu and not options.tensors_only:
            self.workspaces = Workspaces(self.card, options.torch)
        self.cost = Cost(self.device.type, lambda: gpu.Stream.current)
        self.rates = self.card.rates if self.on_gpu else options.rates
        module = self.whereabouts.module
        hidden = self.workspaces and self.workspaces.of_gpu
        watch = (lambda: (module(), *lines())) if watched else None
        self.ledger = Recorder(module, hidden, watch=watch)
        with self.without_memory(), self.ledger, mock.patch.object(gpu, "stepping", [True]):
            built = self.script.build(self.fabric or self.device, self.args)
            self.model, optimizer, *self.schedulers = built
        self.folder.cleanup()
        if any(isinstance(module, torch.nn.RNNBase) for module in self.model.modules()):
            raise UserError(f"{name}: the buffers of recurrent layers cannot be simulated")
        self.optimizer = optimizer
        self.optimizers = optimizer if isinstance(optimizer, list) else [optimizer]
        self.loaded = len(self.ledger.events)
        self._name("parameters")
        self.ledger.training()

    def _seen(self):
        """Return a context in which a GradScaler finds the GPU, if one is simulated."""
        on = wrapped(torch.amp.GradScaler, "__init__", _scaling)
        return on if self.on_gpu else contextlib.nullcontext()

    def _prepare(self):
        """Create what build() needs: device, processes, Fabric if it is used, a file to load."""
        args, with_fabric = self.args, hasattr(self.script, "make_fabric")
        if self.on_gpu:
            gpu.register()
            args.accelerator = gpu.Accelerator() if with_fabric else gpu.DEVICE
        if self.script.DEVICES > 1:  # even for a single one, as in main()
            processes.pretend_processes(args.world_size, gpu.DEVICE if self.on_gpu else "cpu")
        if with_fabric:
            with self._seen():
                self.fabric = self.script.make_fabric(args)
            self.fabric.launch()
            self.device = self.fabric.device
            precision = self.fabric.strategy.precision
            args.precision = precision.precision
            if self.on_gpu and hasattr(precision, "device"):
                # For autocast. Fabric assumes "cuda" for any device that is not a CPU.
                precision.device = gpu.DEVICE
        else:
            self.fabric, self.device = None, self.script.make_device(args)
            wanted = self.script.PRECISION
            args.precision = wanted if self.on_gpu else ON_CPU.get(wanted, wanted)
        # The same file that models.weights() writes, but without data.
        self.folder = tempfile.TemporaryDirectory()
        file = Path(self.folder.name) / "weights.pt"
        without_data = torch.serialization.skip_data(materialize_fake_tensors=True)
        with self.without_memory(), without_data:
            torch.save(args.task.model(args).state_dict(), file)
        args.weights_file = file
        # The file is only read. If it were mapped privately, it would have to fit into memory.
        torch.serialization.set_default_mmap_options(mmap.MAP_SHARED)

    def run(self, batch_size, micro_batch_size, updates=None):
        """Run updates, as the loop of main() does; return the place in the log where each began.

        Batch sizes are those of the script's options. By default, run STEADY updates, the last of
        which is like any later one.
        """
        args = self.args
        self.script.MICRO_BATCH_SIZE = micro_batch_size
        train_step = self.script.train_step
        if self.fabric:
            train_step = functools.partial(train_step, self.fabric)
        starts, results = [], Results(args.task, self.device)
        with self.without_memory():
            for update in range(updates or STEADY):
                starts.append(len(self.ledger.events))
                # Every later update costs as much as the last.
                self.ledger.seen = self.cost.note if update + 1 == (updates or STEADY) else None
                self.cost.start()
                inputs, labels = fake_batch(args, batch_size // args.shares, update, self.device)
                for t in tensors((inputs, labels)):
                    self.ledger.note(t, "inputs")
                with self.ledger, self.whereabouts.update():
                    train_step(self.model, self.optimizer, inputs, labels, results)
                    for scheduler in self.schedulers:
                        scheduler.step()
                    results.losses.end()
                    if update == 0 and not updates:
                        # From the third update on, the first and the last loss are two tensors.
                        results.losses.first = results.losses.first.clone()
        self._name("optimizer states")
        return starts

    def anew(self, batch_size, micro_batch_size, updates=None):
        """Run updates as in a new run; return the log of loading, followed by these updates."""
        for optimizer in self.optimizers:
            optimizer.state.clear()
        if self.workspaces:
            self.workspaces.forget()
        start = len(self.ledger.events)
        self.run(batch_size, micro_batch_size, updates)
        return self.ledger.events[: self.loaded] + self.ledger.events[start:]

    def replay(self, events, *part, limit_gb=None):
        """Return allocator.replay() of a log, with the policy of the options."""
        policy = {"expandable": self.expandable, "limit_gb": limit_gb}
        return allocator.replay(events, self.device.type, *part, **policy)

    def _name(self, what):
        """Name the storages of parameters, or of optimizer states, after the parameters."""
        for name, p in self.model.named_parameters():
            mine = p if what == "parameters" else [o.state.get(p, {}) for o in self.optimizers]
            for t in tensors(mine):
                self.ledger.name(t, plain(name))

    def peaks(self, since=0, until=None):
        """Return a record's phase, the place of its peak, and what the host held at its own."""
        part, events = (self.device.type, since, until), self.ledger.events
        if not self.on_gpu:
            phase, at, *_ = peaks(events, *part)
            return {**phase, "host_peak_gb": None}, at, None
        replayed = self.replay(events, since, until)
        events = replayed.events if self.workspaces else events
        return peaks(events, *part, replayed.allocator.peak)[:3]

    def bound(self):
        """Return a record's Bound of the last update, None without rates."""
        return bound(self.cost.operations, self.rates) if self.rates else None


# A script passes on whether CUDA is available; GradScaler checks again.
def _scaling(init, scaler, *args, **options):
    with mock.patch.object(torch.cuda, "is_available", lambda: True):
        init(scaler, *args, **{**options, "enabled": True})


def predict(name, options):
    """Return a record of a script's memory and cost; what only a real run shows is None."""
    return predicted(name, options)[0]


def predict_moments(name, options):
    """Return what holds the memory in the last update, as history.condensed() returns it."""
    record, simulation, since = predicted(name, options, watched=True)
    ledger, device, events = simulation.ledger, simulation.device.type, simulation.ledger.events
    if simulation.workspaces:
        events = simulation.replay(events, simulation.loaded).events
    return history.condensed(record, events, ledger, since, device)


def predicted(name, options, watched=False):
    """Return a record, its Simulation, and the place in its log where the last update began."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    simulation = Simulation(name, options, watched)
    args, techniques, updates = simulation.args, options.techniques, options.updates
    if options.input_shapes:
        updates = len(options.input_shapes)
    starts = simulation.run(args.batch_size, args.micro_batch_size, updates)
    load_phase, load_at, load_host = simulation.peaks(0, simulation.loaded)
    train_phase, train_at, train_host = simulation.peaks(simulation.loaded)
    known = dict(
        script=f"{scripts.get(name).folder}/before" if techniques == () else name,
        technique=techniques[-1] if techniques else None,
        preset=args.preset,
        model=args.model,
        **{args.task.input_size: getattr(args, args.task.input_size)},
        device=f"simulated {simulation.card.title if simulation.on_gpu else 'CPU'}",
        as_torch=".".join(map(str, options.torch)) if simulation.workspaces else None,
        world_size=args.world_size,
        shares=args.shares,
        precision=args.precision,
        batch_size=args.batch_size,
        micro_batch_size=args.micro_batch_size,
        steps=len(starts),
        load=load_phase,
        train=train_phase,
        peak_at={"load": load_at, "train": train_at},
        host_breakdown_gb={"load": load_host, "train": train_host},
        cost=simulation.cost.totals(),
        bound=simulation.bound(),
        seconds=time.perf_counter() - started,
    )
    return records.new(args.task, **fields.unknown(args.task) | known), simulation, starts[-1]
