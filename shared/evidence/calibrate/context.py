"""What a process holds of a GPU outside PyTorch's allocator: the CUDA context with its kernels."""

import contextlib
import os
import subprocess

import torch
import torch.nn.functional as F

MIB = 2**20


def used():
    """Returns the bytes in use on this process' first GPU by nvidia-smi, None if it does not tell.

    It counts what all processes use, and asking it makes no context.
    """
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    asked = [
        "nvidia-smi",
        f"--id={gpu}",
        "--query-gpu=memory.used",
        "--format=csv,noheader,nounits",
    ]
    with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
        return int(done.stdout) * MIB
    return None


def measure():
    """Returns the GPU's properties, and what is held outside the allocator after each first use.

    Nothing in this process may have used the GPU before. In "outside", a size in bytes is what the
    driver says is in use on the whole GPU, less what PyTorch's allocator has reserved, and less
    what was in use before, if nvidia-smi has told that ("before").
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
    after, reserved = used(), torch.cuda.memory_reserved()
    by_smi = None if None in (before, after) else after - before - reserved
    its = torch.cuda.get_device_properties(0)
    return {
        "name": its.name,
        "total_memory": its.total_memory,
        "major": its.major,
        "minor": its.minor,
        "multi_processor_count": its.multi_processor_count,
        "max_threads_per_multi_processor": its.max_threads_per_multi_processor,
        "before": before,
        "outside": outside,
        "outside_by_nvidia_smi": by_smi,
    }
