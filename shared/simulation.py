"""Runs a stage's own functions on tensors without memory, and says what the ledger saw: peaks, breakdown, timeline.

One process can simulate one stage on one kind of device; shared/predict.py starts them.
"""

import datetime
import logging
import platform
import tempfile
import time
import types
import warnings
from pathlib import Path

import numpy as np
import torch
from lightning.fabric.utilities.warnings import PossibleUserWarning

from shared import UserError, allocator, cli, models, simulated_gpu, simulated_processes, stages
from shared.ledger import CATEGORIES, Ledger, tensors
from shared.figures import git_commit, versions
from shared.whereabouts import Whereabouts


class Simulation:
    """A stage, built; its updates can be run with batches of any size."""

    def __init__(self, run, options):
        """Loads the script and builds model and optimizer, with its own functions.

        Args:
            run: one of stages.runs() or stages.plain(), such as "06_sgd".
            options: from workers.wanted().

        Raises:
            UserError: the stage cannot do this.
        """
        for name in ("lightning.fabric", "lightning.pytorch"):
            logging.getLogger(name).setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", category=PossibleUserWarning)
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")  # torchmetrics copies its zeros
        warnings.filterwarnings("ignore", message="You passed `Fabric.accelerator='cpu', precision='16-mixed'.` but")
        warnings.filterwarnings("ignore", message="(.*GradScaler.*|User provided device_type of 'cuda').*CUDA is not available")
        self.script, self.technique = stages.load(run), None
        if options.techniques is not None:
            one_by_one = stages.load(run.replace("/train", "/one_by_one"))
            self.script = one_by_one.script(options.techniques)
            self.technique = (None, *one_by_one.TECHNIQUES)[options.techniques]
        self.args = arguments(run, self.script, options)
        self._prepare(gpu=options.device == "gpu")
        self.whereabouts = Whereabouts()
        self.ledger = Ledger(lambda: (self.whereabouts.module(), simulated_gpu.Stream.current))
        with simulated_gpu.tensors_without_memory(), self.ledger:
            self.model, self.optimizer, *self.schedulers = self.script.build(self.fabric or self.device, self.args)
        self.folder.cleanup()
        if options.late_zero_grad:
            self._zero_grad_late()
        self.loaded = len(self.ledger.events)
        self.ledger.training()

    def _prepare(self, gpu):
        """Makes what build() needs: devices, processes, Fabric where the script uses it, and the file to load from."""
        args = self.args
        if gpu:
            simulated_gpu.register()
            args.accelerator = simulated_gpu.Accelerator() if hasattr(self.script, "make_fabric") else simulated_gpu.DEVICE
        if hasattr(self.script, "parallelize"):  # also for one device, as in main()
            simulated_processes.pretend_processes(args.world_size, simulated_gpu.DEVICE if gpu else "cpu")
            self.script.parallelize = explained(self.script.parallelize, args)
        if hasattr(self.script, "make_fabric"):
            self.fabric = self.script.make_fabric(args)
            self.fabric.launch()
            self.device = self.fabric.device
            precision = self.fabric.strategy.precision
            args.precision = precision.precision
            if gpu and hasattr(precision, "device"):
                precision.device = simulated_gpu.DEVICE  # autocast's; Fabric says "cuda" for whatever is not a CPU
        else:
            self.fabric, self.device = None, self.script.make_device(args)
        # The same file as models.checkpoint() writes, with holes in place of the numbers.
        self.folder = tempfile.TemporaryDirectory()
        file = Path(self.folder.name) / "checkpoint.pt"
        with simulated_gpu.tensors_without_memory(), torch.serialization.skip_data(materialize_fake_tensors=True):
            torch.save(args.task.classifier(args).state_dict(), file)
        models.checkpoint = args.task.checkpoint = lambda _: file

    def _zero_grad_late(self):
        if self.args.micro_batch_size:
            raise UserError(f"{self.args.stage}: --late-zero-grad would wipe out the sum of its micro-batches; 01 to 04 have none")
        backward, zero_grad = self.fabric.backward, self.optimizer.zero_grad
        self.fabric.backward = lambda loss: (zero_grad(), backward(loss))
        self.optimizer.zero_grad = lambda: None

    def run(self, batch_size, micro_batch_size, updates):
        """Runs updates, as main() does in its loop.

        Args:
            batch_size: images or texts per update, over all processes.
            micro_batch_size: of them per forward pass and process, or None for all at once.
            updates: how many.

        Returns:
            the place in the ledger's log at which each update began.
        """
        args = self.args
        self.script.MICRO_BATCH_SIZE = micro_batch_size
        starts, first_loss = [], None
        with simulated_gpu.tensors_without_memory():
            with self.device:
                counts = [torch.zeros(1, dtype=torch.long) for _ in range(4)]
            for update in range(updates):
                starts.append(len(self.ledger.events))
                inputs, labels = args.task.fake_batch(args, batch_size // args.world_size, update, self.device)
                for t in tensors((inputs, labels)):
                    self.ledger.note(t, "inputs")
                with self.ledger, self.whereabouts:
                    loss, logits = self.script.train_step(*([self.fabric] if self.fabric else []), self.model, self.optimizer, inputs, labels)
                    for scheduler in self.schedulers:
                        scheduler.step()
                    # What Meter keeps from update to update: the first loss, and torchmetrics' counts of hits and misses,
                    # which themselves cannot be used here, since a copy of a fake tensor corrupts memory.
                    first_loss = loss if first_loss is None else first_loss
                    counts = [count + 1 for count in counts]
        return starts

    def peaks(self, since=0, until=None):
        """Returns what a phase of a record holds, and besides: where the peak is, and what the host held at its own."""
        device, gpu = self.device.type, self.device.type == simulated_gpu.DEVICE
        peak, held, last = self.ledger.summit(device, since, until)
        host_peak, host_held, _ = self.ledger.summit("cpu", since, until)
        phase = {
            "device_peak_gb": peak / 1e9,
            "device_reserved_gb": allocator.reserved(self.ledger.events, device, since, until) / 1e9 if gpu else None,
            "host_peak_gb": host_peak / 1e9 if gpu else None,
            "breakdown_gb": {label: nbytes / 1e9 for label, nbytes in held.items()},
        }
        host = {label: nbytes / 1e9 for label, nbytes in host_held.items()} if gpu else None
        return phase, {"phase": last and last.phase, "module": last and last.module}, host


def arguments(run, script, options):
    """Returns the options that cli.parse and the data would give a script.

    Raises:
        UserError: there is no such model, or a size does not fit another.
    """
    asked = stages.asked_of_cli(script)
    task, micro = asked["task"], asked["micro_batch_size"]
    stage, _, name = run.partition("/")
    args = types.SimpleNamespace(stage=stage, script=name or "train", preset=options.preset, model=options.model, data="fake", pretrained=False, seed=123)
    args.max_length, args.trust_remote_code, args.input_shapes = options.max_length, options.trust_remote_code, options.input_shapes
    cli.choose(args, task)
    args.accelerator = "cpu"
    args.image_px = options.image_px or getattr(args, "image_px", None)
    args.num_classes = options.num_classes or task.CLASSES
    args.batch_size = options.batch_size or asked["batch_size"]
    args.micro_batch_size = (options.micro_batch_size or micro) if micro else None
    args.devices = args.world_size = (options.devices or asked["devices"]) if hasattr(script, "parallelize") else 1
    args.num_nodes = 1
    args.precision = cli.precision_on(options.device, asked["precision"])
    args.updates = options.updates
    if args.batch_size % args.world_size:
        raise UserError(f"{run}: a batch of {args.batch_size} {task.UNIT} does not divide by {args.world_size} devices; choose --batch-size or --devices so that it does")
    here = args.batch_size // args.world_size
    if micro and options.micro_batch_size and args.micro_batch_size > here:
        raise UserError(f"{run}: --micro-batch-size {args.micro_batch_size}: a device gets only {here} {task.UNIT} of a batch; choose a larger --batch-size")
    return args


def explained(parallelize, args):
    """Returns a stage's parallelize(), made to say in one line that it cannot do it, as a UserError."""

    def wrapper(model, mesh):
        try:
            return parallelize(model, mesh)
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"{args.stage} cannot shard {args.model} over {args.world_size} devices: {str(error).splitlines()[0]}") from error

    return wrapper


