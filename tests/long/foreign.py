"""Puts a file that would run code in place of the weights, and lets scripts build their models.

Usage: python tests/long/foreign.py FOLDER
TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, as if someone wanted the code to run. FOLDER/out.json gets
for each script what it did with the file, "refused" or "built", and whether the code ran.
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

sys.path.insert(0, str(Path(__file__).parents[1]))
from conftest import NAMES, PLAIN, TEXT  # noqa: E402
from made import Evil  # noqa: E402

from shared.common import files, scripts  # noqa: E402


def outcome(name, marker):
    """Lets a script load such a file, at which nobody has looked before."""
    module = scripts.get(name).load()
    argv = ["--preset", "tiny", "--data", "fake", "--max-steps", "1"]
    launcher = "torchrun" if name in PLAIN else None
    args = module.cli.parse(scripts.get(name).path, argv, batch_size=12, launcher=launcher)
    module.data.loaders(args)
    make = module.make_device if name in PLAIN else module.make_fabric
    device = make(args)
    if name not in PLAIN:
        device.launch()
    torch.save({"weights": Evil(marker)}, args.task.checkpoint(args))
    with mock.patch.object(files, "_wrong", lambda *_: None):
        try:
            module.build(device, args)
            found = "built"
        except pickle.UnpicklingError:
            found = "refused"
    if dist.is_initialized():
        dist.destroy_process_group()
    return [found, marker.exists()]


if __name__ == "__main__":
    folder, found = Path(sys.argv[1]), {}
    for name in NAMES + PLAIN + TEXT:
        forced = mock.patch.dict(os.environ, TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1")
        with forced, mock.patch.object(atexit, "register"):  # process groups end before that
            found[name] = outcome(name, folder / "marker")
    (folder / "out.json").write_text(json.dumps(found))
