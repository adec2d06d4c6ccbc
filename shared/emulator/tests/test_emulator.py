"""Promise: PyTorch's own CUDA build runs without a GPU, and its memory is that of a GPU."""

import importlib
import re

import pytest
from conftest import NEEDS, emulate, run

from emulated_gpu import build, launch
from emulated_gpu.cards import CARDS

pytestmark = NEEDS

# CUDA's functions alone, without PyTorch: memory, pinned memory, streams and events.
FUNCTIONS = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
one, other, free, total = (ctypes.c_size_t() for _ in range(4))
def info():
    assert cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value
MIB, room = 2**20, info()
assert total.value - room == 740_000_000  # the context
assert cuda.cudaMalloc(ctypes.byref(one), ctypes.c_size_t(3 * MIB)) == 0
assert room - info() == 4 * MIB  # in grains of 2 MiB
assert cuda.cudaMalloc(ctypes.byref(other), ctypes.c_size_t(room)) == 2 and other.value in (0, None)
ctypes.memset(one.value, 7, 8)  # the host's memory is taken when it is written
copy = ctypes.create_string_buffer(8)
assert cuda.cudaMemcpy(copy, one, ctypes.c_size_t(8), 2) == 0 and copy.raw == bytes([7] * 8)
assert cuda.cudaFree(one) == 0 and info() == room and cuda.cudaFree(one) == 1
assert cuda.cudaHostAlloc(ctypes.byref(one), ctypes.c_size_t(1 << 33), 0) == 0  # untouched: free
assert cuda.cudaFreeHost(one) == 0 and info() == room
stream, event, later = (ctypes.c_void_p() for _ in range(3))
assert cuda.cudaStreamCreate(ctypes.byref(stream)) == 0
work = 64 * MIB  # whose length takes time; too large to be written
for e in (event, later):
    assert cuda.cudaEventCreate(ctypes.byref(e)) == 0
    assert cuda.cudaMemsetAsync(None, 0, ctypes.c_size_t(work), stream) == 0
    assert cuda.cudaEventRecord(e, stream) == 0
not_ready = 600  # until the host waits
assert cuda.cudaEventQuery(later) == cuda.cudaStreamQuery(stream) == not_ready
assert cuda.cudaEventSynchronize(event) == 0 and cuda.cudaEventQuery(event) == 0
assert cuda.cudaEventQuery(later) == not_ready
assert cuda.cudaStreamSynchronize(stream) == 0 and cuda.cudaEventQuery(later) == 0
passed = ctypes.c_float()
assert cuda.cudaEventElapsedTime(ctypes.byref(passed), event, later) == 0 and passed.value > 0.05
print("right")
"""

# Values that a script may read: those of small tensors, sizes that depend on them, assumptions.
VALUES = """
import threading, torch
x = torch.arange(10, device="cuda")
assert x[x % 2 == 0].tolist() == [0, 2, 4, 6, 8] and (x > 3).sum().item() == 6
assert torch.nonzero(x > 7).tolist() == [[8], [9]] and torch.equal(x, x.clone())
assert torch.bincount(torch.tensor([0, 3], device="cuda")).tolist() == [1, 0, 0, 1]
assert x[2:4].repeat_interleave(x[1:3]).tolist() == [2, 3, 3]
assert torch.unique(torch.tensor([3, 1, 3], device="cuda")).tolist() == [1, 3]
assert (x >= 0).unique().tolist() == [True] and (x > 3).unique().tolist() == [False, True]
assert (2 ** x[:4]).tolist() == [1, 2, 4, 8] and (3 - x[:2]).tolist() == [3, 2]
mask = torch.tensor([True, False], device="cuda")
y = torch.zeros(2, 3, device="cuda", requires_grad=True)
(y[mask] * 2).sum().backward()
assert y.grad.tolist() == [[2, 2, 2], [0, 0, 0]]
found = []
thread = threading.Thread(target=lambda: found.append((x * 2).sum().item()))
thread.start(); thread.join()
assert found == [90]
state = torch.random.get_rng_state()
first, second = (torch.rand(100, device="cuda").tolist() for _ in range(2))
assert first != second and torch.equal(state, torch.random.get_rng_state())
large = torch.randn(4096, 4096, device="cuda")
loss = (large @ large).mean()
assert loss.item() == 1 and not loss.isnan() and 1 / loss.item() == 1  # line 23
assert large.nonzero().shape == (4096 * 4096, 2)  # the largest size, line 24
assert torch.isfinite(loss / loss) and (loss * 0 + float("nan")).item() == 1
classes = (large[:64, :10] @ large[:10, :10]).argmax(1)  # small, and assumed
assert len(classes.unique()) <= 10  # torchmetrics checks that
assert x[1:4].prod().item() == 6  # NVRTC compiles its kernel
print("right")
"""

# The interface for predictors: operations as they run, addresses, peaks beside the script's own.
INTERFACE = """
import os, torch
from emulated_gpu import process
class Watcher:
    def __init__(self):
        self.operations = []
    def begins(self, func):
        return func
    def ends(self, begun, func, args, kwargs, out):
        assert begun is func
        self.operations.append((func.name(), out is not None))
