"""Memory of a GPU outside of PyTorch's tensors: `-m shared.evidence.calibrate.outside FILE [N]`.

The CUDA context, NCCL's buffers on N GPUs, and cuDNN's workspaces. The calling command must not use
the GPU: its context would be measured, too.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

from shared.records.atomic_files import write_text
from shared.records.running import side_by_side

PATCH = 16  # of ViT-L/16, whose only convolution cuts images into patches
KINDS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
COUNTER = "requested_bytes.all"


def used():
    """Return the bytes in use on the first visible GPU, by nvidia-smi, which creates no context."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    query = ["--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, ValueError):
        asked = ["nvidia-smi", f"--id={gpu}", *query]
        return int(subprocess.run(asked, capture_output=True, text=True).stdout) * 2**20
    return None


def outside(before=None):
    """Return the bytes in use on the current GPU that PyTorch's allocator has not reserved."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved() - (before or 0)


def context():
    """Return the bytes outside of the allocator after each first use, {what: bytes}.

    Nothing in this process may have used the GPU before. What was in use on the whole GPU "before"
    is subtracted, if nvidia-smi reports it.
    """
    before = used()
    nbytes = {}
    x = torch.ones(256, 256, device="cuda", dtype=torch.bfloat16)
    nbytes["first tensor"] = outside(before)
    x @ x
    nbytes["matrix product"] = outside(before)
    queries = x.view(1, 8, 128, 64).requires_grad_()
    F.scaled_dot_product_attention(queries, queries, queries).sum().backward()
    nbytes["attention and its backward pass"] = outside(before)
    convolution("bf16", 2)
    nbytes["convolution and its backward pass"] = outside(before)
    return {"before": before, **nbytes}


def convolution(kind, images):
    """Return the bytes of workspaces of ViT-L's convolution: {"forward", "backward"}."""
    dtype, nbytes = KINDS[kind], {}
    x = torch.ones(images, 3, 224, 224, device="cuda", dtype=dtype)
    weight = torch.ones(1024, 3, PATCH, PATCH, device="cuda", dtype=dtype, requires_grad=True)

    def most(function):
        start = torch.cuda.memory_stats()[f"{COUNTER}.current"]
        torch.cuda.reset_peak_memory_stats()
        results = function()
        new = sum(t.nbytes for t in results)
        return results, torch.cuda.memory_stats()[f"{COUNTER}.peak"] - start - new

    (y,), nbytes["forward"] = most(lambda: [F.conv2d(x, weight, stride=PATCH)])
    gradient = torch.ones_like(y)
    _, nbytes["backward"] = most(lambda: torch.autograd.grad(y, [weight], gradient))
    return nbytes


def nccl(file):
    """Append the bytes outside of the allocator before and after a first exchange, as a rank."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    x = torch.ones(2**20, device="cuda")
    before = outside()
    dist.init_process_group("nccl")
    dist.all_reduce(x)
    Path(f"{file}.rank{rank}").write_text(json.dumps(outside() - before))
    dist.destroy_process_group()


def main(file, gpus="1"):
    if int(gpus) > 1:
        side_by_side(int(gpus), nccl, file)
    gpu = torch.cuda.get_device_properties(0)
    nccl_bytes = []
    if int(gpus) > 1:
        nccl_bytes = [json.loads(Path(f"{file}.rank{r}").read_text()) for r in range(int(gpus))]
    results = {
        "name": gpu.name,
        "bytes": gpu.total_memory,
        "context": context(),
        "convolutions": {f"{k}, {n} images": convolution(k, n) for k in KINDS for n in (4, 16)},
        "nccl": nccl_bytes,
    }
    write_text(Path(file), json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
