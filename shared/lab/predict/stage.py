"""A script of this repository on an emulated card: its own main() runs, and its Meter measures."""

import contextlib
import dataclasses
import functools
import math
import tempfile
import time
from pathlib import Path
from unittest import mock

import torch
from tqdm import tqdm

from emulated_gpu import cards, launch
from emulated_gpu.why import history
from emulated_gpu.why.fit import PLENTY_GB
from emulated_gpu.why.whereabouts import plain
from shared import metrics
from shared.images import models
from shared.lab.predict.forks import run_all
from shared.lab.predict.lines import Lines
from shared.lab.records.reading import unit
from shared.memory.accounting.blocks import tensors
from shared.memory.phases import Phases
from shared.run.errors import UserError

LEARNED = ("accuracy", "perplexity", "reward")
# Fields of the Meter that mean nothing on an emulated GPU, which computes nothing.
MEANINGLESS = "pretrained dataset seed epochs resumed_at first_loss last_loss train_seconds".split()
MEANINGLESS += [f"{part}_{name}" for part in ("train", "val", "test") for name in LEARNED]
MEANINGLESS += ["images_per_second", "texts_per_second", "input_shapes"]
UPDATES = 3  # the second is the first with everything allocated at its start


def _drawn_with_every_update(**options):
    # Not by this machine's clock: figures must not depend on it.
    return tqdm(**options | {"mininterval": 0})


class WatchedPhases(Phases):
    """The phases of a run, with a Watch of their operations.

    `loaded`, `begins` and `ends` are numbers of operations: when training began, and when each
    update began and ended.
    """

    def __init__(self, stage, device):
        super().__init__(device)
        self.stage = stage
        self.watch = stage.watch
        self.loaded = 0
        self.begins = []
        self.ends = []
        self.times = []  # process.times() when each update began, and at its end

    @contextlib.contextmanager
    def load(self):
        """Measure building the model, and watch the operations."""
        with self.watch.at_work(), super().load():
            yield
        self.watch.building = False
        self.loaded = len(self.watch.places)

    @contextlib.contextmanager
    def train(self, model):
        """Measure all updates; first take the names of the parameters."""
        self.watch.names = {p: plain(name) for name, p in model.named_parameters()}
        with super().train(model):
            yield

    @contextlib.contextmanager
    def update(self, inputs, labels):
        """Measure an update: its memory, cost and time."""
        from emulated_gpu import process  # it exists only where a GPU is emulated

        self.watch.cost.start()
        self.begins.append(len(self.watch.places))
        self.times.append(process.times())
        for t in tensors((inputs, labels)):
            self.watch.label(t, "inputs")
        with self.watch.at_work(), super().update(inputs, labels):
            yield
        self.ends.append(len(self.watch.places))
        self.times.append(process.times())
        self.watch.place()  # what comes after, such as validation, does not belong to the update

    def beyond(self, loader):
        return self.stage.beyond(loader)


class Stage:
    """A scripts.Script as options (jobs.Wanted) ask for it, on an emulated card of this process."""

    def __init__(self, script, options, with_lines=False, further=None):
        """Load the script, and set its constants.

        `further(stage, loader)`, if given, yields batches after those of the script.
        """
        self.options = options
        self._with_lines = with_lines
        self._further = further
        self.script = script.load()
        # A constant of the script, too: the name that its main() calls.
        self.script.Meter = functools.partial(metrics.Meter, phases=self._new_phases)
        for constant in ("BATCH_SIZE", "MICRO_BATCH_SIZE"):
            # Options are for all scripts of a command, and some take their batch at once.
            size = getattr(options, constant.lower())
            if size and hasattr(self.script, constant):
                setattr(self.script, constant, size)
        self.micro = getattr(self.script, "MICRO_BATCH_SIZE", None)
        several = self.script.DEVICES > 1
        self.devices = (options.devices or self.script.DEVICES) if several else 1
        self.phases = self.own = None

    def arguments(self):
        """Return the words of the command line that runs the script."""
        options, full = self.options, self.options.preset == "full"
        words = ["--preset", options.preset, "--max-steps", UPDATES]
        if full or options.model:  # noise and random weights, in place of what would be downloaded
            words += ["--dry-run"]
        words += ["--model", options.model] if options.model else []
        words += ["--max-length", options.max_length] if options.max_length else []
        words += ["--trust-remote-code"] * options.trust_remote_code
        # The world size goes through torchrun's variables: it may exceed the number of GPUs.
        words += ["--devices", 1] if self.script.DEVICES > 1 and self.devices == 1 else []
        return [str(word) for word in (*words, *options.words)]

    def run(self):
        """Run the script; return the record of its Meter.

        Raises:
            torch.OutOfMemoryError: the card is too small.
        """
        from emulated_gpu.why.watch import Watch  # it exists only where a GPU is emulated

        self._take_card()
        self.watch = Watch(self._line() if self._with_lines else lambda: None)
        with contextlib.ExitStack() as stack:
            # A bar that is drawn reads a loss from the GPU, and waits for it.
            stack.enter_context(mock.patch.object(metrics, "tqdm", _drawn_with_every_update))
            # Scripts have no such option, since pretrained weights fit one size of images.
            if px := self.options.image_px:
                stack.enter_context(mock.patch.object(models, "image_px", lambda name: px))
            try:
                return self.script.main(self.arguments())
            except RuntimeError as error:  # a pipeline's, about the one that is its cause
                if isinstance(error.__cause__, torch.OutOfMemoryError):
                    raise error.__cause__ from None
                raise

    def _new_phases(self, device):
        self.phases = WatchedPhases(self, device)
        return self.phases

    def beyond(self, loader):
        """Return batches after those of the script; store the cost of the script's own update."""
        self.own = self._own_cost()  # not that of further batches, which may be smaller
        return self._further(self, loader) if self._further else ()

    def _own_cost(self):
        """Return the fields of a record on the cost and time of the script's own last update."""
        from emulated_gpu import process

        cost, times = self.watch.cost, self.phases.times
        return {
            "cost": cost.totals(),
            "time": process.passed(times[-3], times[-1]),  # from the end of the update before
        }

    def _line(self):
        """Return a function that finds the running lines of the script, for a Watch."""
        lines, file = Lines(self.script), self.script.__file__.rpartition("/")[2]

        def line():
            numbers = lines()
            return (file, *numbers) if any(numbers) else None

        return line

    def _take_card(self):
        """Give this process the card of the options, with its memory and ranks."""
        from emulated_gpu import process

        card, gb = self.options.card, self.options.card_gb or PLENTY_GB
        options, alone = self.options, self.devices > 1
        how = {"host_us": options.host_us, "alone": alone, "rank": options.rank or 0}
        how |= {"memory_gb": gb, "context_gb": cards.set_aside(self.devices)}
        process.become(launch.settings(card, self.devices, **how))
        if self.options.expandable:
            torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        # Jobs run side by side; with more threads each, they would mostly wait for each other.
        torch.set_num_threads(1)


