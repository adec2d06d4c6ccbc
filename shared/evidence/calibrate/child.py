"""Measure on a GPU, in a process of its own: `-m ...calibrate.child FILE [SCRIPT ...]`.

The calling command must not use the GPU: its CUDA context would be measured, too.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from shared.evidence.calibrate import operations
from shared.records.atomic_files import write_text

PROPERTIES = ("name", "total_memory", "major", "minor", "multi_processor_count")
PROPERTIES += ("max_threads_per_multi_processor",)
HISTORY_OF = "03_bf16/train"  # the allocation history of one update: a file of some MB


def used():
    """Return the bytes in use on the first visible GPU, by nvidia-smi, which creates no context."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    query = ["--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, ValueError):
        asked = ["nvidia-smi", f"--id={gpu}", *query]
        return int(subprocess.run(asked, capture_output=True, text=True).stdout) * 2**20
    return None


def context():
    """Return the GPU's properties, and the memory outside the allocator after each first use.

    Nothing in this process may have used the GPU before. "outside" is in bytes: the memory in use
    on the whole GPU by the driver, less what PyTorch's allocator has reserved and what was in use
    "before", if nvidia-smi reports it.
    """
    before, outside = used(), {}

    def note(what):
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        outside[what] = total - free - torch.cuda.memory_reserved() - (before or 0)

    x = torch.ones(256, 256, device="cuda", dtype=torch.bfloat16)
    note("first tensor")
    x @ x
    note("matrix product")
    queries = x.view(1, 8, 128, 64).requires_grad_()
    F.scaled_dot_product_attention(queries, queries, queries).sum().backward()
    note("attention and its backward pass")
    weight = torch.ones(64, 3, 16, 16, device="cuda", requires_grad=True)
    F.conv2d(torch.ones(2, 3, 224, 224, device="cuda"), weight, stride=16).sum().backward()
    note("convolution and its backward pass")
    its = torch.cuda.get_device_properties(0)
    properties = {name: getattr(its, name) for name in PROPERTIES}
    return {**properties, "before": before, "outside": outside}


def main(file, name=None, *options):
    """Measure the operations of a script run with these options; without one, the CUDA context.

    Write the results to the file, as JSON; for HISTORY_OF, write its allocation history beside it.
    """
    file = Path(file)
    snapshot = file.with_suffix(".pickle") if name == HISTORY_OF else None
    found = operations.on_gpu(name, options, snapshot) if name else context()
    write_text(file, json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