def predict(run, options, timeline=False):
    """Predicts a script's memory.

    Returns:
        a record as Meter.report() makes one, with null for what only a real training tells, and besides: technique, the last
        one that was applied, if not all; peak_at, where
        the peak of each phase is; host_breakdown_gb; seconds, what it took. With timeline, (record, what history() returns).

    Raises:
        UserError: the stage cannot do this.
    """
    torch.set_num_threads(1)
    started = time.perf_counter()
    simulation = Simulation(run, options)
    args = simulation.args
    starts = simulation.run(args.batch_size, args.micro_batch_size, args.updates)
    load_phase, load_at, load_host = simulation.peaks(0, simulation.loaded)
    train_phase, train_at, train_host = simulation.peaks(simulation.loaded)
    record = {
        "stage": args.stage,
        "script": "before" if options.techniques == 0 else args.script,
        "technique": simulation.technique,
        "preset": args.preset,
        "model": args.model,
        **args.task.settings(args),
        "pretrained": None,
        "dataset": None,
        "device": f"simulated {options.device.upper()}",
        "world_size": args.world_size,
        "precision": args.precision,
        "batch_size": args.batch_size,
        "micro_batch_size": args.micro_batch_size,
        "seed": None,
        "epochs": None,
        "steps": len(starts),
        "load": load_phase,
        "train": train_phase,
        "input_shapes": None,
        **dict.fromkeys((f"{args.task.UNIT}_per_second", "train_seconds", "train_accuracy", "val_accuracy", "test_accuracy", "first_loss", "last_loss")),
        "versions": {"python": platform.python_version(), **versions(args.task)},
        "git_commit": git_commit(),
        "command": None,
        "date": datetime.date.today().isoformat(),
        "peak_at": {"load": load_at, "train": train_at},
        "host_breakdown_gb": {"load": load_host, "train": train_host},
        "seconds": time.perf_counter() - started,
    }
    return (record, history(simulation, starts[-1])) if timeline else record


def history(simulation, since):
    """Returns who held memory during the last update, after every event of the ledger's log.

    Returns:
        {"phases": ["forward", "backward" or "step", one per event], "device": GB, (events, categories), in the order of
        CATEGORIES; "host": the same, None on a CPU}.
    """
    ledger, column = simulation.ledger, {label: i for i, label in enumerate(CATEGORIES)}
    held = {device: np.zeros((len(ledger.events), len(CATEGORIES)), dtype=np.int64) for device in (simulation.device.type, "cpu")}
    for i, (block, change) in enumerate(ledger.events):
        if block.device in held:
            held[block.device][i, column[block.label]] = change
    phases = ledger.phases[since:]
    last = max(i for i, phase in enumerate(phases) if phase == "backward")
    phases[last + 1 :] = ["step"] * (len(phases) - last - 1)  # with zero_grad(), which frees the gradients
    host = held["cpu"].cumsum(0)[since:] / 1e9 if simulation.device.type != "cpu" else None
    return {"phases": phases, "device": held[simulation.device.type].cumsum(0)[since:] / 1e9, "host": host}