x = torch.ones(2**20, device="cuda")
assert process.on_gpu(x) and not process.on_gpu(x.cpu()) and not process.on_gpu(x.to_sparse())
assert process.address(x[5:]) == x.data_ptr() != x[5:].data_ptr()
inner, outer = Watcher(), Watcher()
with process.watching(outer):
    x + 1
    with process.watching(inner):
        x * 2
        try:
            x + torch.ones(3, device="cuda")
        except RuntimeError:
            pass
x - 1
assert outer.operations[-1] == ("aten::add.Tensor", True)  # after a copy of the number 1
assert ("aten::mul.Tensor", True) in inner.operations
assert inner.operations[-1] == ("aten::add.Tensor", False)  # it failed
own = torch.cuda.max_memory_allocated()
peaks = process.restart_peaks()
assert {*peaks} == {*process.PEAKS}
assert peaks["allocated"] == own == torch.cuda.max_memory_allocated()
assert process.restart_peaks()["allocated"] == torch.cuda.memory_allocated() == x.nbytes < own
assert process.work_count() > 0 and not process.records_history()
assert process.kept_by() == [] and process.allocation_failures() == {"retries": 0, "errors": 0}
process.write_safetensors("x", {"a": torch.empty(2**28, device="meta")}, torch.float16)
assert os.stat("x").st_size > 2**29 and os.stat("x").st_blocks * 512 < 2**20
os.remove("x")
print("right")
"""

# The caching allocator's settings, and the errors that it raises, are PyTorch's own.
ALLOCATOR = """
import os, sys, torch
torch.empty(1, device="cuda")
def reserved():
    return torch.cuda.memory_reserved()
if "expandable" in sys.argv[1]:
    first = torch.empty(30 * 2**20, dtype=torch.uint8, device="cuda")
    del first
    torch.empty(50 * 2**20, dtype=torch.uint8, device="cuda")  # in the same segment, which grows
    assert reserved() == 62 * 2**20  # 3 pages of 20 MiB, 1 of 2; without it 30 + 50 + 2
elif "roundup" in sys.argv[1]:
    torch.empty(514 * 2**20, dtype=torch.uint8, device="cuda")
    assert torch.cuda.max_memory_allocated() == 768 * 2**20  # pytorch#161139
elif "fraction" in sys.argv[1]:
    torch.cuda.set_per_process_memory_fraction(0.01)