def predicted(script, options, tries=None, with_lines=False):
    """Return a script's record, its Trace and its Stage; `tries` are a sizes.Tries, or None."""
    from emulated_gpu import process
    from emulated_gpu.why.trace import Trace

    started = time.perf_counter()
    stage = Stage(script, options, with_lines, tries and tries.batches)
    if tries:
        tries.follow(stage)
    record = stage.run()
    if not isinstance(record, dict):  # of a script that somebody has changed
        raise UserError(f"{script.name}: main() has to return what meter.test() returns")
    phases, watch = stage.phases, stage.watch
    if len(phases.ends) < UPDATES:  # of the tiny preset, whose data are few
        most = f"make {len(phases.ends)} updates, not {UPDATES}; take a smaller --batch-size"
        raise UserError(
            f"{script.name}: with {record['batch_size']} {unit(record)} at once, its data {most}"
        )
    trace = Trace(watch)
    # The script's own updates: any that follow are those of a search for sizes.
    first, end = trace.index(phases.loaded), trace.index(phases.ends[UPDATES - 1])
    for field in MEANINGLESS:
        record.pop(field, None)
    if "rank" in record:  # the Meter has figures of this process alone
        record["rank"] = options.rank or 0
    record |= {
        "script": script.name,
        "technique": options.technique,
        "device": f"emulated {options.card.title}",
        "peak_at": {"load": trace.peak_at(0, first), "train": trace.peak_at(first, end)},
        **stage.own,
        "kept_by": process.kept_by(),
        "seconds": time.perf_counter() - started,
    }
    return record, trace, stage


def with_most(script, options):
    """Return options with the rank that needs most memory, of a script whose ranks differ.

    Each rank of a pipeline computes other blocks; of other scripts, rank 0 stands for all.
    """
    stage = Stage(script, options)
    # A script that imports this name gives each rank a part of the model.
    if options.rank is not None or not hasattr(stage.script, "PipelineStage"):
        return options
    # A process becomes one rank, once, so each runs in a process of its own.
    ranks = [dataclasses.replace(options, rank=rank) for rank in range(stage.devices)]
    peaks = run_all([(_peak_gb, script, one) for one in ranks], workers=1)
    # The caller will see why a rank has failed.
    peaks = [math.inf if isinstance(peak, Exception) else peak for peak in peaks]
    return ranks[peaks.index(max(peaks))]


def _peak_gb(script, options):
    """Return the peak of a run in GB."""
    return predicted(script, options)[0]["train"]["device_peak_gb"]


def predict(script, options):
    """Return a record of the memory and cost of a scripts.Script."""
    return predicted(script, with_most(script, options))[0]


def predict_moments(script, options):
    """Return the timeline of the last update's memory: the result of history.condensed()."""
    record, trace, stage = predicted(script, with_most(script, options), with_lines=True)
    since, end = (trace.index(n) for n in (stage.phases.begins[-1], stage.phases.ends[-1]))
    return history.condensed(record, trace, since, end)


def predict_work(script, options):
    """Return when the GPU is at work in the last update: [(begin, end)] in ms.

    No time of this machine is in the figures.
    """
    from emulated_gpu import process

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "work")
        stage = Stage(script, options)
        process.log_work(file)
        stage.run()
        process.work_count()  # which writes the last one
        since, until = (times["pieces"] for times in stage.phases.times[-2:])
        lines = [line.split() for line in file.read_text().splitlines()[since:until]]
    spans = [(int(begin), int(end)) for _, _, begin, end in lines]
    started = min(begin for begin, _ in spans)
    return [tuple((ns - started) / 1e6 for ns in span) for span in spans]
