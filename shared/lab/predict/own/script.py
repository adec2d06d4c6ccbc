"""A run of a script as with `python script.py`, inside of a process with an emulated GPU."""

import contextlib
import os
import runpy
import sys
import time
import weakref
from pathlib import Path
from unittest import mock

import torch
import torch.multiprocessing as mp
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_post_hook

from emulated_gpu import process
from shared.lab.predict.own import files, inputs
from shared.lab.predict.watch import Watch
from shared.memory.blocks import tensors
from shared.memory.torch_private import wrapped

OURS = str(Path(__file__).parents[2])
PLENTY = 128  # batches that a script may take before it trains with one
FURTHER = 3  # updates after those, or epochs, after which a script that does not end is stopped
END = object()


class Enough(BaseException):
    """Raised to end a script that would continue with updates like those before."""


def shape_of(batch):
    """Return the shape of a batch's inputs and whether they are floating-point numbers, or None.

    The batch itself must not be kept, which would take memory.
    """
    first = next(tensors(batch), None)
    if first is None or not first.ndim:
        return None
    # Detection takes a list of images, which may differ in size.
    listed = next((x for x in batch if isinstance(x, (list, tuple))), ())
    several = len(listed) > 1 and all(getattr(x, "ndim", 0) == 3 for x in listed)
    shape = (len(listed) if several else len(first), *first.shape[not several :])
    return shape, first.is_floating_point()


