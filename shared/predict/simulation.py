"""Runs a script's own functions on tensors without memory, and returns what the ledger counted.

One process can simulate one script on one kind of device; jobs.py starts them.
"""

import functools
import logging
import tempfile
import time
import types
import warnings
from pathlib import Path

import torch
from lightning.fabric.utilities.warnings import PossibleUserWarning

from shared.common import options as common
from shared.common import scripts
from shared.common.devices import precision_on
from shared.common.errors import UserError
from shared.common.mapping import mappable
from shared.memory.ledger import Ledger, tensors
from shared.predict import allocator, gpu, processes
from shared.predict.history import history
from shared.predict.limits import reasonable, reasonable_peak
from shared.predict.whereabouts import Whereabouts
from shared.records import record as records

# Warnings that do not matter in a simulation.
WARNINGS = (
    "Accessing the data pointer of FakeTensor",  # torchmetrics copies its zeros
    "You passed `Fabric.accelerator='cpu', precision='16-mixed'.` but",
    "FSDP2-wrapped module .* returned a view tensor",  # the training itself says so
    "(.*GradScaler.*|User provided device_type of 'cuda').*CUDA is not available",
)

# The first update makes optimizer states and gradients. The second starts with all of them, and
# every later update holds the same.
STEADY = 2


class Simulation:
    """A script, built; its updates can be run with batches of any size."""

    def __init__(self, name, options):
        """Loads the script and builds model and optimizer, with its own functions.

        Args:
            name: of the script, such as "06_sgd/train".
            options: jobs.Wanted.

        Raises:
            UserError: the script cannot do this.
        """
        common.quiet(logging.ERROR)
        # What fails there ends in one line.
        logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", category=PossibleUserWarning)
        for message in WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        self.script, self.technique = scripts.get(name).load(), None
        if options.techniques is not None:
            steps, devices = one_by_one(name), options.devices or self.script.DEVICES
            self.script = steps.script(options.techniques, devices)
            self.technique = (None, *steps.techniques(devices))[options.techniques]
        self.args = arguments(name, self.script, options)
        self._prepare(on_gpu=options.device == "gpu")
        self.whereabouts = Whereabouts()
        self.ledger = Ledger(lambda: (self.whereabouts.module(), gpu.Stream.current))
        with gpu.tensors_without_memory(), self.ledger:
            built = self.script.build(self.fabric or self.device, self.args)
            self.model, self.optimizer, *self.schedulers = built
        self.folder.cleanup()
        if options.late_zero_grad:
            self._zero_grad_late()
        self.loaded = len(self.ledger.events)
        self.ledger.training()

    def _prepare(self, on_gpu):
        """Makes what build() needs: device, processes, Fabric if it is used, a file to load."""
        args, with_fabric = self.args, hasattr(self.script, "make_fabric")
        if on_gpu:
            gpu.register()
            args.accelerator = gpu.Accelerator() if with_fabric else gpu.DEVICE
        if self.script.DEVICES > 1:  # even if only one is wanted, as in main()
            processes.pretend_processes(args.world_size, gpu.DEVICE if on_gpu else "cpu")
        if hasattr(self.script, "parallelize"):
            self.script.parallelize = explained(self.script.parallelize, args)
        if with_fabric:
            self.fabric = self.script.make_fabric(args)
            self.fabric.launch()
            self.device = self.fabric.device
            precision = self.fabric.strategy.precision
            args.precision = precision.precision
            if on_gpu and hasattr(precision, "device"):
                # For autocast. Fabric takes "cuda" for any device that is not a CPU.
                precision.device = gpu.DEVICE
        else:
            self.fabric, self.device = None, self.script.make_device(args)
            args.precision = precision_on("cuda" if on_gpu else "cpu", self.script.PRECISION)
        # The same file as models.checkpoint() writes, but without data.
        self.folder = tempfile.TemporaryDirectory()
        file = Path(self.folder.name) / "checkpoint.pt"
        without_data = torch.serialization.skip_data(materialize_fake_tensors=True)
        with gpu.tensors_without_memory(), without_data:
            torch.save(args.task.model(args).state_dict(), file)
        args.checkpoint_file = mappable(file)

    def _zero_grad_late(self):
        if self.args.micro_batch_size:
            raise UserError(
                f"{self.args.script}: --late-zero-grad would wipe out the sum of its "
                "micro-batches; 01 to 04 have none"
            )
        if isinstance(self.optimizer, list):
            raise UserError(
                f"{self.args.script}: --late-zero-grad is about gradients that wait for a step; "
                "here each is used at once"
            )
        backward, zero_grad = self.fabric.backward, self.optimizer.zero_grad
        self.fabric.backward = lambda loss: (zero_grad(), backward(loss))
        self.optimizer.zero_grad = lambda: None

    def run(self, batch_size, micro_batch_size, updates):
        """Runs updates, as main() does in its loop.

        Args:
            batch_size: images or texts per update, over all processes.
            micro_batch_size: of them per forward pass and process, or None for all at once.
            updates: how many; None for STEADY, the last of which is as any later one.

        Returns:
            the place in the ledger's log at which each update began.
        """
        args = self.args
        self.script.MICRO_BATCH_SIZE = micro_batch_size
        train_step = self.script.train_step
        if self.fabric:
            train_step = functools.partial(train_step, self.fabric)
        starts, first_loss = [], None
        with gpu.tensors_without_memory():
            with self.device:
                counts = [torch.zeros(1, dtype=kind) for kind in args.task.counts]
            for update in range(updates or STEADY):
                starts.append(len(self.ledger.events))
                share = batch_size // args.shares
                inputs, labels = args.task.fake_batch(args, share, update, self.device)
                for t in tensors((inputs, labels)):
                    self.ledger.note(t, "inputs")
                with self.ledger, self.whereabouts:
                    loss, logits = train_step(self.model, self.optimizer, inputs, labels)
                    for scheduler in self.schedulers:
                        scheduler.step()
                    # Meter keeps the first loss and the last one, two tensors from the third update
                    # on, which the clone stands for; and torchmetrics' counts. torchmetrics
                    # itself cannot be used here, since copying a fake tensor corrupts memory.
                    if first_loss is None:
                        first_loss = loss if updates else loss.clone()
                    counts = [count + 1 for count in counts]
        return starts

    def peaks(self, since=0, until=None):
        """Returns a record's phase, where its peak is, and what the host held at its own peak."""
        device, on_gpu = self.device.type, self.device.type == gpu.DEVICE
        peak, held, last = self.ledger.summit(device, since, until)
        host_peak, host_held, _ = self.ledger.summit("cpu", since, until)
        reserved = None
        if on_gpu:
            reserved = allocator.reserved(self.ledger.events, device, since, until) / 1e9
        phase = {
            "device_peak_gb": peak / 1e9,
            "device_reserved_gb": reserved,
            "host_peak_gb": host_peak / 1e9 if on_gpu else None,
            "breakdown_gb": {label: nbytes / 1e9 for label, nbytes in held.items()},
        }
        host = {label: nbytes / 1e9 for label, nbytes in host_held.items()} if on_gpu else None
        return phase, {"phase": last and last.phase, "module": last and last.module}, host


