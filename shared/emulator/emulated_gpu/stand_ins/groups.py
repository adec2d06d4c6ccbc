"""Answers of torch.distributed for a program that no launcher has started: it is the only process.

Such a program would end with "environment variable RANK expected", before it used any memory.
"""

import functools
import os

from emulated_gpu.imports import replace_everywhere
from emulated_gpu.stand_ins.notes import note

NOTE = "no launcher has started it, so it is the only process"
VARIABLES = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
ANSWERS = {"get_rank": 0, "get_world_size": 1}
NEEDLESS = ("barrier", "all_reduce", "broadcast", "destroy_process_group")


def has_launcher():
    """Return whether torchrun, or another launcher, has started this process."""
    return "WORLD_SIZE" in os.environ


class _Environment(type(os.environ)):
    """os.environ, in which a program finds a launcher's variables if it takes them as given.

    get() and `in` do not have them: packages ask so whether there is a launcher.
    """

    def __getitem__(self, name):
        try:
            return super().__getitem__(name)
        except KeyError:
            if name not in VARIABLES or has_launcher():
                raise
        note(NOTE)
        return VARIABLES[name]

    def get(self, name, default=None):
        """Return a variable's text, or `default`."""
        return self[name] if name in self else default

    def __contains__(self, name):
        return self.encodekey(name) in self._data


def in_torch(torch):
    """Let torch.distributed, of the module torch, answer for one process."""
    dist = torch.distributed
    if not dist.is_available():
        return
    os.environ.__class__ = _Environment

    def started(original):
        def init_process_group(backend=None, *args, **kwargs):
            by_variables = kwargs.get("init_method") in (None, "env://") and "store" not in kwargs
            # A script that sets these itself is its own launcher.
            is_told = args or not by_variables or ("rank" in kwargs and "MASTER_ADDR" in os.environ)
            if not is_told and not has_launcher():
                note(NOTE)
                kwargs |= {"init_method": None, "store": dist.HashStore()}
                kwargs = {"rank": 0, "world_size": 1, **kwargs}
            return original(backend, *args, **kwargs)

        return init_process_group

    def answered(original, answer):
        @functools.wraps(original)  # torch.compile() looks at its arguments
        def function(*args, **kwargs):
            if dist.is_initialized() or has_launcher():
                return original(*args, **kwargs)
            note(NOTE)
            return answer

        return function

    replacements = {"init_process_group": started(dist.init_process_group)}
    for name, answer in (ANSWERS | dict.fromkeys(NEEDLESS)).items():
        replacements[name] = answered(getattr(dist, name), answer)
    for name, replacement in replacements.items():
        replace_everywhere(name, getattr(dist, name), replacement)
