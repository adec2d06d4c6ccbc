"""A run of a user's script as by `python script.py`, in a process with an emulated GPU."""

import collections
import contextlib
import functools
import importlib.util
import os
import runpy
import sys
import threading
import traceback
from pathlib import Path
from unittest import mock

import torch
import torch.multiprocessing as mp
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from emulated_gpu.accounting.torch_private import wrapped
from emulated_gpu.imports import replace_everywhere
from emulated_gpu.stand_ins.groups import has_launcher
from emulated_gpu.stand_ins.notes import replace
from emulated_gpu.texts import UserError
from emulated_gpu.why import loaders, trainers
from emulated_gpu.why.limits import Enough, Limits
from emulated_gpu.why.saving import Files
from emulated_gpu.why.source import Source
from emulated_gpu.why.updates import Evaluation, Updates
from emulated_gpu.why.watch import Watch

LONG = 60  # seconds, after which a script that does not end has a line; then twice as many, ...
COMPILERS = "_dynamo", "_inductor"  # folders of PyTorch, whose code runs when it compiles


class Run:
    """A running script, and the objects that observe it.

    `source` finds the script's lines, `watch` observes its operations, `updates` counts updates,
    `evaluation` finds what evaluation keeps, and `limits` stop the script.
    """

    def __init__(self, file, updates, module=None):
        """Prepare to run a script, a Path, or a module by its name, and watch some updates."""
        self.source = Source(file)
        self.watch = Watch(self.source.line)
        self.limits = Limits(updates)
        self.updates = Updates(self.watch, self.limits)
        self.evaluation = Evaluation(self.watch)
        self.groups_at = collections.Counter()  # {FILE:LINE: groups of processes made there}
        self._module = module

    def run(self, argv):
        """Run the script with arguments, a list; return the exception that ended it, or None."""
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            loaders.replace_all(self)
            trainers.evaluate_soon(self.limits.watched)
            Files().replace_all()
            if torch.distributed.is_available():
                self._watch_groups()
            if has_launcher():  # this is one rank alone, which starts no others
                replace(mp, "spawn", _spawn)
            enter(wrapped(torch.autograd, "backward", self.updates.backward))
            enter(register_module_forward_pre_hook(self.updates.before_forward))
            enter(register_optimizer_step_post_hook(self.updates.after_step))
            enter(mock.patch.object(sys, "argv", [str(self.source.file), *argv]))
            # Where Python looks first: the script's folder, or with -m the current one.
            first = os.getcwd() if self._module else str(self.source.file.parent)
            enter(mock.patch.object(sys, "path", [first, *sys.path]))
            enter(self.watch.at_work())
            ended = threading.Event()
            asked = threading.get_ident(), ended
            threading.Thread(target=self._say_where, args=asked, daemon=True).start()
            stack.callback(ended.set)
            try:
                self._start()
            except Enough:
                pass
            except BaseException as error:
                return error
        return None

    def _watch_groups(self):
        """Note the lines that make groups of processes."""
        original = torch.distributed.new_group

        def new_group(*args, **kwargs):
            if line := self.source.line():
                self.groups_at["{}:{}".format(*line)] += 1
            return original(*args, **kwargs)

        replace_everywhere("new_group", original, functools.update_wrapper(new_group, original))

    def _start(self):
        if self._module:
            if not importlib.util.find_spec(self._module.partition(".")[0]):
                raise UserError(f"-m: there is no module {self._module}")
            runpy.run_module(self._module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(str(self.source.file), run_name="__main__")

    def _say_where(self, thread, ended):
        """Say what a script waits for that has not `ended`, an Event; `thread` runs it."""
        seconds = LONG
        while not ended.wait(seconds if seconds == LONG else seconds / 2):
            frame = sys._current_frames()[thread]
            line = self.source.line(frame)
            at = f"in {line[0]}:{line[1]} " if line else ""
            seen = f"{self.updates.count} of {self.limits.watched} updates"
            if not self.updates.backwards:
                seen = "no backward pass"
            files = [each.f_code.co_filename for each, _ in traceback.walk_stack(frame)]
            if any(part in Path(file).parts for file in files for part in COMPILERS):
                graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
                seen += f" and {graphs} graphs compiled; torch.compile is at work"
            how = "Ctrl-C ends it, and shows what is known so far"
            print(f"- still {at}after {seconds} s, with {seen}; {how}", file=sys.stderr, flush=True)
            seconds *= 2


def _spawn(original, run, args=(), **_):
    run(int(os.environ["RANK"]), *args)