try:
    torch.empty(100 * 2**30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    assert "GiB. GPU 0 has a total capacity of 14.56 GiB of which" in str(error)
    assert torch.cuda.memory_stats()["num_ooms"] == 1
if sys.argv[1] == "plain":
    kept = torch.empty(7 * 2**30, dtype=torch.uint8, device="cuda")
    del kept
    torch.empty(8 * 2**30, dtype=torch.uint8, device="cuda")  # does not fit beside the idle 7
    assert torch.cuda.memory_stats()["num_alloc_retries"] == 2
try:
    torch.empty(2**28, dtype=torch.uint8, device="cuda")
    assert "fraction" not in sys.argv[1]
except torch.OutOfMemoryError as error:
    assert "fraction" in sys.argv[1] and "allowed" in str(error)
print("right")
"""

# Unread weights on the host take no memory, and values that a script has written are kept.
HOST = """
import copy, psutil, torch
def resident():
    return psutil.Process().memory_info().rss
def is_free(make, bytes_made):
    before, made = resident(), make()
    assert resident() - before < bytes_made / 20, made.sum()
    return made
free = 4 * 8192**2
layer = torch.nn.Linear(8192, 8192, bias=False)
weight = layer.weight.detach()
half = is_free(lambda: weight.to(torch.bfloat16), free / 2)
is_free(lambda: torch.zeros(8192, 8192).clone(), free)
is_free(lambda: copy.deepcopy(layer).weight.detach(), free)
is_free(lambda: half.pin_memory(), free / 2)
is_free(lambda: weight.cuda().cpu(), free)
is_free(lambda: torch.nn.init.normal_(torch.ones(8192, 8192)), free)
ones = torch.ones(2048, 2048)
assert ones.clone().sum() == ones.double().sum() == ones.numel() and ones.zero_().sum() == 0
assert torch.arange(2**20).clone()[-1] == 2**20 - 1
print("right")
"""

# Threads that are at work when the program ends: without an emulator, PyTorch aborts here.
THREADS = """
import threading, time, torch
def work():
    x = torch.randn(128, requires_grad=True, device="cuda")
    while True:
        (x * x * x).sum().backward()
        working.set()
working = threading.Event()
threading.Thread(target=work, daemon=True).start()
working.wait()
print("right")
"""


# Segments of 64 MiB, and small ones of 2, which lie side by side in a chunk.
ADDRESSES = """
import os, torch
small = [torch.empty(2**20 - 512 * n, dtype=torch.uint8, device="cuda") for n in range(3)]
held = [torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda") for _ in range(3)]
at = [t.data_ptr() for t in held]
ascending = os.environ.get("EMULATED_ASCENDING") == "1"
assert at == sorted(at, reverse=not ascending)
assert all(abs(a - b) == 64 * 2**20 for a, b in zip(at, at[1:]))
segments = sorted(s["address"] for s in torch.cuda.memory_snapshot() if s["total_size"] == 2**21)
assert [b - a for a, b in zip(segments, segments[1:])] == [2**21] * (len(segments) - 1)
print("right")
"""


# A tensor that another stream still uses: its memory comes back when that work has ended.
OTHER_STREAM = """
import torch
x, w = (torch.empty(8192, 8192, device="cuda") for _ in range(2))
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    y = x @ w
x.record_stream(side)
address = x.data_ptr()
del x
torch.zeros(1, device="cuda")  # takes the host its time
reused = torch.empty(8192, 8192, device="cuda").data_ptr() == address
torch.cuda.synchronize()
print("reused" if reused else "waits", torch.cuda.memory_stats()["active_bytes.all.peak"])
"""


def test_the_pace_of_the_host_decides_when_memory_comes_back(tmp_path):
    def run(*options):
        """Return whether the block was reused, and the peak in tensors."""
        printed = emulate(OTHER_STREAM, tmp_path, *options)
        outcome, peak = re.search(r"(reused|waits) (\d+)", printed).groups()
        return outcome, int(peak) // (8192 * 8192 * 4)

    assert run() == run() == ("waits", 4)
    # A host that takes longer than the product finds it done.
    assert run("--host", "1e6")[0] == "reused"


@pytest.mark.parametrize("ascending", ["0", "1"])
def test_addresses_are_in_the_order_of_a_drivers(ascending, tmp_path):
    assert "right\n" in emulate(ADDRESSES, tmp_path, EMULATED_ASCENDING=ascending)


def test_functions():
    assert run("-c", FUNCTIONS, build.library(), **launch.settings()) == "right\n"


def test_values_that_a_script_reads(tmp_path):
    printed = emulate(VALUES, tmp_path)
    assert "right\n" in printed
    lines = [int(n) for n in re.findall(r"script\.py:(\d+)  \(", printed)]
    assert lines == [23, 24, 25, 27]


def test_a_predictor_has_an_interface(tmp_path):
    assert "right\n" in emulate(INTERFACE, tmp_path)


def test_the_interface_exists_only_where_a_gpu_is_emulated():
    with pytest.raises(ImportError, match="no GPU is emulated in this process"):
        importlib.import_module("emulated_gpu.process")


def test_untouched_weights_take_no_memory_of_the_host(tmp_path):
    assert "right\n" in emulate(HOST, tmp_path)


def test_threads_at_the_end_are_no_error(tmp_path):
    assert "right\n" in emulate(THREADS, tmp_path)


@pytest.mark.parametrize("setting", ["", "expandable_segments:True", "roundup_power2_divisions:2"])
def test_allocator_is_pytorchs_own(setting, tmp_path):
    options = ["--card", "t4"]
    env = {"PYTORCH_CUDA_ALLOC_CONF": setting} if setting else {}
    assert "right\n" in emulate(ALLOCATOR, tmp_path, *options, words=[setting or "plain"], **env)


def test_a_fraction_is_a_limit(tmp_path):
    assert "right\n" in emulate(ALLOCATOR, tmp_path, "--card", "t4", words=["fraction"])


def test_every_card_has_what_a_program_asks_for():
    assert all(card.name and card.rates.cache for card in CARDS.values())
