"""Promise: processes on emulated GPUs exchange real values, and none outlives its command."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from conftest import NEEDS, cpu_only, emulate, run

pytestmark = NEEDS

# Exchanges between processes: objects, reductions, parts, messages, groups, a mesh.
TALK = """
import time
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("nccl")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
gathered = [None] * ranks
dist.all_gather_object(gathered, "a" * rank)
assert gathered == ["", "a", "aa", "aaa"]
objects = [{"from": rank}]
dist.broadcast_object_list(objects, src=1)
assert objects == [{"from": 1}]
for kind in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
    t = torch.full((3,), rank + 1, device="cuda", dtype=kind)
    dist.all_reduce(t)
    assert t.tolist() == [10] * 3
part = torch.empty(2, device="cuda")
dist.reduce_scatter_tensor(part, torch.arange(2.0 * ranks, device="cuda"))
assert part.tolist() == [8 * rank, 8 * rank + 4]
mine = torch.arange(ranks, device="cuda") + 10 * rank
theirs = torch.empty_like(mine)
dist.all_to_all_single(theirs, mine)
assert theirs.tolist() == [rank, 10 + rank, 20 + rank, 30 + rank]
if rank == 0:
    for value in (7, 8):  # the second one waits until the first one is read
        dist.send(torch.tensor([value], device="cuda"), 3)
if rank == 3:
    time.sleep(0.5)  # meanwhile, rank 0 waits in other groups, and still hands over the second one
    for value in (7, 8):
        got = torch.zeros(1, dtype=torch.long, device="cuda")
        dist.recv(got, 0)
        assert got.item() == value
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("a", "b"))
t = torch.tensor([rank], device="cuda")
dist.all_reduce(t, group=mesh.get_group("a"))
assert t.item() == 2 * (rank % 2) + 2
dist.barrier()
print("right", flush=True)
dist.destroy_process_group()
"""
ALONE = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
assert dist.get_world_size() == 512
t = torch.ones(2, device="cuda")
dist.all_reduce(t)
assert t.tolist() == [512, 512]
on_host = dist.new_group(backend="gloo")
dist.all_reduce(torch.ones(2), group=on_host)
on_host.monitored_barrier()
parts = [torch.empty_like(t) for _ in range(512)]
dist.all_gather(parts, t)
assert all(part.tolist() == [512, 512] for part in parts)
everyone = [None] * 512
dist.all_gather_object(everyone, {"a": 1})
assert everyone == [{"a": 1}] * 512
dist.send_object_list([{"b": 2}], dst=1)
received = [None]
dist.recv_object_list(received, src=511)
assert received == [{"b": 2}]
print("right")
"""
# Symmetric memory, which ranks read from each other; the second product reads what the first left.
SYMMETRIC = """
import torch, torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
dist.init_process_group("nccl")
ranks, width, group = dist.get_world_size(), 4096, dist.group.WORLD.group_name
symmetric.enable_symm_mem_for_group(group)
a = torch.ones(512, width, device="cuda", dtype=torch.bfloat16)
b = torch.ones(width, 512, device="cuda", dtype=torch.bfloat16)
whole, (product,) = torch.ops.symm_mem.fused_all_gather_matmul(a, [b], 0, group)
assert whole.shape == (ranks * 512, width) and product.shape == (ranks * 512, 512)
part = torch.ops.symm_mem.fused_matmul_reduce_scatter(product, b.t(), "sum", 0, group)
assert part.shape == a.shape
free, total = torch.cuda.mem_get_info()
assert total - free - 0.74e9 - torch.cuda.memory_reserved() >= a.nbytes  # its own, beside PyTorch's
print("right")
"""