class Run:
    """A running script, and what is known about it."""

    def __init__(self, file, updates, timed):
        """Prepare to run a script, a Path: watch some updates, and leave the next ones alone."""
        self.file, self.wanted, self._timed = file, updates, timed
        self._folder = f"{file.parent}{os.sep}"
        self.files = files.Files(self.note)
        self.noted = {}  # text -> where it holds
        self.inputs = self.stopped = None
        # The first module that trained, which may go; its name, and the types of its modules.
        self._model, self.trains, self.kinds = lambda: None, None, ()
        self.loaded = None  # the number of operations when training began, and the peaks until then
        self.load_peaks = dict.fromkeys(process.PEAKS, 0)
        self.starts = []  # the same, of each update, and the end of the last
        self.totals, self.operations = None, []  # of the last update that was watched
        self.batch, self.sizes = 0, []  # of such an update, and of its parts
        self.seen, self._given = [], None  # sizes; shape_of() the last forward pass
        # The steps of each optimizer, which may go; of the script itself, if it has none.
        self._steps, self.updates = weakref.WeakKeyDictionary(), 0
        self._epochs, self.backwards = 0, 0
        self._fetching, self._ends = 0.0, []  # seconds in which batches were made; see host_ms()
        self.watch = Watch(self.line)
        # Of training, without the timed updates: (peaks, the numbers of operations of a part).
        self.parts, self._since = [], 0
        self._watching, self.is_alone = contextlib.ExitStack(), False

    # What is known about the script.

    def line(self):
        """Return (file, number, None) of the running line of the script, None outside of it."""
        frame = sys._getframe(1)
        while frame:
            if self.is_own(frame.f_code.co_filename):
                return Path(frame.f_code.co_filename).name, frame.f_lineno, None
            frame = frame.f_back
        return None

    def is_own(self, name):
        """Return whether a file is of the script: in its folder, and neither ours nor installed."""
        inside = name.startswith(self._folder) and not name.startswith(OURS)
        return inside and "site-packages" not in name[len(self._folder) :]

    def note(self, text):
        """Print a note on the running line, once."""
        if text not in self.noted:
            at = self.line()
            self.noted[text] = f"{at[0]}:{at[1]}" if at else self.file.name
            print(f"- {self.noted[text]} {text}", file=sys.stderr, flush=True)

    @property
    def model(self):
        return self._model()

    # Events of its run.

    def forward(self, module, args):
        """Note the first call of a module that trains: there, the training phase begins."""
        if torch.compiler.is_compiling():
            return
        if next(module.parameters(), None) is None:  # such as a transform of torchvision
            return
        trains = module.training and torch.is_grad_enabled()
        if self.watch.has_changed and self.backwards and {*self._steps} <= {self}:
            self.stepped(self)  # the script updates its weights without an optimizer
            if self.model is not None:
                self.watch.note_group({"params": self.model.parameters()})
        self.watch.has_changed = False
        self._take_turns(trains)
        if self.loaded is None and trains:
            while isinstance(inner := getattr(module, "module", None), torch.nn.Module):
                module = inner
            self._model, self.trains = weakref.ref(module), type(module).__name__
            self.kinds = {type(each) for each in module.modules()}
            self.watch.note_group({"params": module.parameters()})
            self.watch.weights = {
                process.address(p)
                for p in module.parameters()
                if not is_lazy(p) and process.on_gpu(p)
            }
            self._begin_training()
        if trains and self.watch.is_between_modules():
            self._given = shape_of(args)

    def _begin_training(self):
        self.watch.building = False
        self.loaded = len(self.watch.places)
        self._since = self.loaded
        self.load_peaks = process.restart_peaks()
        self.starts.append(self.loaded)

    def _take_turns(self, trains):
        """Leave the updates after the wanted ones alone, and attend to what comes then."""
        timed = self.wanted <= self.updates < self.wanted + self._timed and self not in self._steps
        if not trains or not timed:
            self._attend()
        elif not self._ends:
            self._leave_alone()

    def _see(self, given):
        """Keep the size of a batch, given what shape_of() returned; and the first shape."""
        if given:
            self.seen.append(given[0][0])
            self.inputs = self.inputs or given

    def backward(self, original, *args, **kwargs):
        self.backwards += 1
        if not self._steps and self.backwards > PLENTY:
            self.stop(f"backward pass {PLENTY}, without an update")
        self._take_turns(trains=True)
        if not self.seen:  # it has no loader, as in reinforcement learning
            self._see(self._given)
        if self.loaded is None:  # no module was called, only functions of torch.compile()
            self._begin_training()
        return original(*args, **kwargs)

    def stepped(self, optimizer, *_):
        """Count the steps of an optimizer; the first one to step ends an update."""
        self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
        if self._steps[optimizer] > self.updates:
            self.updates = self._steps[optimizer]
            self._updated()

    def _updated(self):
        if self.updates <= self.wanted:
            self.starts.append(len(self.watch.places))
            self.totals = self.watch.cost.totals()
            self.operations = list(self.watch.cost.operations)
            if self.seen:
                self.batch, self.sizes, self.seen = sum(self.seen), self.seen, []
        self.watch.cost.start()
        if self.is_alone:
            self._ends.append(time.perf_counter() - self._fetching)
        if self.updates >= self.wanted + self._timed + FURTHER:
            self.stop(f"update {self.updates}")

    def _leave_alone(self):
        """Let updates run with nothing of ours, and without values, to take their time."""
        self.is_alone, self._ends = True, [time.perf_counter() - self._fetching]
        self._watching.close()
        self._end_part()
        self.watch.place()  # what is allocated from here on belongs to no part
        process.end_values()

    def _attend(self):
        if self.is_alone:
            self.is_alone = False
            process.restart_peaks()
            self._since = len(self.watch.places)
            self.watch.place()
            process.begin_values()
            self._watching.enter_context(self.watch.at_work())

    def _end_part(self):
        self.parts.append((process.restart_peaks(), (self._since, len(self.watch.places))))

    def end(self):
        """End what counts as training; the timed updates do not."""
        if not self.is_alone:
            self._end_part()

    def host_ms(self):
        """Return the milliseconds that this computer took to launch an update, None if unknown.

        The first of the timed updates is left out: it warms up.
        """
        ends = self._ends[1:]
        return (ends[-1] - ends[0]) / (len(ends) - 1) * 1e3 if len(ends) > 1 else None

    def stop(self, when):
        self.stopped = when
        raise Enough

    def batches(self, batches):
        """Yield a loader's first batches: as many as the wanted updates take, or a few."""
        before, count, trains, enough = self.backwards, 0, False, self.wanted + self._timed
        while True:
            began = time.perf_counter()
            batch = next(batches, END)
            self._fetching += time.perf_counter() - began
            if batch is END:
                self._attend()
                return
            self.watch.inputs = {t.data_ptr() for t in tensors(batch)}
            fetching = torch.is_grad_enabled() and (self.model is None or self.model.training)
            if fetching:
                self._see(shape_of(batch))
            yield batch
            count += 1
            trains = self.backwards > before
            if trains and self.updates >= enough:
                self._epochs += 1
                if self._epochs > FURTHER:
                    self.stop(f"update {self.updates}")
                return
            # Some scripts fetch all micro-batches of an update before they train with the first.
            if not trains and count >= (PLENTY if fetching else self.wanted):
                return

    def run(self, argv, shape=None):
        """Run the script with arguments; return the exception that ended it, or None."""
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            enter(contextlib.chdir(self._folder))
            inputs.replace_all(self, shape)
            files.replace_all(self.files)
            if os.environ.get("WORLD_SIZE"):  # this is rank 0, and the others are not there
                inputs.replace(mp, "spawn", lambda _, run, args=(), **__: run(0, *args))
            enter(wrapped(torch.autograd, "backward", self.backward))
            enter(register_module_forward_pre_hook(self.forward))
            enter(register_optimizer_step_post_hook(self.stepped))
            enter(mock.patch.object(sys, "argv", [str(self.file), *argv]))
            enter(mock.patch.object(sys, "path", [self._folder, *sys.path]))
            enter(self._watching)
            self._watching.enter_context(self.watch.at_work())
            try:
                runpy.run_path(str(self.file), run_name="__main__")
            except Enough:
                pass
            except BaseException as error:
                return error
        return None
