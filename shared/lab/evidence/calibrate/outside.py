"""Memory of a GPU outside of PyTorch's allocator: the CUDA context, libraries, NCCL's buffers."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from shared.lab.records.running import become_rank


def outside():
    """Return the bytes in use on the current GPU that PyTorch's allocator has not reserved.

    Those of other processes count, too.
    """
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def context():
    """Return the bytes outside of the allocator after each first use, {use: bytes}.

    Nothing in this process may have used the GPU before.
    """
    torch.cuda.init()
    # The order is that of a training script. CUDA loads a library's kernels at its first use and
    # keeps them, so each step shows what that use adds.
    steps = {"mem_get_info": outside()}
    x = torch.ones(512, 512, device="cuda", dtype=torch.bfloat16)
    steps["first tensor"] = outside()
    (x * 2 + 1).relu().sum().item()
    steps["elementwise"] = outside()
    # bf16, fp32 and a bias: cuBLAS and cuBLASLt load other kernels for each.
    x @ x
    x.float() @ x.float()
    F.linear(x, x, x[0])
    steps["matrix products"] = outside()
    queries = x.view(1, 8, 512, 64).requires_grad_()
    F.scaled_dot_product_attention(queries, queries, queries).sum().backward()
    steps["attention and its backward pass"] = outside()
    convolution = torch.nn.Conv2d(8, 8, 3).cuda()
    convolution(torch.randn(2, 8, 16, 16, device="cuda")).sum().backward()
    steps["convolution and its backward pass"] = outside()
    torch.linalg.svd(torch.randn(64, 64, device="cuda"))
    steps["svd"] = outside()
    torch.fft.fft(torch.randn(64, 64, device="cuda"))
    steps["fft"] = outside()
    steps["NCCL, one rank"], counts = nccl()
    counted = {f"NCCL's own count: {name}": n for name, n in counts.items() if isinstance(n, int)}
    return {**steps, **counted}


def nccl():
    """Return the bytes outside after a first exchange on one rank, and NCCL's own counts.

    PyTorch reports the latter from 2.11 on, where NCCL is new enough.
    """
    become_rank(0, 1)
    dist.init_process_group("nccl")
    dist.all_reduce(torch.ones(2**20, device="cuda"))  # buffers come with the first exchange
    nbytes = outside()
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    try:
        counts = dict(backend.memory_stats())
    except (AttributeError, RuntimeError):
        counts = {}
    dist.destroy_process_group()
    return nbytes, counts


def compiled():
    """Return the bytes outside of the allocator of a small compiled program, {use: bytes}."""
    function = torch.compile(lambda x: (x.sin() + x.cos()).relu().sum())
    function(torch.ones(1000, device="cuda", requires_grad=True)).backward()
    return {"compiled": outside()}