SHARDS = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
model = torch.nn.Linear(64, 64, device="cuda")
fully_shard(model)
model(torch.ones(8, 64, device="cuda")).sum().backward()
dist.destroy_process_group()
print("right")
"""


def test_four_processes(tmp_path):
    (tmp_path / "talk.py").write_text(TALK)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", 4, tmp_path / "talk.py"]
    printed = run("-m", "emulated_gpu", "--devices", 4, *torchrun, limit=200)
    assert printed.count("right") == 4 and "all 4" in printed


def test_one_process_with_four_devices(tmp_path):
    """As Trainer of transformers trains wherever it sees several."""
    code = """
        import torch
        model = torch.nn.DataParallel(torch.nn.Linear(64, 64, device="cuda"))
        model(torch.ones(8, 64, device="cuda")).sum().backward()
        assert model.module.bias.grad.tolist() == [8] * 64
        """
    assert "all 4" in emulate(code, tmp_path, "--devices", "4")


def test_one_process_of_512(tmp_path):
    assert "right\n" in emulate(ALONE, tmp_path, "--devices", "512", "--alone")


def test_one_process_shares_memory_with_its_copies(tmp_path):
    options = ("--card", "h100", "--devices", "8", "--alone")
    assert "right\n" in emulate(SYMMETRIC, tmp_path, *options)


def test_groups_are_counted(tmp_path):
    """As FSDP2 makes one more for each fully_shard() that keeps parameters within a machine."""
    code = SHARDS.replace("fully_shard(model)", "fully_shard(model, reshard_after_forward=2)")
    assert "2 groups of processes" in emulate(code, tmp_path, "--devices", "4", "--alone")
    assert "groups of" not in emulate(SHARDS, tmp_path, "--devices", "4", "--alone")


def test_work_ends_even_if_the_host_only_asks(tmp_path):
    """As the thread does that watches NCCL's work, when a process group is destroyed."""
    assert "right\n" in emulate(SHARDS, tmp_path, "--devices", "2", "--alone")


THREADS = """
import threading, torch
threads = [torch.get_num_threads()]
other = threading.Thread(target=lambda: threads.append(torch.get_num_threads()))
other.start()
other.join()
print(threads, "OpenMP" in torch.__config__.parallel_info())
"""


def test_small_tensors_take_one_thread_on_every_machine(tmp_path):
    assert "[1, 1] True" in emulate(THREADS, tmp_path, OMP_NUM_THREADS="4")


def test_nothing_outlives_the_command(tmp_path):
    """Not even a program in an endless loop, if the command is ended or killed."""
    script = tmp_path / "endless.py"
    script.write_text("import time, torch\ntorch.ones(1, device='cuda')\ntime.sleep(300)\n")
    for how in (signal.SIGTERM, signal.SIGKILL):
        command = [sys.executable, "-m", "emulated_gpu", str(script)]
        process = subprocess.Popen(command, cwd=tmp_path, env=cpu_only(), stderr=subprocess.PIPE)
        children = []
        while not children and process.poll() is None:
            children = psutil.Process(process.pid).children()
            time.sleep(0.1)
        os.kill(process.pid, how)
        process.wait(60)
        process.stderr.close()
        gone, alive = psutil.wait_procs(children, timeout=30)
        assert children and not alive


STANDS_IN = """
import os, time, torch
torch.save(torch.ones(1, device="cuda"), "saved.pt")
torch.load("saved.pt", weights_only=True)  # a file that may be missing
"""


@pytest.mark.parametrize(
    "command, end, code",
    [
        ("run", "os._exit(3)", 3),
        ("why", "os._exit(3)", 3),
        ("run", "os.kill(os.getpid(), 9)", 137),
        ("why", "os.kill(os.getppid(), 2); time.sleep(60)", 130),  # Ctrl-C, of the command
    ],
)
def test_no_folder_outlives_the_command(command, end, code, tmp_path):
    """Those for files that stand in for others, and for what is saved."""
    script, temporary = tmp_path / "script.py", tmp_path / "temporary"
    temporary.mkdir()
    script.write_text(STANDS_IN + end)
    run("-m", "emulated_gpu", command, script, code=code, cwd=tmp_path, TMPDIR=str(temporary))
    left = [*temporary.rglob("*")]
    assert not left, f"{command}, {end}: left {left}"
