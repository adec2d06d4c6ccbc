"""A run of a user's script as by `python script.py`, in a process with an emulated GPU."""

import contextlib
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

from shared.lab.predict.own import files, hub, inputs, stand_in_tokenizer
from shared.lab.predict.own.limits import Enough, Limits
from shared.lab.predict.own.source import Source
from shared.lab.predict.own.updates import Updates, shape_of
from shared.lab.predict.watch import Watch
from shared.memory.blocks import tensors
from shared.memory.torch_private import wrapped

LONG = 60  # seconds, after which a script that does not end has a line; then twice as many, ...
COMPILERS = "_dynamo", "_inductor"  # folders of PyTorch, whose code runs when it compiles


class Run:
    """A running script, and the objects that observe it.

    `source` finds the script's lines, `watch` observes its operations, `updates` counts updates,
    `limits` stop the script, and `files` replaces the files that it loads and saves.
    """

    def __init__(self, file, updates):
        """Prepare to run a script, a Path, and watch some updates."""
        self.source = Source(file)
        self.note = self.source.note
        self.watch = Watch(self.source.line)
        self.files = files.Files(self.note)
        self.limits = Limits(updates)
        self.updates = Updates(self.watch, self.limits)

    def batches(self, batches):
        """Yield a loader's first batches: as many as the limits allow, or a few for evaluation."""
        updates = self.updates
        limits = self.limits
        backwards_before = updates.backwards
        count = 0
        for batch in batches:
            self.watch.inputs = {t.data_ptr() for t in tensors(batch)}
            in_training = updates.model is None or updates.model.training
            is_training = torch.is_grad_enabled() and in_training
            if is_training:
                updates.batches.add(shape_of(batch))
            yield batch
            count += 1
            trains = updates.backwards > backwards_before
            if trains and updates.count >= limits.wanted:
                limits.end_epoch(updates.count)
                return
            if not trains and count >= limits.batches(is_training):
                return

    def run(self, argv, shape=None):
        """Run the script; return the exception that ended it, or None.

        Args:
            argv: arguments of the script.
            shape: (channels, height, width) of images in place of missing data sets.
        """
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            enter(contextlib.chdir(self.source.folder))
            inputs.replace_all(self, shape)
            files.replace_all(self.files)
            stand_in_tokenizer.replace_all(self.note)
            hub.ask_once()
            if os.environ.get("WORLD_SIZE"):  # this is one rank alone, which starts no others
                inputs.replace(mp, "spawn", _spawn)
            enter(wrapped(torch.autograd, "backward", self.updates.backward))
            enter(register_module_forward_pre_hook(self.updates.before_forward))
            enter(register_optimizer_step_post_hook(self.updates.after_step))
            enter(mock.patch.object(sys, "argv", [str(self.source.file), *argv]))
            enter(mock.patch.object(sys, "path", [self.source.folder, *sys.path]))
            enter(self.watch.at_work())
            ended = threading.Event()
            asked = threading.get_ident(), ended
            threading.Thread(target=self._say_where, args=asked, daemon=True).start()
            stack.callback(ended.set)
            try:
                runpy.run_path(str(self.source.file), run_name="__main__")
            except Enough:
                pass
            except BaseException as error:
                return error
        return None

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
