"""Puts a file that would run code in place of the weights, and lets scripts build their models.

Usage: python tests/loads.py FOLDER
TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, as if someone wanted the code to run. FOLDER/out.json gets
for each script what it did with the file when nobody had looked at it before, "refused" or "built",
what it did otherwise, and whether the code ran.
"""

import atexit
import json
import os
import pickle
import sys
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from conftest import NAMES, PLAIN, TEXT

from shared.common import files, scripts


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return open, (self.marker, "w")


def outcomes(name, marker):
    """Lets a script load such a file twice, the first time without a look at it before."""
    module = scripts.get(name).load()
    argv = ["--preset", "tiny", "--data", "fake", "--max-steps", "1"]
    launcher = "torchrun" if name in PLAIN else None
    args = module.cli.parse(scripts.get(name).path, argv, batch_size=12, launcher=launcher)
    module.data.loaders(args)
    make = module.make_device if name in PLAIN else module.make_fabric
    device = make(args)
    if name not in PLAIN:
        device.launch()
    path, found = args.task.checkpoint(args), []
    for look in (lambda *_: None, files._wrong):
        torch.save({"weights": Evil(marker)}, path)
        with mock.patch.object(files, "_wrong", look):
            try:
                module.build(device, args)
                found.append("built")
            except pickle.UnpicklingError:
                found.append("refused")
    if dist.is_initialized():
        dist.destroy_process_group()
    return [*found, marker.exists()]


def main(folder):
    marker, found = folder / "marker", {}
    for name in NAMES + PLAIN + TEXT:
        forced = mock.patch.dict(os.environ, TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1")
        with forced, mock.patch.object(atexit, "register"):  # process groups end before that
            found[name] = outcomes(name, marker)
    (folder / "out.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