def one_by_one(name):
    """Returns the module one_by_one of a script's folder."""
    folder = scripts.get(name).folder
    return scripts.Script(f"{folder}/one_by_one", "", "", None, False).load()


def arguments(name, script, options):
    """Returns the options that cli.parse and the data would give a script.

    Args:
        name: of the script.
        script: the module.
        options: jobs.Wanted.

    Raises:
        UserError: there is no such model, or a size does not fit another.
    """
    task, micro = script.cli.TASK, getattr(script, "MICRO_BATCH_SIZE", None)
    args = types.SimpleNamespace(
        script=name,
        preset=options.preset,
        model=options.model,
        data="fake",
        pretrained=False,
        seed=123,
        max_length=options.max_length,
        trust_remote_code=options.trust_remote_code,
        input_shapes=options.input_shapes,
    )
    common.choose(args, task)
    args.accelerator = "cpu"
    args.image_px = options.image_px or getattr(args, "image_px", None)
    args.num_classes = options.num_classes or task.classes
    args.batch_size = options.batch_size or script.BATCH_SIZE
    args.micro_batch_size = (options.micro_batch_size or micro) if micro else None
    devices = (options.devices or script.DEVICES) if script.DEVICES > 1 else 1
    args.devices = args.world_size = devices
    args.num_nodes = 1
    args.updates = options.updates or STEADY  # of the whole training, for schedules
    args.shares = getattr(script, "SHARES", devices)
    if args.batch_size % args.world_size:
        raise UserError(
            f"{name}: a batch of {args.batch_size} {task.unit} does not divide by "
            f"{args.world_size} devices; choose --batch-size or --devices so that it does"
        )
    here = args.batch_size // args.shares
    if micro and options.micro_batch_size and args.micro_batch_size > here:
        raise UserError(
            f"{name}: --micro-batch-size {args.micro_batch_size}: a device gets only {here} "
            f"{task.unit} of a batch; choose a larger --batch-size"
        )
    reasonable(args)
    return args


def explained(parallelize, args):
    """Returns a script's parallelize(), made to raise a UserError of one line if it fails."""

    def wrapper(model, mesh):
        try:
            return parallelize(model, mesh)
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            why = str(error).splitlines()[0]
            n = args.world_size
            raise UserError(
                f"{args.script} cannot shard {args.model} over {n} devices: {why}"
            ) from error

    return wrapper


def predict(name, options, timeline=False):
    """Predicts a script's memory.

    Args:
        name: of the script.
        options: jobs.Wanted.
        timeline: whether to return what history() does, too.

    Returns:
        a record, with null for what only a real training shows; or (record, history).

    Raises:
        UserError: the script cannot do this.
    """
    torch.set_num_threads(1)
    started = time.perf_counter()
    simulation = Simulation(name, options)
    args = simulation.args
    updates = options.updates
    if options.input_shapes:
        updates = len(options.input_shapes)
    elif options.late_zero_grad:
        updates = updates or STEADY + 1  # the first gradients are freed an update later
    starts = simulation.run(args.batch_size, args.micro_batch_size, updates)
    load_phase, load_at, load_host = simulation.peaks(0, simulation.loaded)
    train_phase, train_at, train_host = simulation.peaks(simulation.loaded)
    reasonable_peak(name, train_phase["device_peak_gb"])
    record = records.new(
        args.task,
        script=f"{scripts.get(name).folder}/before" if options.techniques == 0 else name,
        technique=simulation.technique,
        preset=args.preset,
        model=args.model,
        **args.task.settings(args),
        device=f"simulated {options.device.upper()}",
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
        seconds=time.perf_counter() - started,
    )
    if not timeline:
        return record
    return record, history(simulation.ledger, starts[-1], simulation.device.type)
