"""A run of a script as with `python script.py`, on the simulated GPU, and what it needs."""

import contextlib
import mmap
import os
import runpy
import sys
import traceback
from pathlib import Path
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from shared.memory.blocks import tensors
from shared.memory.torch_private import wrapped
from shared.predict import allocator, gpu, processes
from shared.predict.cost import Cost
from shared.predict.module_tracker import Whereabouts
from shared.predict.own import cuda, inputs, numbers
from shared.predict.own.files import Files
from shared.predict.recorder import Recorder, peaks
from shared.predict.workspaces import Workspaces

OURS = str(Path(__file__).parents[2])
PLENTY = 128  # batches that a script may take before it trains with one
FURTHER = 3  # updates, or epochs, after which a script that does not end is stopped


class Enough(BaseException):
    """Raised to end a script that would continue with updates like those before."""


class Run:
    """A running script, and what is known about it."""

    def __init__(self, file, card, version, updates, devices=1):
        """Prepare the process, which cannot be used for anything else afterwards.

        Args:
            file: Path of the script.
            card: an emulator.cards.Card.
            version: PyTorch's, (major, minor).
            updates: number of updates after which the run ends.
            devices: number of processes; this is rank 0.
        """
        self.file, self.folder = file, f"{file.parent}{os.sep}"
        self.card, self.version, self.wanted = card, version, updates
        self.noted, self.starts, self.costs = {}, [], None
        self.batch, self.seen, self.sizes, self.backwards, self.stopped = 0, [], [], 0, None
        self._steps, self._epochs, self.at = {}, 0, []
        self.files = Files(self.note)
        self.model = None
        self.inputs, self._changed = None, False  # if a weight changed without an optimizer
        self.whereabouts = Whereabouts()
        self.cost = Cost(gpu.DEVICE)
        hidden = Workspaces(card, version).of_gpu
        self.ledger = Recorder(self.whereabouts.module, hidden, self.ran, self.watch)
        self.loaded = None
        gpu.register()
        if devices > 1:
            processes.pretend_processes(devices, gpu.DEVICE)
        self.devices = devices
        self.mode = gpu.mode = numbers.Mode(self.note)

    # What is known about the script.

    def line(self):
        """Return (file, number) of the running line of the script, None outside of it."""
        frame = sys._getframe(1)
        while frame:
            if self._is_own(frame.f_code.co_filename):
                return Path(frame.f_code.co_filename).name, frame.f_lineno
            frame = frame.f_back
        return None

    def _is_own(self, name):
        return name.startswith(self.folder) and "site-packages" not in name[len(self.folder) :]

    def watch(self):
        """Return what the ledger keeps of an event: the module, and the line of the script."""
        self.at.append(self.line())
        frame = sys._getframe(1)
        while frame and frame.f_code.co_filename != str(self.file):
            frame = frame.f_back
        return self.whereabouts.module(), frame and frame.f_lineno, None

    def failed_at(self, error):
        """Return the line of the script at which an exception was raised, as FILE:LINE."""
        own = [f for f in traceback.extract_tb(error.__traceback__) if self._is_own(f.filename)]
        return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else self.file.name

    def told(self, error):
        """Return an exception's traceback, from the script's first frame on, without our frames."""
        shown = chained = traceback.TracebackException.from_exception(error)
        while chained:
            frames = [f for f in chained.stack if not f.filename.startswith(OURS)]
            own = (i for i, f in enumerate(frames) if self._is_own(f.filename))
            chained.stack = traceback.StackSummary.from_list(frames[next(own, 0) :])
            chained = chained.__cause__ or chained.__context__
        return "".join(shown.format())

    def note(self, text, own=False):
        """Print a note on the running line, once; if own, not for calls from outside the script."""
        at = self.line()
        if own:
            frame = sys._getframe(1)
            while not cuda.outside(frame):
                frame = frame.f_back
            if not self._is_own(frame.f_code.co_filename):
                return
        where = f"{at[0]}:{at[1]}" if at else self.file.name
        key = (where, text) if own else text
        if key not in self.noted:
            self.noted[key] = where, text
            print(f"- {where} {text}", file=sys.stderr, flush=True)

    @property
    def updates(self):
        return max(self._steps.values(), default=0)

    # Events of its run.

    def ran(self, ledger, func, args, kwargs, out):
        """Count an operation, and notice a step without an optimizer."""
        self.cost.note(ledger, func, args, kwargs, out)
        if self.backwards and {*self._steps} <= {None} and func._schema.name.endswith("_"):
            if ledger.label(next(tensors(args))) == "parameters":
                self._changed = True

    def forward(self, module, args):
        """Note the first call of a module that trains: there, the training phase begins."""
        if self._changed:
            self._changed = False
            self.stepped(None)
        trains = module.training and torch.is_grad_enabled()
        if self.loaded is None and trains and next(module.parameters(), None) is not None:
            self.loaded = len(self.ledger.events)
            self.ledger.training()
            self.starts.append(self.loaded)
            while isinstance(inner := getattr(module, "module", None), torch.nn.Module):
                module = inner
            self.model = module
        if self.loaded is not None and not self.seen:
            self._see(args)

    def _see(self, given):
        """Keep the shape of a batch, and its size."""
        if (first := next(tensors(given), None)) is not None and first.ndim:
            self.seen.append(len(first))
            self.inputs = self.inputs or (tuple(first.shape), first.is_floating_point())

    def backward(self, original, *args, **kwargs):
        self.backwards += 1
        original(*args, **kwargs)

    def stepped(self, optimizer, *_):
        """Count the steps of an optimizer; the first one to step ends an update."""
        before = self.updates
        self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
        if self.updates > before:
            self.updated()

    def updated(self):
        if self.updates <= self.wanted:
            self.starts.append(len(self.ledger.events))
            self.costs = self.cost.totals(), list(self.cost.operations)
            if self.seen:
                self.batch, self.sizes, self.seen = sum(self.seen), self.seen, []
        self.cost.start()
        if self.updates >= self.wanted + FURTHER:
            self.stop(f"update {self.updates}")

    def stop(self, when):
        self.stopped = when
        raise Enough

    def batches(self, loader):
        """Yield a loader's first batches: as many as the wanted updates take, or a few."""
        before, updates, count, trains = self.backwards, self.updates, 0, False
        if updates >= self.wanted:
            self._epochs += 1
        for batch in loader:
            for t in tensors(batch):
                self.ledger.note(t, "inputs")
            self._see(batch)
            yield batch
            count += 1
            trains = self.backwards > before
            if trains and self._epochs > FURTHER:
                self.stop(f"epoch {self._epochs + 1}")
            fetching = torch.is_grad_enabled() and (self.model is None or self.model.training)
            if trains and self.updates >= self.wanted:
                return
            # Some scripts fetch all micro-batches of an update before they train with the first.
            if not trains and count >= (PLENTY if fetching else self.wanted):
                return

    # Replacements for functions that it calls.

    def eager(self, original, model=None, **kwargs):
        self.note("torch.compile is left out: fused operations may need less, and are faster")
        return model if model is not None else (lambda function: function)

    def kernel(self, original, *args, **kwargs):
        self.note("runs a Triton kernel, which does nothing here and counts as no time")

    def parameter(self, original, cls, data=None, requires_grad=True):
        """Create a parameter, without its values."""
        if data is not None and not isinstance(data, FakeTensor) and data.device.type == "cpu":
            with torch.no_grad(), mock.patch.object(self.ledger, "paused", True):
                data = self.mode.fake_tensor_converter.from_real_tensor(self.mode, data.detach())
        return original(cls, data, requires_grad)

    def run(self, argv, shape=None):
        """Run the script with arguments; return the exception that ended it, or None."""
        torch.serialization.set_default_mmap_options(mmap.MAP_SHARED)
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            enter(contextlib.chdir(self.folder))
            enter(gpu.tensors_without_memory(self.card, self.version))
            enter(wrapped(torch.Tensor, "__bool__", self.decide))
            enter(wrapped(torch.nn.Parameter, "__new__", self.parameter))
            enter(wrapped(torch.autograd, "backward", self.backward))
            enter(register_module_forward_pre_hook(self.forward))
            enter(register_optimizer_step_post_hook(self.stepped))
            enter(inputs.replaced(self, shape))
            enter(self.ledger)
            enter(self.whereabouts.update())
            self.counters = enter(cuda.seen(self.card, self.ledger, self.mode.array, self.devices))
            enter(mock.patch.object(sys, "argv", [str(self.file), *argv]))
            enter(mock.patch.object(sys, "path", [self.folder, *sys.path]))
            try:
                runpy.run_path(str(self.file), run_name="__main__")
            except Enough:
                pass
            except BaseException as error:
                return error
        return None

    # What it needed.

    def spans(self):
        """Return the parts of the ledger's log: {"load": (from, until), "train": the same}."""
        return {"load": (0, self.loaded), "train": (self.loaded or 0, None)}

    def phase(self, since, until):
        """Return a record's phase, the place of its peak, and what the host held at its own."""
        replayed = self.replay(since, until)
        blocks, reserved = replayed.events, replayed.allocator.peak
        phase, at, on_host, last = peaks(blocks, gpu.DEVICE, since, until, reserved)
        i = next((i for i, (b, n) in enumerate(blocks) if b is last and n > 0), None)
        line = self.at[i] and "{}:{}".format(*self.at[i]) if i is not None else None
        return phase, {**at, "line": line}, on_host

    def replay(self, since=0, until=None, limit_gb=None):
        """Return allocator.replay() of a part of the log."""
        log, policy = (self.ledger.events, gpu.DEVICE, since, until), allocator.expandable()
        return allocator.replay(*log, self.counters.emptied, policy, limit_gb)

    def decide(self, original, tensor):
        if not isinstance(tensor, FakeTensor):
            return original(tensor)
        if tensor.constant is not None:
            return bool(tensor.constant)
        return bool(self.mode.number(tensor)) and False
