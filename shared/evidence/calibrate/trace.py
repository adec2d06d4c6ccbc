"""The allocator's events of a script: `-m shared.evidence.calibrate.trace FILE SCRIPT [OPTION...]`.

A line of the file is "a BYTES" (a block is handed out), "f BYTES" (it is given back), "S BYTES" or
"R BYTES" (of segments, from and to CUDA).
"""

import os
import sys
from pathlib import Path

import torch

from shared.records import scripts
from shared.records.atomic_files import write_text

LETTERS = {"alloc": "a", "free_requested": "f", "segment_alloc": "S", "segment_free": "R"}


def main(file, name, *options):
    torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None)
    scripts.get(name).load().main(options)
    if int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0))):
        return
    events = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    lines = (f"{LETTERS[e['action']]} {e['size']}" for e in events if e["action"] in LETTERS)
    write_text(Path(file), "\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
